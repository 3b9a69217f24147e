"""Entry of every job that a worker runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from joyrlinf_core.engine.stopping import JobStopped
from joyrlinf_core.observability.events import Finished

if TYPE_CHECKING:
    from joyrlinf_core.engine.context import JobContext


def run_job(context: JobContext) -> str:
    """Run the plan's job on this rank.

    Returns:
        `completed`, or `stopped` when it ended early on request: training with a checkpoint if it
        made a step, SFT without a policy, an evaluation without a result.
    """
    started = time.perf_counter()
    try:
        return _run(context)
    except JobStopped:
        if context.rank == context.plan.placement.metrics_rank:
            seconds = time.perf_counter() - started
            context.emitter.emit(Finished(status="stopped", step=0, seconds=seconds))
        return "stopped"


def _run(context: JobContext) -> str:
    if context.plan.job == "sft":
        from joyrlinf_core.engine.sft import SftJob

        return SftJob(context).run()
    if context.plan.job == "eval":
        from joyrlinf_core.engine.eval_job import EvalJob

        return EvalJob(context).run()
    if context.plan.config.algorithm.pipeline_mode == "async":
        from joyrlinf_core.engine.async_runner import AsyncRunner

        return AsyncRunner(context).run()
    from joyrlinf_core.engine.sync_runner import SyncRunner

    return SyncRunner(context).run()
