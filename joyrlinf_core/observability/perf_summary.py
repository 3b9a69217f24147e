"""`perf_summary.json`: throughput, where the time goes, evaluations; rewritten after each step."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any

from joyrlinf_core.observability import metric_names as names
from joyrlinf_core.observability.atomic import write_json
from joyrlinf_core.observability.events import Alive, Phase, Record, RunStarted, Step
from joyrlinf_core.observability.reader import History, read_history
from joyrlinf_core.observability.run_dir import RunDir
from joyrlinf_core.observability.timers import phases

WINDOW = 20
"""Steps of the moving figures."""

STEP_PHASES = frozenset({"rollout", "update"})
"""The first of these ends the start-up."""


@dataclass
class _Sums:
    """Sums over some steps."""

    steps: int = 0
    seconds: float = 0.0
    counts: dict[str, float] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)

    def add(self, step: Step) -> None:
        self.steps += 1
        self.seconds += step.seconds
        for name in (names.ENV_STEPS, names.SAMPLES):
            self.counts[name] = self.counts.get(name, 0.0) + step.metrics.get(name, 0.0)
        for name, seconds in step.timings.items():
            self.phases[name] = self.phases.get(name, 0.0) + seconds
        rest = max(0.0, step.seconds - sum(phases(step.timings).values()))
        self.phases["other"] = self.phases.get("other", 0.0) + rest

    def rate(self, name: str) -> float:
        return self.counts.get(name, 0.0) / self.seconds if self.seconds else 0.0

    def seconds_per_step(self, phase: str) -> float:
        return self.phases.get(phase, 0.0) / self.steps if self.steps else 0.0

    def share(self, phase: str) -> float:
        return self.phases.get(phase, 0.0) / self.seconds if self.seconds else 0.0


class PerfSummary:
    """Sink that keeps `perf_summary.json` up to date.

    Args:
        run_dir: The run directory. Events of earlier processes of this run count too.
        launched_at: When the launcher started the workers, seconds since the epoch; None where
            there was no launcher.
    """

    def __init__(self, run_dir: RunDir, *, launched_at: float | None = None) -> None:
        self._run_dir = run_dir
        self._history = History()
        self._run = _Sums()
        self._recent: deque[Step] = deque(maxlen=WINDOW)
        self._startup: dict[str, float] = {}
        self._startup_phase: tuple[str, float] | None = None
        if launched_at is not None:
            self._startup_phase = ("processes", launched_at)
        self._starting = True

    def write(self, record: Record) -> None:
        """Take one event; rewrites the file unless it is a heartbeat."""
        event = record.event
        if isinstance(event, RunStarted) and event.start_step > 0:
            self._continue_earlier_run()
        self._history.add(record)
        self._measure_startup(record)
        if isinstance(event, Step):
            self._count(event)
        if not isinstance(event, Phase | Alive):
            write_json(self._run_dir.perf_summary, self.document())

    def close(self) -> None:
        """Nothing stays open."""

    def document(self) -> dict[str, Any]:
        """Return the summary as JSON values."""
        history, started = self._history, self._history.started
        recent = _Sums()
        for step in self._recent:
            recent.add(step)
        both = {"run": self._run, f"last_{WINDOW}": recent}
        saves = history.checkpoints
        return {
            "schema": 1,
            "status": history.finished.status if history.finished else "in_progress",
            "job": started.job if started else None,
            "world_size": started.world_size if started else None,
            "steps": max(history.steps, default=started.start_step if started else 0),
            "total_steps": started.total_steps if started else None,
            "wall_seconds": (history.last_time or 0.0) - (history.first_time or 0.0),
            "startup_seconds": self._startup,
            "step_seconds": {k: s.seconds / s.steps if s.steps else 0.0 for k, s in both.items()},
            "env_steps_per_second": {k: s.rate(names.ENV_STEPS) for k, s in both.items()},
            "samples_per_second": {k: s.rate(names.SAMPLES) for k, s in both.items()},
            "phases": {
                phase: {
                    "total_seconds": total,
                    "seconds_per_step": {k: s.seconds_per_step(phase) for k, s in both.items()},
                    "share": {k: s.share(phase) for k, s in both.items()},
                }
                for phase, total in sorted(self._run.phases.items(), key=lambda item: -item[1])
            },
            "evals": [asdict(result) for result in history.evals],
            "checkpoints": {
                "saved": len(saves),
                "total_seconds": sum(save.seconds for save in saves),
                "last": saves[-1].path if saves else None,
            },
            "warnings": len(history.warnings),
        }

    def _continue_earlier_run(self) -> None:
        # The RunStarted of this process is in the file already, so replaced steps are gone.
        self._history = read_history(self._run_dir.events)
        for number in sorted(self._history.steps):
            self._count(self._history.steps[number])

    def _count(self, step: Step) -> None:
        self._run.add(step)
        self._recent.append(step)

    def _measure_startup(self, record: Record) -> None:
        event = record.event
        if not self._starting or not isinstance(event, (Phase, Step)):
            return
        name = event.phase if isinstance(event, Phase) else ""
        if self._startup_phase is not None and self._startup_phase[0] == name:
            return
        if self._startup_phase is not None:
            last, since = self._startup_phase
            self._startup[last] = self._startup.get(last, 0.0) + record.time - since
        self._startup_phase = (name, record.time)
        self._starting = not (isinstance(event, Step) or name in STEP_PHASES)
