"""Checkpoints are whole or not there."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from joyrlinf_core.checkpoint import archive, store
from joyrlinf_core.checkpoint.manifest import sha256_of
from joyrlinf_core.errors import CheckpointError


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_round_trip(tmp_path, save, meta):
    step_dir = tmp_path / "checkpoints" / "global_step_3"
    save(step_dir)
    assert _names(step_dir / "actor") == ["meta.json", "model.pt", "optimizer.pt", "scheduler.pt"]
    assert _names(step_dir.parent) == ["global_step_3"]
    loaded = archive.load(step_dir)
    assert torch.equal(loaded.model["layer.weight"], torch.ones(64, 64))
    assert loaded.model["step"] == 4
    assert loaded.optimizer["param_groups"][0]["betas"] == (0.9, 0.95)
    assert loaded.optimizer["state"][0]["step"] == 4
    assert loaded.scheduler == {"last_epoch": 4, "lrs": [1e-4]}
    assert loaded.meta.model_copy(update={"files": {}}) == meta


def test_saving_twice_replaces(tmp_path, save):
    step_dir = tmp_path / "global_step_3"
    save(step_dir, 1.0)
    save(step_dir, 2.0)
    assert archive.load(step_dir).model["layer.weight"][0, 0] == 2
    assert _names(tmp_path) == ["global_step_3"]


@pytest.mark.parametrize("crash", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_crash_between_files_leaves_nothing(tmp_path, save, monkeypatch, after, crash):
    save(tmp_path / "global_step_2")
    _fail_write(monkeypatch, after, crash("boom"))
    with pytest.raises(crash):
        save(tmp_path / "global_step_3", 2.0)
    assert _names(tmp_path) == ["global_step_2"]
    assert store.latest(tmp_path).path == tmp_path / "global_step_2"


def test_crash_while_replacing_keeps_the_old_one(tmp_path, save, monkeypatch):
    save(tmp_path / "global_step_3", 1.0)
    _fail_write(monkeypatch, 2, RuntimeError("boom"))
    with pytest.raises(RuntimeError, match="boom"):
        save(tmp_path / "global_step_3", 2.0)
    assert archive.load(tmp_path / "global_step_3").model["layer.weight"][0, 0] == 1


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken disk"), KeyboardInterrupt()])
def test_failing_rename_brings_the_old_one_back(tmp_path, save, monkeypatch, error):
    save(tmp_path / "global_step_3", 1.0)
    original = Path.rename

    def rename(self, target):
        if self.name.startswith(".writing_"):
            raise error
        return original(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises((CheckpointError, KeyboardInterrupt)):
        save(tmp_path / "global_step_3", 2.0)
    assert archive.load(tmp_path / "global_step_3").model["layer.weight"][0, 0] == 1
    assert _names(tmp_path) == ["global_step_3"]


def _fail_write(monkeypatch, after: int, error: BaseException) -> None:
    """Let `after` state files be written, then raise."""
    original, written = archive._write_state, []

    def write(path, state):
        if len(written) == after:
            raise error
        written.append(path)
        return original(path, state)

    monkeypatch.setattr(archive, "_write_state", write)


_KILLED = """
import os, signal, sys
from pathlib import Path
from joyrlinf_core.checkpoint import archive, store
from joyrlinf_core.checkpoint.manifest import CheckpointMeta

original = archive._write_state
def write(path, state):
    if path.name == "scheduler.pt":
        os.kill(os.getpid(), signal.SIGKILL)
    return original(path, state)
archive._write_state = write
meta = CheckpointMeta(step=3, config_hash="", world_size=1, torch_version="", seed=0)
archive.save(Path(sys.argv[1]), {}, {}, {}, meta)
"""


def test_kill_in_the_middle_is_invisible_and_cleaned_up(tmp_path, save):
    save(tmp_path / "global_step_2")
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path / "global_step_3")], check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert _names(tmp_path) == [".writing_global_step_3", "global_step_2"]
    assert store.latest(tmp_path) == store.Latest(tmp_path / "global_step_2", ())
    save(tmp_path / "global_step_3")
    assert store.latest(tmp_path).path == tmp_path / "global_step_3"

    (tmp_path / ".writing_global_step_9" / "actor").mkdir(parents=True)
    store.prune(tmp_path, 2)
    assert _names(tmp_path) == ["global_step_2", "global_step_3"]


def test_full_disk_is_one_clear_error(tmp_path, save, monkeypatch):
    save(tmp_path / "global_step_2")

    def full(self, data):
        self.error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        raise self.error

    monkeypatch.setattr(archive._HashingFile, "write", full)
    with pytest.raises(CheckpointError) as caught:
        save(tmp_path / "global_step_3")
    message = str(caught.value)
    assert str(tmp_path / "global_step_3") in message
    assert message.startswith("no space left on /")
    assert "MB free; can't write the checkpoint" in message
    assert "runner.keep_checkpoints" in message
    assert _names(tmp_path) == ["global_step_2"]
    assert store.latest(tmp_path).path == tmp_path / "global_step_2"


def test_kernel_refusing_a_write_half_way(tmp_path, save):
    """A file-size limit fails inside `torch.save`, as a full disk does."""
    save(tmp_path / "global_step_2")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (9000, before[1]))
    try:
        with pytest.raises(CheckpointError, match="File too large"):
            save(tmp_path / "global_step_3")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert _names(tmp_path) == ["global_step_2"]


def test_unwritable_place_is_explained(tmp_path, save):
    (tmp_path / "checkpoints").write_text("a file")
    with pytest.raises(CheckpointError, match=r"can't write the checkpoint .*global_step_3"):
        save(tmp_path / "checkpoints" / "global_step_3")


def _flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_load_lists_everything_that_is_wrong(tmp_path, save):
    save(tmp_path / "global_step_2")
    actor = tmp_path / "global_step_3" / "actor"
    save(actor.parent)
    _flip_a_byte(actor / "model.pt")
    (actor / "optimizer.pt").unlink()
    (actor / "scheduler.pt").write_bytes(b"short")
    with pytest.raises(CheckpointError) as caught:
        archive.load(actor.parent)
    message = str(caught.value)
    assert "model.pt has another checksum" in message
    assert "optimizer.pt is missing" in message
    assert "scheduler.pt has 5 bytes instead of" in message
    assert caught.value.fix.endswith("global_step_2")


def test_code_in_a_file_is_not_executed(tmp_path, save, monkeypatch):
    monkeypatch.chdir(tmp_path)
    step_dir = tmp_path / "global_step_3"
    save(step_dir)
    torch.save({"x": _Trap()}, step_dir / "actor" / "model.pt")
    record = step_dir / "actor" / "meta.json"
    content = json.loads(record.read_text())
    path = step_dir / "actor" / "model.pt"
    content["files"]["model.pt"] = {
        "sha256": sha256_of(path),
        "size_bytes": path.stat().st_size,
    }
    record.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="more than tensors and plain values"):
        archive.load(step_dir)
    assert not (tmp_path / "owned").exists()


class _Trap:
    def __reduce__(self):
        return os.mkdir, ("owned",)
