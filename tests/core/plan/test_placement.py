import pytest
from hypothesis import given
from hypothesis import strategies as st

from joyrlinf_core.config.schema import ClusterConfig
from joyrlinf_core.plan.placement import (
    RankSyntaxError,
    as_ranges,
    idle_ranks,
    parse_ranks,
    resolve_placement,
)


@pytest.mark.parametrize(
    ("value", "ranks"),
    [
        ("all", None),
        (0, (0,)),
        (6, (6,)),
        ("3", (3,)),
        ("0-3", (0, 1, 2, 3)),
        ("0-3,6", (0, 1, 2, 3, 6)),
        (" 6 , 0 - 1 ", (0, 1, 6)),
        ("2-2", (2,)),
    ],
)
def test_parse_ranks(value, ranks):
    assert parse_ranks(value) == ranks


@pytest.mark.parametrize(
    "value",
    ["", "a", "3-0", "0-", "-1", -1, "0,,1", "0,0", "0-3,2", "0:3", "1.5", "9" * 12, "0-99999"],
)
def test_unreadable_ranks(value):
    with pytest.raises(RankSyntaxError):
        parse_ranks(value)


@given(st.sets(st.integers(0, 40), min_size=1))
def test_any_list_of_ranks_reads_back(ranks):
    assert parse_ranks(",".join(str(rank) for rank in ranks)) == tuple(sorted(ranks))


def place(placement, **cluster):
    return resolve_placement(ClusterConfig(component_placement=placement, **cluster))


def test_ranks_per_node_are_inferred_on_one_node():
    found = place({"env,rollout,actor": "0-7"})
    assert (found.world_size, found.ranks_per_node, found.ranks_per_node_inferred) == (8, 8, True)
    assert found.mode == "colocated"
    assert found.env_ranks == tuple(range(8))


def test_all_takes_the_whole_cluster():
    found = place({"env,rollout,actor": "all"}, num_nodes=2, gpus_per_node=4)
    assert (found.world_size, found.ranks_per_node_inferred) == (8, False)
    assert found.actor_ranks == tuple(range(8))


def test_all_beside_numbered_ranks_is_inferred():
    found = place({"env,rollout": "0-3", "actor": "all"})
    assert found.actor_ranks == (0, 1, 2, 3)


def test_local_ranks_repeat_on_every_node():
    found = place(
        {"env,rollout": "0-1", "actor": "2-3"},
        num_nodes=2, gpus_per_node=4, placement_basis="per_node",
    )  # fmt: skip
    assert found.env_ranks == found.rollout_ranks == (0, 1, 4, 5)
    assert found.actor_ranks == (2, 3, 6, 7)


@pytest.mark.parametrize(
    ("placement", "mode"),
    [
        ({"env,rollout,actor": "0-1"}, "colocated"),
        ({"env,rollout": "0-3", "actor": "4-7"}, "disaggregated"),
        ({"env": "0", "rollout": "1", "actor": "0-1"}, "hybrid"),
        ({"env,rollout": "0", "actor": "0-1"}, "hybrid"),
        ({"env": "0", "rollout": "1", "actor": "2"}, "split"),
        ({"env": "0", "rollout,actor": "1"}, "split"),
    ],
)
def test_modes(placement, mode):
    assert place(placement).mode == mode


@pytest.mark.parametrize(
    ("placement", "cluster"),
    [
        ({"env,rollout": 0}, {}),
        ({"env,rollout,actor,env": 0}, {}),
        ({"env,rollout,actr": 0}, {}),
        ({"env,rollout,actor": "0-3"}, {"gpus_per_node": 2}),
        ({"env,rollout,actor": "1"}, {}),
        ({"env,rollout,actor": "0-1"}, {"num_nodes": 2}),
        ({"env,rollout,actor": "0-1"}, {"placement_basis": "per_node"}),
        ({"env,rollout,actor": "all"}, {}),
        ({"env,rollout,actor": "x"}, {}),
        ({}, {}),
    ],
)
def test_what_can_not_be_placed(placement, cluster):
    assert place(placement, **cluster) is None


def test_idle_ranks():
    cluster = ClusterConfig(component_placement={"env,rollout,actor": "1,3"}, gpus_per_node=5)
    assert idle_ranks(cluster) == (0, 2, 4)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [((), ""), ((3,), "3"), ((0, 1, 2, 3, 6), "0-3,6"), ((0, 2, 3, 8, 9), "0,2-3,8-9")],
)
def test_as_ranges(numbers, text):
    assert as_ranges(numbers) == text
