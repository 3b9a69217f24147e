"""Stacks of all threads of the workers, which they write into their logs when asked."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from joyrlinf_core.launcher.processes import Launch

WAIT_SECONDS = 3.0
"""How long a process may take; one that the system has stopped writes nothing."""

QUIET_SECONDS = 0.3
"""A log that has not grown for so long is complete."""

MAX_FRAMES = 8

_HEADER = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*$", re.MULTILINE)
_FRAME = re.compile(r'  File ".*", line \d+ in .*')


def write_stacks(launch: Launch, logs: Sequence[Path]) -> None:
    """Ask every worker of this node for its stacks; return when they are in the logs.

    Args:
        launch: The processes.
        logs: Logs of the workers that still run.
    """
    before = sizes = _sizes(logs)
    launch.signal_workers(signal.SIGUSR1)
    started = grown = time.monotonic()
    while (now := time.monotonic()) - started < WAIT_SECONDS:
        time.sleep(0.05)
        if (latest := _sizes(logs)) != sizes:
            sizes, grown = latest, now
        all_grew = all(new > old for new, old in zip(sizes, before, strict=True))
        if all_grew and now - grown > QUIET_SECONDS:
            return


def main_stack(log_tail: str) -> list[str]:
    """Return the innermost frames of the main thread from the end of a log; the innermost first."""
    headers = list(_HEADER.finditer(log_tail))
    if not headers:
        return []
    # Threads are listed from the youngest to the oldest, which is the main one.
    lines = log_tail[headers[-1].end() :].strip("\n").splitlines()
    frames: list[str] = []
    for line in lines[:MAX_FRAMES]:
        if not _FRAME.fullmatch(line):
            break
        frames.append(line.strip())
    return frames


def _sizes(logs: Sequence[Path]) -> list[int]:
    return [log.stat().st_size if log.exists() else 0 for log in logs]
