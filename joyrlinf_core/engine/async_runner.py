"""`AsyncRunner`: rollout and update at the same time, on ranks of their own."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from joyrlinf_core.engine.async_actor import AsyncActor
from joyrlinf_core.engine.async_rollout import AsyncRollout
from joyrlinf_core.engine.links import Links
from joyrlinf_core.engine.vec_envs import serve_vec_envs

if TYPE_CHECKING:
    from joyrlinf_core.engine.context import JobContext


class AsyncRunner:
    """One RL run on all ranks.

    Args:
        context: This worker.
    """

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._links = Links(context)
        roles = context.plan.ranks[context.rank].roles
        self._actor = self._rollout = None
        with ExitStack() as opened:
            serve_vec_envs(context, self._links, opened)
            if "actor" in roles:
                self._actor = AsyncActor(context, self._links)
            if "rollout" in roles:
                self._rollout = AsyncRollout(context, self._links, opened)
            # Had anything above failed, they would be closed now; `run` closes them instead.
            self._simulators = opened.pop_all()

    def run(self) -> str:
        """Play this rank's roles to the end; return how the run ended, as far as it is known here.

        Actors decide when it ends.
        """
        actor, rollout = self._actor, self._rollout
        own = None if actor is None else [actor.step, actor.next_episode]
        place = self._context.plan.placement
        step, next_episode = self._links.world.gather_json(own)[place.metrics_rank]
        with self._simulators:
            if actor is not None:
                return actor.run()
            if rollout is not None:
                rollout.run(step, next_episode)
        return "completed"
