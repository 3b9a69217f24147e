"""One launcher at a time in a run directory."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from joyrlinf_core.errors import RunFailedError, UsageError
from joyrlinf_core.observability.run_dir import RunDir


@contextmanager
def held(run_dir: RunDir) -> Iterator[None]:
    """Hold a run directory; the kernel lets go of it when this process ends, however it does.

    Where the file system has no locks, the status files of the workers are all that protects a run.

    Raises:
        UsageError: Another launcher holds it.
    """
    try:
        descriptor = os.open(run_dir.lock, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RunFailedError(
            f"can't write to {run_dir.root}: {error.strerror or error}",
            fix="free space or restore write permission there",
        ) from error
    try:
        if _locked(descriptor, run_dir):
            name = f"{os.getpid()} on {socket.gethostname()}\n".encode()
            os.pwrite(descriptor, name, 0)
            os.ftruncate(descriptor, len(name))
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int, run_dir: RunDir) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UsageError(
            f"run {run_dir.root} is in use by process {_holder(run_dir.lock)}",
            fix="wait until it has ended, or stop it with Ctrl-C in its terminal",
        ) from error
    except OSError:
        return False  # no locks on this file system
    return True


def _holder(lock: Path) -> str:
    """Return process and host of the holder, who may be about to write them."""
    deadline = time.monotonic() + 1.0
    while not (name := lock.read_text(encoding="utf-8").strip()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return name or "unknown"
