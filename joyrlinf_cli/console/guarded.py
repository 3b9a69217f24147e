"""A console that can't take the run down with it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable

from joyrlinf_core.launcher.jobs import ClosableListener
from joyrlinf_core.observability.events import Record


class GuardedConsole:
    """Passes everything on until the console raises; then the run goes on without one.

    Terminals close, pipes break (`joyrl train | head`): none of that may end a training.

    Args:
        build: Opens the console, which may fail as well; None shows nothing.
    """

    def __init__(self, build: Callable[[], ClosableListener] | None) -> None:
        self._console: ClosableListener | None = None
        if build is not None:
            self._guard(lambda: self._open(build))

    def on_record(self, record: Record) -> None:
        """Pass on an event."""
        self._try(lambda console: console.on_record(record))

    def on_notice(self, text: str) -> None:
        """Pass on a message of the launcher."""
        self._try(lambda console: console.on_notice(text))

    def on_tick(self) -> None:
        """Pass on the passing of time."""
        self._try(lambda console: console.on_tick())

    def close(self) -> None:
        """Close the console."""
        self._try(lambda console: console.close())
        self._console = None

    def _try(self, action: Callable[[ClosableListener], None]) -> None:
        console = self._console
        if console is not None:
            self._guard(lambda: action(console))

    def _open(self, build: Callable[[], ClosableListener]) -> None:
        self._console = build()

    def _guard(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            self._console = None
            # Where the terminal is gone, so is the place to say so.
            with contextlib.suppress(OSError):
                print(f"console off ({error!r}); the run goes on", file=sys.stderr)
