"""Finding, and thinning out, the checkpoints of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from joyrlinf_core.checkpoint import store


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def _flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", ["flip", "unlink", "no_meta", "bad_meta"])
def test_latest_skips_what_is_broken_and_says_so(tmp_path, save, damage):
    save(tmp_path / "global_step_9")
    save(tmp_path / "global_step_10")
    actor = tmp_path / "global_step_10" / "actor"
    if damage == "flip":
        _flip_a_byte(actor / "optimizer.pt")
    elif damage == "unlink":
        (actor / "model.pt").unlink()
    elif damage == "no_meta":
        (actor / "meta.json").unlink()
    else:
        content = json.loads((actor / "meta.json").read_text())
        (actor / "meta.json").write_text(json.dumps(content | {"step": "three"}))
    found = store.latest(tmp_path)
    assert found.path == tmp_path / "global_step_9"
    assert [path.name for path, _ in found.skipped] == ["global_step_10"]
    assert found.skipped[0][1]


def test_latest_orders_by_number_and_ignores_other_names(tmp_path, save):
    assert store.latest(tmp_path / "absent") == store.Latest(None, ())
    assert store.latest(tmp_path) == store.Latest(None, ())
    for step in (9, 10, 100):
        save(tmp_path / f"global_step_{step}")
    (tmp_path / "global_step_x").mkdir()
    (tmp_path / "notes.txt").write_text("")
    assert store.latest(tmp_path) == store.Latest(tmp_path / "global_step_100", ())


def test_prune_keeps_the_newest_and_the_protected(tmp_path, save):
    for step in range(1, 7):
        save(tmp_path / f"global_step_{step}")
    (tmp_path / "global_step_6" / "actor" / "model.pt").write_bytes(b"broken")
    deleted = store.prune(tmp_path, 2, protect=tmp_path / "global_step_1")
    assert [path.name for path in deleted] == ["global_step_3", "global_step_2"]
    assert _names(tmp_path) == [f"global_step_{step}" for step in (1, 4, 5, 6)]
    assert store.latest(tmp_path).path == tmp_path / "global_step_5"


def test_prune_never_deletes_the_only_one(tmp_path, save):
    save(tmp_path / "global_step_1")
    assert store.prune(tmp_path, 0) == []
    assert store.prune(tmp_path / "absent", 2) == []
    assert _names(tmp_path) == ["global_step_1"]
