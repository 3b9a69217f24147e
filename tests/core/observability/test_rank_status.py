import errno

import pytest

from joyrlinf_core.observability import rank_status
from joyrlinf_core.observability.rank_status import Failure, RankStatus


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_a_full_disk_leaves_room_for_the_outcome(tmp_path, monkeypatch, code):
    path = tmp_path / "status_rank0.json"
    RankStatus(0, "1:1", "running", 0.0).write(path)

    def failing(_path, _value):
        raise OSError(code, "message")

    monkeypatch.setattr(rank_status, "write_json", failing)
    failed = RankStatus(0, "1:1", "failed", 1.0, 5, Failure("E", "no space", "free some", ""))
    if code == errno.EACCES:
        with pytest.raises(OSError, match="message"):
            failed.write(path)
    else:
        failed.write(path)
        assert RankStatus.read(path) == failed
