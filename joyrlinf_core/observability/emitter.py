"""`Emitter`: appends the events of one rank to `events.jsonl` and hands them to sinks."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from joyrlinf_core.errors import RunFailedError
from joyrlinf_core.observability import activity, disk
from joyrlinf_core.observability.atomic import plain
from joyrlinf_core.observability.events import Event, Phase, Record, Warned
from joyrlinf_core.observability.run_dir import RunDir

HEARTBEAT_SECONDS = 0.5
"""Least time between two heartbeats of an unchanged phase."""


class Sink(Protocol):
    """Receives every event of rank 0 beside the event file."""

    def write(self, record: Record) -> None:
        """Take one event; what it raises drops the sink, not the run."""
        ...

    def close(self) -> None:
        """Flush and free."""
        ...


class Emitter:
    """Events of one rank.

    A line goes out in one `write` on an `O_APPEND` descriptor, so that ranks of one machine share
    the file without a lock and a kill leaves at most one torn line at the end. A resumed run
    appends to the same file.

    Args:
        run_dir: The run directory; exists.
        rank: Global rank.
        sinks: Further readers; only rank 0 has any.
        clock: Seconds since the epoch.
        path: Event file, where it is not that of the run directory.

    Raises:
        RunFailedError: The event file can't be opened or written.
    """

    def __init__(
        self,
        run_dir: RunDir,
        rank: int,
        sinks: Sequence[Sink] = (),
        clock: Callable[[], float] = time.time,
        path: Path | None = None,
    ) -> None:
        self._path = path or run_dir.events
        self._rank = rank
        self._sinks = list(sinks)
        self._clock = clock
        self._lock = threading.RLock()
        self._last_phase: tuple[str, int, int] | None = None
        self._last_phase_time = 0.0
        self._left_out: Phase | None = None
        self.written_at = clock()
        """When the last event was written, seconds since the epoch."""
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            self._end_torn_line()
        except OSError as error:
            raise self._unwritable(error) from error

    def emit(self, event: Event) -> None:
        """Append one event.

        Raises:
            RunFailedError: The line could not be written, for example on a full disk.
        """
        with self._lock:
            record = Record(self._clock(), self._rank, event)
            self._append(record)
            self.written_at = record.time
            for sink in tuple(self._sinks):
                self._hand_over(sink, record)

    def phase(self, name: str, step: int, done: int = 0, total: int = 0) -> None:
        """Note that this rank is in a phase; cheap enough to call in every iteration.

        Written when the phase or step changes, when it is done, and else at most twice a second.
        """
        now = self._clock()
        activity.moved()
        with self._lock:
            last = self._last_phase
            entered = last is None or last[:2] != (name, step)
            ended = total > 0 and done >= total and last != (name, step, done)
            self._left_out = Phase(name, step, done, total)
            if entered or ended or now - self._last_phase_time >= HEARTBEAT_SECONDS:
                self._last_phase, self._last_phase_time = (name, step, done), now
                self.catch_up()

    def catch_up(self) -> None:
        """Write the latest call of `phase` if it was left out."""
        with self._lock:
            if self._left_out is not None:
                phase, self._left_out = self._left_out, None
                self.emit(phase)

    def close(self) -> None:
        """Close the file and every sink."""
        with self._lock:
            for sink in tuple(self._sinks):
                self._guarded(sink, sink.close)
            self._sinks.clear()
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def _append(self, record: Record) -> None:
        line = (json.dumps(plain(record.to_json()), allow_nan=False) + "\n").encode()
        try:
            written = os.write(self._descriptor, line)
        except OSError as error:
            raise self._unwritable(error) from error
        if written != len(line):
            raise self._unwritable(OSError(errno.ENOSPC, "only a part of a line was written"))

    def _end_torn_line(self) -> None:
        """Start on a fresh line after a run that was killed in the middle of one."""
        size = os.fstat(self._descriptor).st_size
        if self._rank == 0 and size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            os.write(self._descriptor, b"\n")

    def _hand_over(self, sink: Sink, record: Record) -> None:
        self._guarded(sink, lambda: sink.write(record))

    def _guarded(self, sink: Sink, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # whatever a tracker raises must not end a training run
            self._sinks.remove(sink)
            name = type(sink).__name__
            self.emit(
                Warned(
                    code="sink-dropped",
                    message=f"{name} failed and is off for the rest of the run: {error!r}",
                    fix="events.jsonl still holds everything",
                )
            )

    def _unwritable(self, error: OSError) -> RunFailedError:
        if disk.is_full(error):
            return RunFailedError(
                f"{disk.no_space(self._path)}; can't write {self._path}", fix="free space there"
            )
        return RunFailedError(
            f"can't write {self._path}: {error.strerror or error}",
            fix="restore write permission there",
        )
