"""`Links`: the process groups of this rank, as the engine uses them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from joyrlinf_core.comm.collectives import Collectives
from joyrlinf_core.comm.groups import make_groups

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from joyrlinf_core.comm.groups import GroupName
    from joyrlinf_core.engine.context import JobContext

GROUP_TIMEOUT = timedelta(days=7)
"""Ranks of different roles wait for one another as long as a rollout, an update or an evaluation
takes; a dead rank is noticed by the launcher, not by this."""


class Links:
    """Makes every group of a training run; called on all ranks.

    Attributes:
        world: All ranks; the metrics rank is its main one.
        rollout: The rollout ranks; of no meaning on others.
        actor: The actors, whose first one is their main one; of no meaning on others.

    Args:
        context: This worker.
    """

    def __init__(self, context: JobContext) -> None:
        place = context.plan.placement
        self._groups: dict[GroupName, ProcessGroup] = {}
        if context.world_size > 1:
            cuda = context.device.type == "cuda"
            self._groups = make_groups(
                context.plan,
                device_backend="cpu:gloo,cuda:nccl" if cuda else "gloo",
                cpu_backend="gloo",
                timeout=GROUP_TIMEOUT,
                on_gpus=cuda,
            )
        self.world = Collectives(main=place.metrics_rank)
        self.rollout = Collectives(self._groups.get("rollout"))
        self.actor = Collectives(self._groups.get("actor"))

    def get(self, name: GroupName) -> ProcessGroup | None:
        """Return a group; None where this rank is not in it, or the plan needs none."""
        return self._groups.get(name)
