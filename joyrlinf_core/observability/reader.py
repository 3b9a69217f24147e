"""Reads `events.jsonl`, also while it is being written. Standard library alone."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from joyrlinf_core.observability.atomic import restore
from joyrlinf_core.observability.events import (
    Alive,
    CheckpointSaved,
    EvalResult,
    Finished,
    Phase,
    Record,
    RunStarted,
    Step,
    Warned,
)


class EventTail:
    """Follows an event file.

    Args:
        path: Need not exist yet.
        from_end: Skip what is there already.
    """

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        self._path = path
        self._offset = path.stat().st_size if from_end and path.exists() else 0
        self._rest = b""

    def poll(self) -> list[Record]:
        """Return the records of all lines that were completed since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [record for line in lines if (record := _parse(line)) is not None]


def read_records(path: Path) -> list[Record]:
    """Return every readable record of an event file; a torn or unknown line is left out."""
    return EventTail(path).poll()


@dataclass
class History:
    """What a run's events add up to.

    A resumed run repeats the steps after its checkpoint; `add` forgets what they replace, so steps
    are strictly increasing and every step counts once.
    """

    started: RunStarted | None = None
    first_time: float | None = None
    start_time: float | None = None
    """When the latest process group came up."""
    last_time: float | None = None
    steps: dict[int, Step] = field(default_factory=dict)
    evals: list[EvalResult] = field(default_factory=list)
    checkpoints: list[CheckpointSaved] = field(default_factory=list)
    warnings: list[Warned] = field(default_factory=list)
    phases: dict[int, Record] = field(default_factory=dict)
    """Latest `Phase` record of each rank."""
    got_on: dict[int, float] = field(default_factory=dict)
    """When each rank last got on, as far as it told; without those that wait for others."""
    finished: Finished | None = None

    def add(self, record: Record) -> None:
        """Take one more record."""
        event = record.event
        self.first_time = record.time if self.first_time is None else self.first_time
        self.last_time = record.time
        if isinstance(event, RunStarted):
            self._restart(event, record.time)
        elif isinstance(event, Phase):
            self.phases[record.rank] = record
            self.got_on[record.rank] = record.time
        elif isinstance(event, Alive):
            self.got_on[record.rank] = record.time - event.idle
            if event.waits_for:
                del self.got_on[record.rank]
        elif isinstance(event, Step):
            self.steps[event.step] = event
        elif isinstance(event, EvalResult):
            same = (event.step, event.label)
            self.evals = [e for e in self.evals if (e.step, e.label) != same] + [event]
        elif isinstance(event, CheckpointSaved):
            self.checkpoints = [c for c in self.checkpoints if c.step != event.step] + [event]
        elif isinstance(event, Warned):
            self.warnings.append(event)
        elif isinstance(event, Finished):
            self.finished = event

    def _restart(self, event: RunStarted, time: float) -> None:
        last = event.start_step
        self.started, self.start_time, self.finished = event, time, None
        self.phases.clear()
        self.got_on.clear()
        self.steps = {number: step for number, step in self.steps.items() if number <= last}
        self.evals = [e for e in self.evals if e.step <= last and e.label != "end"]
        self.checkpoints = [c for c in self.checkpoints if c.step <= last]


def read_history(path: Path) -> History:
    """Return the history of an event file."""
    history = History()
    for record in read_records(path):
        history.add(record)
    return history


def _parse(line: bytes) -> Record | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    record = Record.from_json(value) if isinstance(value, dict) else None
    if record is None:
        return None
    numbers = {
        f.name: restore(getattr(record.event, f.name))
        for f in fields(record.event)
        if "float" in str(f.type)
    }
    return replace(record, event=replace(record.event, **numbers))
