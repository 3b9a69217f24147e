"""The rank table: which process runs where, plays which roles and simulates which envs."""

from __future__ import annotations

from joyrlinf_core.config.schema import Config
from joyrlinf_core.plan.run_plan import BatchPlan, Placement, RankPlan, Role


def build_ranks(config: Config, placement: Placement, batch: BatchPlan) -> tuple[RankPlan, ...]:
    """Return every process, by global rank; env ranks take the envs in order."""
    playing: dict[Role, tuple[int, ...]] = {
        "env": placement.env_ranks,
        "rollout": placement.rollout_ranks,
        "actor": placement.actor_ranks,
    }
    roles: list[list[Role]] = [[] for _ in range(placement.world_size)]
    for role, ranks in playing.items():
        for rank in ranks:
            roles[rank].append(role)
    first = {rank: index * batch.envs_per_rank for index, rank in enumerate(placement.env_ranks)}
    return tuple(
        RankPlan(
            rank=rank,
            node=placement.node_of(rank),
            local_rank=rank % placement.ranks_per_node,
            device=device_of(placement, rank, mps=config.launcher.mps),
            roles=tuple(roles[rank]),
            first_env=first.get(rank, 0),
            envs=batch.envs_per_rank if rank in first else 0,
            groups=batch.envs_per_rank // batch.group_size if rank in first else 0,
        )
        for rank in range(placement.world_size)
    )


def device_of(placement: Placement, rank: int, *, mps: bool) -> int:
    """Return the number of a rank's GPU within its node; with MPS two ranks share each."""
    per_node = placement.ranks_per_node
    devices = per_node // 2 if mps and per_node > 1 else per_node
    return rank % per_node % devices
