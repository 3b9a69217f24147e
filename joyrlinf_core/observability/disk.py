"""What to say when a disk is full. Standard library alone."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

FULL_BYTES = 2**20
"""Less than this holds no checkpoint and soon no event: the disk counts as full."""


def is_full(error: OSError) -> bool:
    """Return whether a write failed because the disk, or the user's share of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def free_bytes(path: Path) -> int:
    """Return the free space of the disk that holds `path`, which need not exist yet."""
    return shutil.disk_usage(existing(path)).free


def no_space(path: Path) -> str:
    """Return `no space left on MOUNT POINT: N MB free` for the disk that holds `path`."""
    mount = existing(path)
    while not os.path.ismount(mount) and mount != mount.parent:
        mount = mount.parent
    return f"no space left on {mount}: {free_bytes(path) / 1e6:.0f} MB free"


def existing(path: Path) -> Path:
    """Return the path itself, or its nearest parent that exists."""
    absolute = path.absolute()
    return next(place for place in (absolute, *absolute.parents) if place.exists())
