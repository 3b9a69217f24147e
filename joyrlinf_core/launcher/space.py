"""Checks, before anything is started, that there is room for what a job writes."""

from __future__ import annotations

import os
from pathlib import Path

from joyrlinf_core.errors import EnvironmentNotReadyError
from joyrlinf_core.observability.disk import existing, free_bytes

MIN_FREE_BYTES = 256 * 2**20
"""Less free space than this can't hold logs and two small checkpoints."""

OTHER_LOG_PATH = "--set runner.logger.log_path=DIR on another disk"
OTHER_CACHE = "set XDG_CACHE_HOME to a directory on another disk"


def check_space(
    directory: Path, *, what: str, other_place: str, needed: int = MIN_FREE_BYTES
) -> None:
    """Raise unless a directory can be written and has enough free space.

    Args:
        directory: Need not exist yet.
        what: What will be written there, for the message.
        other_place: How to choose another place.
        needed: Bytes.

    Raises:
        EnvironmentNotReadyError: The place can't be written, or is nearly full.
    """
    place = existing(directory)
    if not os.access(place, os.W_OK):
        raise EnvironmentNotReadyError(f"no permission to write to {place}", fix=other_place)
    free = free_bytes(place)
    if free < needed:
        raise EnvironmentNotReadyError(
            f"only {free / 2**20:.0f} MiB are free at {directory}; {what} needs at least "
            f"{needed / 2**20:.0f} MiB",
            fix=f"free some space, or {other_place}",
        )
