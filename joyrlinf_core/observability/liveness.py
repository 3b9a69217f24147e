"""Whether another process of this machine is still the same one. Standard library alone."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProcessId:
    """A process that a recycled pid can't be mistaken for.

    Attributes:
        pid: Process id.
        started: Start time in the kernel's ticks; empty where the system does not tell it.
    """

    pid: int
    started: str = ""

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        """Identify a process that runs now."""
        return cls(pid, _stat(pid)[1])

    @classmethod
    def parse(cls, text: str) -> ProcessId:
        """Read what `str` wrote."""
        pid, _, started = text.partition(":")
        return cls(int(pid), started)

    def __str__(self) -> str:
        return f"{self.pid}:{self.started}"

    @property
    def alive(self) -> bool:
        """Whether this very process runs; a zombie does not."""
        state, started = _stat(self.pid)
        if started and self.started:
            return started == self.started and state not in "ZX"
        return _accepts_signals(self.pid)


def _stat(pid: int) -> tuple[str, str]:
    """Return (state, start time) of a process from /proc; empty strings without it."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "", ""
    # The command name, in brackets, may hold spaces and brackets itself.
    values = text.rpartition(")")[2].split()
    return values[0], values[19]


def _accepts_signals(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
