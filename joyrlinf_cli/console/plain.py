"""One line per step; for files, pipes and CI."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from joyrlinf_cli.console import figures
from joyrlinf_cli.console.totals import total_steps
from joyrlinf_core.observability.events import (
    CheckpointSaved,
    EvalResult,
    Event,
    Phase,
    Record,
    Step,
    Warned,
)
from joyrlinf_core.observability.reader import read_history
from joyrlinf_core.observability.run_dir import RunDir
from joyrlinf_core.plan.run_plan import RunPlan

REMINDER_SECONDS = 30.0
"""A phase that takes longer than this shows that it is alive, as often."""

QUIET_PHASES = frozenset({"rollout", "update", "save", "wait_for_batch", "wait_for_weights"})
"""Phases of every step; their start is not worth a line."""


class PlainConsole:
    """Writes lines.

    Args:
        plan: The plan.
        run_dir: The run directory; steps before a resume count for the remaining time.
        stream: Where to.
        clock: Seconds.
    """

    def __init__(
        self,
        plan: RunPlan,
        run_dir: RunDir,
        stream: TextIO,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._stream = stream
        self._clock = clock
        self._history = read_history(run_dir.events)
        self._phase: tuple[str, float] = ("start", clock())
        self._last_line = clock()
        self._say(f"{plan.job}: run directory {run_dir.root}")
        self._say(f"{plan.job}: {figures.PHASE_TEXT['start']} ({plan.placement.world_size})")

    def on_record(self, record: Record) -> None:
        """Write what is worth a line."""
        self._history.add(record)
        event = record.event
        if isinstance(event, Phase):
            if record.rank == self._plan.placement.metrics_rank:
                self._enter(event)
        elif line := self._line(event):
            self._say(line)

    def on_notice(self, text: str) -> None:
        """Write a message of the launcher."""
        self._say(text)

    def on_tick(self) -> None:
        """Remind of a long phase."""
        now = self._clock()
        if now - self._last_line < REMINDER_SECONDS:
            return
        name, since = self._phase
        text = figures.PHASE_TEXT.get(name, name)
        done, total = figures.progress(self._history)
        progress = f" {done}/{total}" if total else ""
        self._say(f"{self._plan.job}: still {text}{progress}, {figures.duration(now - since)}")

    def close(self) -> None:
        """Nothing stays open."""

    def _enter(self, phase: Phase) -> None:
        if phase.phase == self._phase[0]:
            return
        self._phase = (phase.phase, self._clock())
        if phase.phase not in QUIET_PHASES and phase.phase != "start":
            text = figures.PHASE_TEXT.get(phase.phase, phase.phase)
            amount = f" ({phase.total})" if phase.total else ""
            self._say(f"{self._plan.job}: {text}{amount}")

    def _line(self, event: Event) -> str:
        if isinstance(event, Step):
            return self._step_line(event)
        if isinstance(event, EvalResult):
            text = f"{figures.evaluation_name(event.label)}: success {figures.evaluation(event)}"
            if len(event.per_task) > 1:
                text += "".join(f"\n  {name}: {rate:.3f}" for name, rate in event.per_task.items())
            return text
        if isinstance(event, CheckpointSaved):
            return f"saved {event.path} in {figures.duration(event.seconds)}"
        if isinstance(event, Warned):
            fix = f"\n  fix: {event.fix}" if event.fix else ""
            return f"warning[{event.code}]: {event.message}{fix}"
        return ""

    def _step_line(self, step: Step) -> str:
        total = total_steps(self._plan, self._history)
        shown = [
            f"{short} {figures.number(step.metrics[name])}"
            for name, short in figures.SHOWN_METRICS.items()
            if name in step.metrics
        ]
        left = figures.eta(self._history, total)
        tail = [f"{step.seconds:.1f} s", *([f"eta {left}"] if left else [])]
        return "  ".join([f"{self._plan.job} {step.step}/{total}", *shown, *tail])

    def _say(self, line: str) -> None:
        self._last_line = self._clock()
        self._stream.write(line + "\n")
        self._stream.flush()
