"""Stop signals to the launcher, counted instead of obeyed while workers run."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """Counts stop signals."""

    def __init__(self) -> None:
        self.count = 0

    def on_signal(self, _number: int, _frame: object) -> None:
        """Count one."""
        self.count += 1


@contextmanager
def caught_signals() -> Iterator[Signals]:
    """Count stop signals; at the end they do again what they did before."""
    signals = Signals()
    # A signal that the parent ignores, as nohup does with SIGHUP, stays ignored.
    caught = [s for s in STOP_SIGNALS if signal.getsignal(s) is not signal.SIG_IGN]
    before: list[tuple[signal.Signals, Callable[..., object] | int | None]] = [
        (number, signal.signal(number, signals.on_signal)) for number in caught
    ]
    try:
        yield signals
    finally:
        for number, handler in before:
            signal.signal(number, handler)
