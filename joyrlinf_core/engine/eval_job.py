"""The `eval` job: success of a policy directory or a checkpoint on held-out episodes."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from joyrlinf_core.checkpoint.manager import fitting, load_model_state
from joyrlinf_core.comm.collectives import Collectives
from joyrlinf_core.engine.evaluator import Evaluator
from joyrlinf_core.engine.vec_envs import build_vec_envs
from joyrlinf_core.observability.events import Finished, RunStarted

if TYPE_CHECKING:
    from joyrlinf_core.engine.context import JobContext


class EvalJob:
    """One evaluation.

    Args:
        context: This worker. `plan.args["policy"]` is a policy directory.
            `plan.args["checkpoint"]`, if present, is a `global_step_<N>` directory whose weights
            replace the policy's.
    """

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._collectives = Collectives()

    def run(self) -> str:
        """Evaluate and emit one `eval` event.

        Raises:
            JobStopped: A stop was asked for.
        """
        context, args = self._context, self._context.plan.args
        context.emitter.phase("load", 0)
        policy = context.plan.config.actor.model.load(Path(args["policy"]))
        step = 0
        if "checkpoint" in args:
            step, state = load_model_state(Path(args["checkpoint"]))
            with fitting(Path(args["checkpoint"])):
                policy.module.load_state_dict(state)
        policy.set_precision(context.plan.config.actor.precision)
        policy.module.to(context.device).eval()
        context.emitter.phase("simulators", 0)
        with ExitStack() as opened:
            envs = build_vec_envs(context, context.plan.config.eval_env, opened)
            total = context.plan.batch.eval_episodes
            if self._collectives.is_main:
                context.emitter.emit(self._announcement(step, total))
            result = Evaluator(context, policy, envs, self._collectives).run(step, "eval")
        if self._collectives.is_main:
            context.emitter.emit(result)
            context.emitter.emit(Finished(status="completed", step=step, seconds=result.seconds))
        return "completed"

    def _announcement(self, step: int, total: int) -> RunStarted:
        context = self._context
        return RunStarted(
            job="eval",
            run_dir=str(context.run_dir.root),
            world_size=self._collectives.world_size,
            start_step=step,
            total_steps=total,
            facts={"simulator": context.plan.config.eval_env.check_ready()},
        )
