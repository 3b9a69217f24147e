"""Entry of every job that a worker runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from joyrlinf_core.engine.context import JobContext


def run_job(context: JobContext) -> str:
    """Run the plan's job on this rank.

    Returns:
        `completed`, or `stopped` when it ended early on request: training with a checkpoint, SFT
        with its demonstrations but no policy.
    """
    if context.plan.job == "sft":
        from joyrlinf_core.engine.sft import SftJob

        return SftJob(context).run()
    if context.plan.job == "eval":
        from joyrlinf_core.engine.eval_job import EvalJob

        return EvalJob(context).run()
    from joyrlinf_core.engine.sync_runner import SyncRunner

    return SyncRunner(context).run()
