"""`PhaseTimer`: wall seconds of the named parts of one step."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from joyrlinf_core.observability import activity


class PhaseTimer:
    """Accumulates wall seconds by name until `pop`.

    `with timer("rollout"): ...` around `with timer("rollout/predict"): ...`: a name with a slash is
    a part of what stands before it, see `phases`. Safe to use from several threads.

    Args:
        annotate: Returns a context manager that marks a block with its name elsewhere, as in a
            trace; entered around each timed block.
    """

    def __init__(
        self, annotate: Callable[[str], AbstractContextManager[object]] = nullcontext
    ) -> None:
        self._annotate = annotate
        self._seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Add the time of the block to `name`, also when the block raises."""
        started = time.perf_counter()
        try:
            with activity.block(name), self._annotate(name):
                yield
        finally:
            self.add(name, time.perf_counter() - started)

    def add(self, name: str, seconds: float) -> None:
        """Add wall seconds that were measured elsewhere."""
        with self._lock:
            self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def pop(self) -> dict[str, float]:
        """Return the sums since the last `pop`, and start anew."""
        with self._lock:
            seconds, self._seconds = self._seconds, {}
        return seconds


def phases(seconds: dict[str, float]) -> dict[str, float]:
    """Return the seconds of each phase: its own entry, or what its parts add up to."""
    total: dict[str, float] = {}
    for name, value in seconds.items():
        phase = name.split("/")[0]
        if name == phase or (phase not in seconds and not _parents(name) & seconds.keys()):
            total[phase] = total.get(phase, 0.0) + value
    return total


def _parents(name: str) -> set[str]:
    parts = name.split("/")
    return {"/".join(parts[:count]) for count in range(1, len(parts))}
