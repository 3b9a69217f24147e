"""`Heartbeat`: a thread that tells in the event file whether its process gets on. No torch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from joyrlinf_core.observability import activity
from joyrlinf_core.observability.events import Alive

if TYPE_CHECKING:
    from types import TracebackType

    from joyrlinf_core.observability.emitter import Emitter

TICK_SECONDS = 0.5

BEAT_SECONDS = 5.0
"""A rank that gets on, but writes nothing else, says so as often."""

SETTLED_SECONDS = 1.5
"""A rank that has not got on for so long says once where it is."""


class Heartbeat:
    """Runs while its block does.

    It is silent where the process hangs in code that lets no other thread run; so it is when all
    has been said.

    Args:
        emitter: Where to.
        fail: Ends this process with an error, as on a full disk.
    """

    def __init__(self, emitter: Emitter, fail: Callable[[BaseException], None]) -> None:
        self._emitter = emitter
        self._fail = fail
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._seen: tuple[int, ...] = ()
        self._told: tuple[int, ...] | None = None
        self._moved_at = time.monotonic()

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join()

    def beat(self) -> None:
        """Write down what others should know by now."""
        now, seen = time.monotonic(), activity.current()
        if seen.moves != self._seen:
            self._seen, self._moved_at = seen.moves, now
        if self._told == seen.moves:
            return
        idle = now - self._moved_at
        quiet = time.time() - self._emitter.written_at
        if idle >= SETTLED_SECONDS or quiet >= BEAT_SECONDS:
            self._told = seen.moves
            self._emitter.catch_up()
            self._emitter.emit(Alive(seen.doing, seen.beside, seen.waits_for, round(idle, 3)))

    def _run(self) -> None:
        try:
            while not self._end.wait(TICK_SECONDS):
                self.beat()
        except BaseException as error:  # the main thread may hang and never see it
            self._fail(error)
