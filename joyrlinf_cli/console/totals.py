"""How long a job is."""

from __future__ import annotations

from joyrlinf_core.observability.reader import History
from joyrlinf_core.plan.run_plan import RunPlan


def total_steps(plan: RunPlan, history: History) -> int:
    """Return the steps of the whole job: as the workers announced it, else as planned."""
    if history.started is not None:
        return history.started.total_steps
    if plan.job == "train":
        return plan.config.runner.max_steps
    if plan.job == "sft" and plan.config.sft is not None:
        return plan.config.sft.steps
    return plan.batch.eval_episodes
