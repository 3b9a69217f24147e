"""The process groups of a run, derived from its placement."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

import torch.distributed as dist

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from joyrlinf_core.plan.run_plan import RunPlan

GroupName = Literal["env", "rollout", "actor", "observations", "trajectories", "weights", "scalars"]


@dataclass(frozen=True)
class GroupSpec:
    """One process group.

    Attributes:
        name: What it is for: the ranks of a role, or what travels in it.
        ranks: Global ranks, ascending.
        on_device: Whether it moves tensors of the device; else those of the CPU alone.
    """

    name: GroupName
    ranks: tuple[int, ...]
    on_device: bool


def group_specs(plan: RunPlan) -> tuple[GroupSpec, ...]:
    """Return the groups that a run needs, in the order in which every rank makes them.

    Beside the roles, each kind of traffic between different processes has a group of its own, so
    that threads which send at the same time do not mix up their messages. What stays in a process
    has none.

    Args:
        plan: The plan.
    """
    place = plan.placement
    env, rollout, actor = place.env_ranks, place.rollout_ranks, place.actor_ranks
    specs = [
        GroupSpec("env", env, on_device=False),
        GroupSpec("rollout", rollout, on_device=True),
        GroupSpec("actor", actor, on_device=True),
    ]
    if env != rollout:
        specs.append(GroupSpec("observations", _union(env, rollout), on_device=True))
    if not all(shard.in_process for shard in plan.shards):
        specs.append(GroupSpec("trajectories", _union(rollout, actor), on_device=True))
    if plan.traffic.weight_receivers:
        ranks = _union(actor[:1], plan.traffic.weight_receivers)
        specs.append(GroupSpec("weights", ranks, on_device=True))
    if rollout[0] != actor[0]:
        # Metrics of the rollout travel to the rank that writes them, the first actor.
        specs.append(GroupSpec("scalars", _union(rollout[:1], actor[:1]), on_device=False))
    return tuple(specs)


def make_groups(
    plan: RunPlan, *, device_backend: str, cpu_backend: str, timeout: timedelta
) -> dict[GroupName, ProcessGroup]:
    """Make every group and return those that this rank is in; called on all ranks.

    Args:
        plan: The plan.
        device_backend: Backend of groups that move tensors of the device.
        cpu_backend: Backend of the others.
        timeout: Of their collectives.
    """
    own: dict[GroupName, ProcessGroup] = {}
    for spec in group_specs(plan):
        backend = device_backend if spec.on_device else cpu_backend
        group = dist.new_group(list(spec.ranks), backend=backend, timeout=timeout)
        # Ranks outside get a placeholder.
        if isinstance(group, dist.ProcessGroup):
            own[spec.name] = group
    return own


def _union(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*first, *second}))
