import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joyrlinf_core.plan.run_plan import BatchPlan, Placement
from joyrlinf_core.plan.shards import build_shards, deal


def placement(rollout, actor):
    ranks = {*rollout, *actor}
    return Placement(
        mode="hybrid", world_size=max(ranks) + 1, num_nodes=1, ranks_per_node=max(ranks) + 1,
        ranks_per_node_inferred=True, env_ranks=rollout, rollout_ranks=rollout, actor_ranks=actor,
    )  # fmt: skip


def batch(groups, size):
    numbers = dict.fromkeys(BatchPlan.model_fields, 1)
    return BatchPlan(
        **{**numbers, "num_envs": groups * size, "num_groups": groups, "group_size": size}
    )


def told(shards):
    return [
        (s.source, s.source_column, s.destination, s.destination_column, s.columns) for s in shards
    ]


def test_three_rollouts_feed_two_actors():
    shards = build_shards(placement((0, 1, 2), (3, 4)), batch(12, 8))
    # 12 groups: 4 on each rollout rank, 6 for each actor; rank 1 splits after two of its groups.
    assert told(shards) == [
        (0, 0, 3, 0, 32),
        (1, 0, 3, 32, 16),
        (1, 16, 4, 0, 16),
        (2, 0, 4, 16, 32),
    ]
    assert [shard.groups for shard in shards] == [4, 2, 2, 4]


def test_one_rollout_feeds_every_actor():
    shards = build_shards(placement((0,), (0, 1, 2)), batch(6, 4))
    assert told(shards) == [(0, 0, 0, 0, 8), (0, 8, 1, 0, 8), (0, 16, 2, 0, 8)]
    assert [shard.in_process for shard in shards] == [True, False, False]


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_colocated_ranks_keep_their_columns(ranks):
    every = tuple(range(ranks))
    shards = build_shards(placement(every, every), batch(10, 2))
    assert told(shards) == [(rank, 0, rank, 0, 20 // ranks) for rank in every]
    assert all(shard.in_process for shard in shards)


RANKS = st.sets(st.integers(0, 12), min_size=1, max_size=7).map(lambda s: tuple(sorted(s)))


@settings(max_examples=300, deadline=None)
@given(RANKS, RANKS, st.integers(1, 40), st.integers(1, 5))
def test_every_column_is_dealt_once_and_in_whole_groups(rollout, actor, groups, size):
    """Plays the dealing env by env: both sides count off the same envs in the same order."""
    envs = [group * size + member for group in range(groups) for member in range(size)]
    held, wanted = {}, {}
    for table, ranks in ((held, rollout), (wanted, actor)):
        shares = deal(groups, len(ranks))
        for rank, share in zip(ranks, shares, strict=True):
            table[rank] = [env for env in envs if env // size in share]
        assert [env for rank in ranks for env in table[rank]] == envs
        sizes = [len(share) for share in shares]
        assert max(sizes) - min(sizes) <= 1

    received = {rank: [None] * len(wanted[rank]) for rank in actor}
    for shard in build_shards(placement(rollout, actor), batch(groups, size)):
        columns = held[shard.source][shard.source_column : shard.source_column + shard.columns]
        assert len(columns) == shard.columns == shard.groups * size > 0
        for offset, env in enumerate(columns):
            column = shard.destination_column + offset
            assert received[shard.destination][column] is None
            received[shard.destination][column] = env
        assert len({env // size for env in columns}) == shard.groups
    assert received == wanted


def test_the_map_grows_with_ranks_not_with_envs():
    everyone = tuple(range(2000))
    shards = build_shards(placement(everyone, (0, 1, 2)), batch(10**15, 10**3))
    assert len(shards) == 2002
    assert sum(shard.columns for shard in shards) == 10**18
