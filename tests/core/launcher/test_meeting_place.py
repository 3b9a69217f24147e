import os
import tempfile
import time

from joyrlinf_core.launcher.meeting_place import meeting_place


def test_what_killed_launchers_left_is_removed_and_what_is_in_use_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stale, young = tmp_path / "joyrl-stale", tmp_path / "joyrl-young"
    for path in (stale, young):
        path.mkdir()
    long_ago = time.time() - 3600
    with meeting_place() as used:
        for path in (stale, used):
            os.utime(path, (long_ago, long_ago))
        with meeting_place() as second:
            assert sorted(tmp_path.iterdir()) == sorted([young, used, second])
    assert list(tmp_path.iterdir()) == [young]
