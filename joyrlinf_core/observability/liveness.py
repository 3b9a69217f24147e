"""Whether another process of this machine is still the same one. Standard library alone."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

PF_EXITING = 0x4
"""Flag of Linux: the process has begun to end, and closes its files next."""


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
        return cls(pid, _stat(pid).started)

    @classmethod
    def parse(cls, text: str) -> ProcessId:
        """Read what `str` wrote."""
        pid, _, started = text.partition(":")
        return cls(int(pid), started)

    def __str__(self) -> str:
        return f"{self.pid}:{self.started}"

    @property
    def alive(self) -> bool:
        """Whether this very process runs; one that is ending does not, nor a zombie.

        While a killed process ends, its peers see its connections close already: they may have
        said so before it is gone.
        """
        stat = _stat(self.pid)
        if stat.started and self.started:
            return stat.started == self.started and not stat.ends
        return _accepts_signals(self.pid)


class _Stat(NamedTuple):
    """What /proc says of a process.

    Attributes:
        started: Start time; empty if it says nothing.
        ends: It is ending, or has ended.
    """

    started: str = ""
    ends: bool = False


def _stat(pid: int) -> _Stat:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return _Stat()
    # The command name, in brackets, may hold spaces and brackets itself.
    state, *values = text.rpartition(")")[2].split()
    return _Stat(values[18], state in "ZX" or bool(int(values[5]) & PF_EXITING))


def _accepts_signals(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
