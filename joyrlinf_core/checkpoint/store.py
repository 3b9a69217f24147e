"""The `checkpoints/` directory of a run: which checkpoints are there, newest first. No torch.

A `global_step_<N>` directory is either whole or not there. Names that start with a dot are being
written or deleted.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from joyrlinf_core.checkpoint.manifest import problems
from joyrlinf_core.errors import CheckpointError
from joyrlinf_core.observability.disk import is_full, no_space

_STEP_NAME = re.compile(r"global_step_(\d+)")
_WRITING, _DELETING = ".writing_", ".deleting_"


@dataclass(frozen=True)
class Latest:
    """Result of `latest`.

    Attributes:
        path: The newest whole checkpoint, or None.
        skipped: Newer directories that are not whole, each with what is wrong.
    """

    path: Path | None
    skipped: tuple[tuple[Path, str], ...]


def latest(checkpoints_dir: Path) -> Latest:
    """Return the newest whole checkpoint of a run, and which newer ones had to be skipped."""
    skipped: list[tuple[Path, str]] = []
    for path in _steps(checkpoints_dir):
        found = problems(path, checksums=True)
        if not found:
            return Latest(path, tuple(skipped))
        skipped.append((path, "; ".join(found)))
    return Latest(None, tuple(skipped))


def whole_checkpoints(checkpoints_dir: Path) -> list[Path]:
    """Return the checkpoints whose files are all there in their size, newest first.

    Quick at any size: what the files hold is not read.
    """
    return [path for path in _steps(checkpoints_dir) if not problems(path, checksums=False)]


def prune(checkpoints_dir: Path, keep: int, *, protect: Path | None = None) -> list[Path]:
    """Delete all but the newest whole checkpoints, and what a killed run left half-done.

    Directories that are not whole neither count nor get deleted: `latest` reports them.

    Args:
        checkpoints_dir: The run's `checkpoints/`.
        keep: How many stay; at least the newest does.
        protect: Checkpoint that this run was resumed from; stays too.

    Returns:
        The checkpoints deleted.
    """
    if checkpoints_dir.is_dir():
        for path in checkpoints_dir.iterdir():
            if path.name.startswith((_WRITING, _DELETING)):
                shutil.rmtree(path, ignore_errors=True)
    kept = None if protect is None else protect.resolve()
    older = whole_checkpoints(checkpoints_dir)[max(keep, 1) :]
    doomed = [path for path in older if path.resolve() != kept]
    with explained(checkpoints_dir):
        for path in doomed:
            _delete(path)
    return doomed


def writing_name(step_dir: Path) -> Path:
    """Return where a checkpoint is written before it gets its name."""
    return step_dir.with_name(f"{_WRITING}{step_dir.name}")


def move_into_place(aside: Path, step_dir: Path) -> None:
    """Rename `aside` to its final name, moving a checkpoint of that name out of the way."""
    old = _deleting_name(step_dir)
    shutil.rmtree(old, ignore_errors=True)
    try:
        if step_dir.exists():
            step_dir.rename(old)
        aside.rename(step_dir)
    except BaseException:
        if old.exists() and not step_dir.exists():
            old.rename(step_dir)
        raise
    sync_directory(step_dir.parent)
    shutil.rmtree(old, ignore_errors=True)


def sync_directory(path: Path) -> None:
    """Make the names in a directory survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def other_checkpoints(step_dir: Path) -> str:
    """Return the advice of an error about `step_dir`: which others there are."""
    names = [path.name for path in whole_checkpoints(step_dir.parent)]
    others = [name for name in names if name != step_dir.name]
    if not others:
        return f"there is no other checkpoint in {step_dir.parent}; start the run anew"
    return f"use one of the others in {step_dir.parent}: {', '.join(others)}"


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an OSError into one message with the path and the space that is left."""
    try:
        yield
    except OSError as error:
        problem = f"can't write the checkpoint {path}: {error.strerror or error}"
        fix = "check the permissions of the run directory"
        if is_full(error):
            problem = f"{no_space(path)}; {problem}"
        if is_full(error) or error.errno == errno.EFBIG:
            fix = (
                "free space, lower runner.keep_checkpoints, or set runner.logger.log_path to "
                "another disk"
            )
        raise CheckpointError(problem, fix=fix) from error


def _steps(checkpoints_dir: Path) -> list[Path]:
    """Return the `global_step_<N>` directories, newest first."""
    if not checkpoints_dir.is_dir():
        return []
    numbered = [
        (int(match[1]), path)
        for path in checkpoints_dir.iterdir()
        if (match := _STEP_NAME.fullmatch(path.name)) and path.is_dir()
    ]
    return [path for _, path in sorted(numbered, reverse=True)]


def _deleting_name(step_dir: Path) -> Path:
    return step_dir.with_name(f"{_DELETING}{step_dir.name}")


def _delete(path: Path) -> None:
    """Delete a checkpoint so that a kill halfway leaves no broken one under its name."""
    aside = _deleting_name(path)
    path.rename(aside)
    shutil.rmtree(aside)
