"""`ActorRole`: what an actor rank owns: learner, checkpoints, and the way of weights to others."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from joyrlinf_core.batch.rollout import RolloutBatch
from joyrlinf_core.checkpoint.manager import CheckpointManager, fitting
from joyrlinf_core.checkpoint.manifest import config_hash
from joyrlinf_core.comm.weights.channel import WeightHeader
from joyrlinf_core.comm.weights.sender import WeightSender
from joyrlinf_core.engine.learner import Learner
from joyrlinf_core.errors import RunFailedError
from joyrlinf_core.observability.events import CheckpointSaved, Warned
from joyrlinf_core.profiler.ranges import annotate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from joyrlinf_core.batch.metrics import Metric
    from joyrlinf_core.engine.context import JobContext
    from joyrlinf_core.engine.links import Links
    from joyrlinf_core.observability.timers import PhaseTimer
    from joyrlinf_core.policies.base import Policy


class ActorRole:
    """One actor.

    Attributes:
        learner: Learns.
        sender: Sends weights; None where all act with the actors' own.

    Args:
        context: This worker.
        policy: The policy that learns.
        links: Process groups.
        timer: Wall times by phase.
    """

    def __init__(
        self, context: JobContext, policy: Policy, links: Links, timer: PhaseTimer
    ) -> None:
        self._context = context
        self._collectives = links.actor
        self.learner = Learner(context, policy, links.actor, timer)
        place, receivers = context.plan.placement, context.plan.traffic.weight_receivers
        borrowing = set(place.rollout_ranks) - set(receivers)
        if self.sharded and borrowing and borrowing != set(place.actor_ranks):
            raise RunFailedError(
                "actors shard this policy, but only some of them act with it",
                fix="set actor.fsdp.strategy: ddp, or give rollout and actor ranks of their own",
            )
        self.sender: WeightSender | None = None
        if receivers:
            self.sender = WeightSender(
                policy,
                links.get("weights"),
                place.actor_ranks[0],
                context.device,
                sharded=self.sharded,
            )
        self._checkpoints = CheckpointManager(
            context.run_dir.checkpoints,
            keep=context.plan.config.runner.keep_checkpoints,
            plan=context.plan,
        )

    @property
    def sharded(self) -> bool:
        """Whether every actor holds a part of the weights only."""
        return self.learner.sharded

    def update(self, tensors: Mapping[str, Tensor], step: int) -> dict[str, Metric]:
        """Train on one rollout; see `Learner.update`."""
        return self.learner.update(RolloutBatch.from_tensors(tensors), step)

    def stage(self, header: WeightHeader) -> None:
        """Copy the weights for those who act with their own; called on all actors.

        Waits until the copy before is sent.
        """
        if self.sender is not None:
            with annotate("weights"):
                self.sender.stage(header)

    def send(self) -> None:
        """Send what was staged; the actors go on meanwhile if another thread calls this."""
        if self.sender is not None:
            self.sender.send()

    def save(self, step: int, progress: Mapping[str, int | float]) -> None:
        """Write a checkpoint; called on all actors."""
        started = time.perf_counter()
        with annotate("save"):
            state = self.learner.state()
            if self._collectives.is_main:
                path = self._checkpoints.save(step, state, progress)
                seconds = time.perf_counter() - started
                self._context.emitter.emit(
                    CheckpointSaved(step=step, path=str(path), seconds=seconds)
                )

    def restore(self, directory: Path) -> tuple[int, dict[str, float]]:
        """Continue from a checkpoint; random streams are named by step and need no state.

        Returns:
            Its step, and where the run stood.
        """
        checkpoint = self._checkpoints.load(directory)
        known = checkpoint.meta.config_hash == config_hash(self._context.plan.config)
        if not known and self._collectives.is_main:
            self._context.emitter.emit(
                Warned(
                    code="JR603",
                    message=f"{directory} was written under another config",
                    fix="look at what `joyrl resume` lists as different; the new values are used",
                )
            )
        with fitting(directory):
            self.learner.load(checkpoint)
        progress = {name: float(str(value)) for name, value in checkpoint.progress.items()}
        return checkpoint.step, progress
