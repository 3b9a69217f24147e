"""Typed events of `events.jsonl`, the source of truth of a run.

One JSON object a line: `{"kind", "time", "rank", ...fields}`. Every rank appends whole lines;
console, TensorBoard, `perf_summary.json` and `joyrl runs` are readers or sinks of these. Standard
library alone.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Event:
    """Base of every event."""

    kind: ClassVar[str] = ""

    def to_json(self) -> dict[str, Any]:
        """Return the event's own fields and its kind."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class RunStarted(Event):
    """A process group of workers is up (also after a resume). Rank 0 only."""

    kind: ClassVar[str] = "run_started"
    job: str
    run_dir: str
    world_size: int
    start_step: int
    total_steps: int
    """Steps that the job will make in all; optimizer steps for `sft`, episodes for `eval`."""
    versions: dict[str, str] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    """What was chosen here: device, threads, renderer, policy size."""


@dataclass(frozen=True)
class Phase(Event):
    """Heartbeat: a rank entered a phase (reset, rollout, update, eval, save, demos, load).

    All ranks.
    """

    kind: ClassVar[str] = "phase"
    phase: str
    step: int
    """Steps finished when the phase began, so the first rollout has 0."""
    done: int = 0
    """Units that this rank has done inside the phase, for a progress bar."""
    total: int = 0
    """Units of the phase; 0 where unknown. Of all ranks where each does a share (demos, eval)."""


@dataclass(frozen=True)
class Alive(Event):
    """Heartbeat: a rank gets on inside its phase, or has come to where it is now. All ranks.

    After it has said where it is, a rank writes nothing more until it gets on. So of ranks that are
    silent, this says which of them wait for others.
    """

    kind: ClassVar[str] = "alive"
    doing: str
    """What the rank works at, as in the timings of a step; may be empty."""
    beside: bool
    """Another thread than the main one does it, which waits."""
    waits_for: str
    """What it waits for from other ranks; empty if it works."""
    idle: float
    """Seconds since it last got on."""


@dataclass(frozen=True)
class Step(Event):
    """One finished training step (train) or log interval (sft).

    Rank 0 only; metrics are over all ranks.
    """

    kind: ClassVar[str] = "step"
    step: int
    """Steps finished, counted from 1."""
    metrics: dict[str, float]
    """By name; those that console and performance summary read are in `metric_names.py`."""
    timings: dict[str, float]
    """Wall seconds by phase; `rollout/predict` is a part of `rollout`. Phases that are no part of
    another add up to at most `seconds`."""
    seconds: float


@dataclass(frozen=True)
class EvalResult(Event):
    """One evaluation on held-out episodes. Rank 0 only."""

    kind: ClassVar[str] = "eval"
    step: int
    label: str
    """When: `start`, `interval`, `end`, `sft`, `eval`."""
    episodes: int
    success_rate: float
    ci_low: float
    """Lower end of the 95 % Wilson interval."""
    ci_high: float
    """Upper end."""
    per_task: dict[str, float]
    mean_steps: float
    """Mean episode length in env steps."""
    seconds: float


@dataclass(frozen=True)
class CheckpointSaved(Event):
    """A checkpoint or policy directory is complete on disk. Rank 0 only."""

    kind: ClassVar[str] = "checkpoint"
    step: int
    path: str
    seconds: float


@dataclass(frozen=True)
class Warned(Event):
    """Something that does not stop the run but should be looked at; says what to do."""

    kind: ClassVar[str] = "warning"
    code: str
    message: str
    fix: str = ""


@dataclass(frozen=True)
class Finished(Event):
    """The job ended by itself or on a stop request. Rank 0 only."""

    kind: ClassVar[str] = "finished"
    status: str
    """`completed` or `stopped`."""
    step: int
    seconds: float


@dataclass(frozen=True)
class Record:
    """One line of `events.jsonl`: an event, when and by which rank it was written."""

    time: float
    """Seconds since the epoch."""
    rank: int
    event: Event

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of the line."""
        return {"time": self.time, "rank": self.rank, **self.event.to_json()}

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> Record | None:
        """Return the record of a line; None for a kind or a shape that this version can't read."""
        kind = line.get("kind")
        event_class = _CLASSES.get(kind) if isinstance(kind, str) else None
        if event_class is None:
            return None
        known = {f.name: line[f.name] for f in fields(event_class) if f.name in line}
        if not all(
            _fits(known[f.name], str(f.type)) for f in fields(event_class) if f.name in known
        ):
            return None
        try:
            return cls(float(line["time"]), int(line["rank"]), event_class(**known))
        except (KeyError, TypeError, ValueError, OverflowError):
            return None


def _fits(value: Any, annotation: str) -> bool:
    """Say whether a JSON value is what a field holds; readers compute with it unasked."""
    if annotation.startswith("dict["):
        item = annotation.removesuffix("]").split(", ")[1]
        return isinstance(value, dict) and all(_fits(one, item) for one in value.values())
    if annotation == "str":
        return isinstance(value, str)
    if annotation == "bool":
        return isinstance(value, bool)
    if annotation == "int":
        return isinstance(value, int)
    # JSON has no NaN and no infinity; `atomic.plain` writes them as text.
    return isinstance(value, (int, float)) or value in ("nan", "inf", "-inf")


_CLASSES: dict[str, type[Event]] = {
    event_class.kind: event_class
    for event_class in (
        RunStarted,
        Phase,
        Alive,
        Step,
        EvalResult,
        CheckpointSaved,
        Warned,
        Finished,
    )
}
