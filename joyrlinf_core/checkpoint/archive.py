"""One checkpoint: write it aside, verify it, rename it; read it back.

Only rank 0 writes; the engine gathers sharded states before.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import torch

from joyrlinf_core.checkpoint.manifest import (
    FOLDER,
    META,
    STATE_FILES,
    CheckpointMeta,
    FileRecord,
    problems,
    read_meta,
)
from joyrlinf_core.checkpoint.store import (
    explained,
    move_into_place,
    other_checkpoints,
    sync_directory,
    writing_name,
)
from joyrlinf_core.comm.sharding import TrainingState
from joyrlinf_core.errors import CheckpointError

State = Mapping[str, Any]


@dataclass(frozen=True)
class Checkpoint(TrainingState):
    """A loaded checkpoint; tensors are on the CPU.

    Attributes:
        meta: The manifest.
    """

    meta: CheckpointMeta

    @property
    def step(self) -> int:
        """Training steps finished."""
        return self.meta.step

    @property
    def progress(self) -> Mapping[str, int | float]:
        """Where the run stood."""
        return self.meta.progress


def save(
    step_dir: Path,
    model_state: State,
    optimizer_state: State,
    scheduler_state: State,
    meta: CheckpointMeta,
) -> None:
    """Write a checkpoint; replaces one of the same name only once the new one is whole.

    Args:
        step_dir: `.../checkpoints/global_step_<N>`.
        model_state: State dict of the model.
        optimizer_state: State dict of the optimizer.
        scheduler_state: State dict of the schedule.
        meta: The manifest, without `files`.

    Raises:
        CheckpointError: The disk is full or can't be written. Older checkpoints are untouched, and
            nothing half-written is left.
    """
    aside = writing_name(step_dir)
    with explained(step_dir), _removed_on_error(aside):
        shutil.rmtree(aside, ignore_errors=True)
        (aside / FOLDER).mkdir(parents=True)
        records: dict[str, FileRecord] = {}
        states = (model_state, optimizer_state, scheduler_state)
        for name, state in zip(STATE_FILES, states, strict=True):
            records[name] = _write_state(aside / FOLDER / name, state)
        complete = meta.model_copy(update={"files": records})
        with (aside / FOLDER / META).open("wb") as file:
            file.write(complete.model_dump_json(indent=2).encode())
            _sync(file)
        sync_directory(aside / FOLDER)
        sync_directory(aside)
        if found := problems(aside, checksums=True):
            raise CheckpointError(
                f"the checkpoint {step_dir} did not read back as written: {'; '.join(found)}",
                fix="check the disk, or set runner.logger.log_path to another one",
            )
        move_into_place(aside, step_dir)


def load(step_dir: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        CheckpointError: Files are missing or changed; the message lists all of them.
    """
    meta = _whole(step_dir)
    model, optimizer, scheduler = (_read_state(step_dir / FOLDER / name) for name in STATE_FILES)
    return Checkpoint(model, optimizer, scheduler, meta=meta)


def load_model(step_dir: Path) -> tuple[int, dict[str, Any]]:
    """Read the step and the model's state dict of a checkpoint.

    Raises:
        CheckpointError: Files are missing or changed; the message lists all of them.
    """
    return _whole(step_dir).step, _read_state(step_dir / FOLDER / STATE_FILES[0])


def _whole(step_dir: Path) -> CheckpointMeta:
    """Return the manifest of a checkpoint that has nothing wrong."""
    found = problems(step_dir, checksums=True)
    meta = read_meta(step_dir)
    if found or isinstance(meta, str):
        raise CheckpointError(
            f"{step_dir} can't be loaded:\n    " + "\n    ".join(found or [str(meta)]),
            fix=other_checkpoints(step_dir),
        )
    return meta


class _HashingFile:
    """Binary file that hashes what goes through, and keeps the error that torch turns into its own.

    `torch.save` reports a failed write as a RuntimeError without the error number.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.size_bytes = 0
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        """Write and hash."""
        try:
            written = self._file.write(data)
        except OSError as error:
            self.error = error
            raise
        self._digest.update(data)
        self.size_bytes += len(data)
        return written

    def flush(self) -> None:
        """Flush the file."""
        self._file.flush()

    def record(self) -> FileRecord:
        """Return what was written."""
        return FileRecord(sha256=self._digest.hexdigest(), size_bytes=self.size_bytes)


def _write_state(path: Path, state: State) -> FileRecord:
    with path.open("wb") as file:
        hashing = _HashingFile(file)
        try:
            torch.save(dict(state), cast("IO[bytes]", hashing))
        except RuntimeError as error:
            if hashing.error is not None:
                raise hashing.error from error
            raise
        _sync(file)
    return hashing.record()


def _read_state(path: Path) -> dict[str, Any]:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load has no narrower type for what it can't or won't read
        raise CheckpointError(
            f"{path} holds more than tensors and plain values, or was not written by torch: "
            f"{error}",
            fix=other_checkpoints(path.parent.parent),
        ) from error


@contextmanager
def _removed_on_error(aside: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())
