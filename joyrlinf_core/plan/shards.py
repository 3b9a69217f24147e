"""The shard map: which columns of which rollout rank go to which actor.

Groups are numbered along the rollout ranks, then dealt to the actors in that order, always whole.
So it works for any two numbers of ranks, and is the identity where rollout and actor are the same.
"""

from __future__ import annotations

from joyrlinf_core.plan.run_plan import BatchPlan, Placement, Shard


def deal(groups: int, ranks: int) -> list[range]:
    """Deal groups to ranks: neighbours stay together, shares differ by one group at most."""
    bounds = [index * groups // ranks for index in range(ranks + 1)]
    return [range(bounds[index], bounds[index + 1]) for index in range(ranks)]


def build_shards(placement: Placement, batch: BatchPlan) -> tuple[Shard, ...]:
    """Return the shard map, by actor and column: overlaps of the two dealings."""
    size = batch.group_size
    sources = deal(batch.num_groups, len(placement.rollout_ranks))
    destinations = deal(batch.num_groups, len(placement.actor_ranks))
    shards: list[Shard] = []
    i = j = 0
    while i < len(sources) and j < len(destinations):
        source, destination = sources[i], destinations[j]
        first = max(source.start, destination.start)
        groups = min(source.stop, destination.stop) - first
        if groups > 0:
            shards.append(
                Shard(
                    source=placement.rollout_ranks[i],
                    source_column=(first - source.start) * size,
                    destination=placement.actor_ranks[j],
                    destination_column=(first - destination.start) * size,
                    columns=groups * size,
                    groups=groups,
                )
            )
        if source.stop < destination.stop:
            i += 1
        else:
            j += 1
    return tuple(shards)
