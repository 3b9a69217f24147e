"""The process groups of a run, derived from its placement."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

import torch.distributed as dist

from joyrlinf_core.plan.weight_sync import on_one_gpu, weights_over_nccl

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from joyrlinf_core.plan.run_plan import RunPlan

GroupName = Literal[
    "rollout", "actor", "observations", "trajectories", "weights", "reports", "scalars"
]


@dataclass(frozen=True)
class GroupSpec:
    """One process group.

    Attributes:
        name: What it is for: the ranks of a role, or what travels in it.
        ranks: Global ranks, ascending.
        on_device: Whether it moves tensors of the device too; else those of the CPU alone.
    """

    name: GroupName
    ranks: tuple[int, ...]
    on_device: bool


def group_specs(plan: RunPlan, *, on_gpus: bool = True) -> tuple[GroupSpec, ...]:
    """Return the groups that a run needs, in the order in which every rank makes them.

    Beside the roles, each kind of traffic between different processes has a group of its own, so
    that threads which send at the same time do not mix up their messages. What stays in a process
    has none.

    Args:
        plan: The plan.
        on_gpus: Whether policies run on GPUs.
    """
    place, config = plan.placement, plan.config
    env, rollout, actor = place.env_ranks, place.rollout_ranks, place.actor_ranks
    specs = [
        GroupSpec("rollout", rollout, on_device=False),
        GroupSpec("actor", actor, on_device=True),
    ]
    if env != rollout:
        specs.append(GroupSpec("observations", _union(env, rollout), on_device=False))
    if not all(shard.in_process for shard in plan.shards):
        ranks = _union(rollout, actor)
        # NCCL refuses a group in which two ranks share a GPU.
        apart = on_one_gpu(place, {*ranks}, mps=config.launcher.mps) is None
        specs.append(GroupSpec("trajectories", ranks, on_device=apart))
    if plan.traffic.weight_receivers:
        ranks = _union(actor[:1], plan.traffic.weight_receivers)
        over_nccl = weights_over_nccl(plan, on_gpus=on_gpus)
        specs.append(GroupSpec("weights", ranks, on_device=over_nccl))
    if config.algorithm.pipeline_mode == "async":
        # Evaluations use `rollout` at the same time.
        specs.append(GroupSpec("reports", rollout, on_device=False))
        specs.append(GroupSpec("scalars", _union(rollout[:1], actor[:1]), on_device=False))
    return tuple(specs)


def make_groups(
    plan: RunPlan,
    *,
    device_backend: str,
    cpu_backend: str,
    timeout: timedelta,
    on_gpus: bool = True,
) -> dict[GroupName, ProcessGroup]:
    """Make every group and return those that this rank is in; called on all ranks.

    Args:
        plan: The plan.
        device_backend: Backend of groups that move tensors of the device and of the CPU.
        cpu_backend: Backend of the others.
        timeout: Of their collectives.
        on_gpus: Whether policies run on GPUs.
    """
    own: dict[GroupName, ProcessGroup] = {}
    for spec in group_specs(plan, on_gpus=on_gpus):
        backend = device_backend if spec.on_device else cpu_backend
        group = dist.new_group(list(spec.ranks), backend=backend, timeout=timeout)
        # Ranks outside get a placeholder.
        if isinstance(group, dist.ProcessGroup):
            own[spec.name] = group
    return own


def _union(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*first, *second}))
