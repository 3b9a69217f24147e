"""`RolloutRole`: what a rollout rank owns: envs, rollout, evaluator, and weights of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from joyrlinf_core.comm.weights.receiver import WeightReceiver
from joyrlinf_core.engine.evaluator import Evaluator
from joyrlinf_core.engine.rollout import Rollout
from joyrlinf_core.engine.vec_envs import can_share, open_vec_envs
from joyrlinf_core.plan.batching import evaluation_is_on

if TYPE_CHECKING:
    from contextlib import ExitStack

    from joyrlinf_core.engine.actor_role import ActorRole
    from joyrlinf_core.engine.context import JobContext
    from joyrlinf_core.engine.links import Links
    from joyrlinf_core.observability.timers import PhaseTimer
    from joyrlinf_core.policies.base import Policy


class RolloutRole:
    """One rank that acts.

    Attributes:
        rollout: Plays training episodes.
        evaluator: Plays held-out episodes; None where evaluation is off.
        receiver: Weights from the actors; None where this rank acts with an actor's copy.

    Args:
        context: This worker.
        policy: The policy that acts.
        links: Process groups.
        timer: Wall times by phase.
        opened: Closes the envs.
        actor: This rank's other role, if it has that one too.
    """

    def __init__(
        self,
        context: JobContext,
        policy: Policy,
        links: Links,
        timer: PhaseTimer,
        opened: ExitStack,
        actor: ActorRole | None = None,
    ) -> None:
        config, place = context.plan.config, context.plan.placement
        self.receiver: WeightReceiver | None = None
        if context.rank in context.plan.traffic.weight_receivers:
            group, source = links.get("weights"), place.actor_ranks[0]
            assert group is not None, "receivers are in the group of the weights"
            sender = actor.sender if actor is not None and context.rank == source else None
            self.receiver = WeightReceiver(
                policy,
                group,
                source,
                context.device,
                sender=sender,
            )
        policy.module.to(context.device).eval()
        # Shards of the weights are gathered per call, so every rank has to make the same calls.
        lockstep = actor is not None and actor.sharded and self.receiver is None
        train_envs = open_vec_envs(context, links, opened)
        self.rollout = Rollout(context, policy, train_envs, timer, lockstep=lockstep)
        self.evaluator: Evaluator | None = None
        if evaluation_is_on(config):
            envs = train_envs
            if not can_share(config.env.train, config.eval_env):
                envs = open_vec_envs(context, links, opened, evaluation=True)
            self.evaluator = Evaluator(context, policy, envs, links.rollout, lockstep=lockstep)
