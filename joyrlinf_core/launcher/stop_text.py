"""What a stop request will do to a job, in words, from the events it has written so far."""

from __future__ import annotations

from joyrlinf_core.observability.events import CheckpointSaved, Phase, Record, RunStarted
from joyrlinf_core.plan.run_plan import Job

STEP_PHASES = frozenset({"rollout", "wait_for_batch", "update", "save"})
"""Phases in which a training step is being made."""


class JobProgress:
    """How far one launch has come.

    Args:
        job: Job of the plan.
        rank: Rank that speaks for all.
    """

    def __init__(self, job: Job, rank: int = 0) -> None:
        self._job = job
        self._rank = rank
        self._started: RunStarted | None = None
        self._phase = Phase("start", 0)
        self._saved_step = 0

    @property
    def started(self) -> bool:
        """Whether the workers are up; before that nothing can be lost."""
        return self._started is not None

    def add(self, record: Record) -> None:
        """Take one event of this launch."""
        event = record.event
        if isinstance(event, RunStarted):
            self._started, self._saved_step = event, event.start_step
            self._phase = Phase("start", event.start_step)
        elif isinstance(event, Phase) and record.rank == self._rank:
            self._phase = event
        elif isinstance(event, CheckpointSaved):
            self._saved_step = event.step

    def stop_text(self) -> str:
        """Say what the workers do about a stop request that comes now."""
        if self._started is None:
            return "stopping; nothing was started yet"
        if self._job == "train":
            return self._of_training()
        evaluates_policy = self._phase.phase == "eval" and self._phase.step > 0
        if self._job == "sft" and evaluates_policy and self._at_last_step(self._started):
            return "stopping the evaluation; the policy is kept"
        return "stopping; nothing to save"

    def _of_training(self) -> str:
        if self._phase.phase in STEP_PHASES:
            return "finishing the step, then saving"
        if self._phase.step != self._saved_step:
            return "stopping the evaluation, then saving"
        if self._saved_step:
            return f"stopping; step {self._saved_step} is saved already"
        return "stopping; no step was made, nothing to save"

    def _at_last_step(self, started: RunStarted) -> bool:
        return self._phase.step >= started.total_steps
