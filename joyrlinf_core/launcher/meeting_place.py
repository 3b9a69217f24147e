"""A private temporary directory per launch, for files through which its processes meet.

In the system's temporary directory, because not every shared file system has the locks that torch's
file store needs.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from joyrlinf_core.launcher.mps_daemon import MpsDaemon

PREFIX = "joyrl-"

YOUNG_SECONDS = 60.0
"""A directory younger than this may not be locked by its owner yet."""


@contextmanager
def meeting_place() -> Iterator[Path]:
    """Make the directory; it is gone at the end, those of killed launchers too."""
    path = Path(tempfile.mkdtemp(prefix=PREFIX))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        _remove_stale(path.parent)
        yield path
    finally:
        os.close(descriptor)
        shutil.rmtree(path, ignore_errors=True)


def _remove_stale(parent: Path) -> None:
    """Remove own directories that no living launcher holds."""
    for path in parent.glob(f"{PREFIX}*"):
        try:
            status = path.stat()
            old = time.time() - status.st_mtime > YOUNG_SECONDS
            if old and status.st_uid == os.getuid() and path.is_dir() and _free(path):
                daemon = MpsDaemon(path)
                if daemon.pipe.exists():
                    daemon.stop()  # what was to do that when its launcher died was killed, too
                shutil.rmtree(path, ignore_errors=True)
        except FileNotFoundError:
            continue  # another launcher was quicker


def _free(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
