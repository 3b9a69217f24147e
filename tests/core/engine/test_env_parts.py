from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from joyrlinf_core.engine.env_parts import (
    deal_parts,
    deal_workers,
    evaluation_parts,
    part_configs,
    training_parts,
)
from joyrlinf_core.plan.run_plan import RankPlan
from tests.core.engine.three_ranks import TWO_ACT, TWO_SIMULATE, UNEVEN, make_plan


def rank_table(bounds: list[int], roles: Any = ("env",)) -> list[RankPlan]:
    """Returns env ranks 0, 1, ... with the envs between two bounds each, and one that has none."""
    ranks = [
        RankPlan(
            rank=rank,
            node=0,
            local_rank=rank,
            device=rank,
            roles=roles,
            first_env=bounds[rank],
            envs=bounds[rank + 1] - bounds[rank],
            groups=1,
        )
        for rank in range(len(bounds) - 1)
    ]
    idle = ranks[0].model_copy(update={"rank": len(ranks), "first_env": 0, "envs": 0})
    return [*ranks, idle]


def even(num_envs: int, ranks: int) -> list[int]:
    return [rank * num_envs // ranks for rank in range(ranks + 1)]


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("rollout_ranks", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("env_ranks", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("num_envs", [24, 60, 47])
def test_every_env_is_in_one_part(
    num_envs: int, env_ranks: int, rollout_ranks: int, stages: int
) -> None:
    clients = list(range(100, 100 + rollout_ranks))
    table = rank_table(even(num_envs, env_ranks))
    parts = deal_parts(num_envs, stages, clients, table)
    stage_ends = even(num_envs, rollout_ranks * stages)
    served: Counter[int] = Counter()
    acted: Counter[int] = Counter()
    for part in parts:
        number = clients.index(part.client) * stages + part.stage
        start = stage_ends[number]
        for slot in part.slots:
            env = start + slot
            assert env < stage_ends[number + 1]
            server = table[part.server]
            assert server.first_env <= env < server.first_env + server.envs
            served[env] += 1
            acted[number] += 1
    assert served == Counter(range(num_envs))
    assert [acted[n] for n in range(rollout_ranks * stages)] == [
        stop - start for start, stop in pairwise(stage_ends)
    ]


def test_env_ranks_may_have_different_numbers_of_envs() -> None:
    parts = deal_parts(12, 2, [7], rank_table([0, 1, 8, 12]))
    assert [(part.stage, part.server, part.slots) for part in parts] == [
        (0, 0, range(1)),
        (0, 1, range(1, 6)),
        (1, 1, range(2)),
        (1, 2, range(2, 6)),
    ]


@pytest.mark.parametrize("placement", [TWO_SIMULATE, TWO_ACT, UNEVEN])
@pytest.mark.parametrize("stages", [1, 2])
def test_a_pair_of_ranks_never_uses_a_line_twice(placement: dict[str, str], stages: int) -> None:
    plan = make_plan(placement, rollout__pipeline_stage_num=stages)
    parts = training_parts(plan) + evaluation_parts(plan)
    lines = Counter((part.client, part.server, part.line) for part in parts)
    assert set(lines.values()) == {1}


@pytest.mark.parametrize(
    ("placement", "total", "expected"),
    [
        (TWO_SIMULATE, 4, [range(2), range(2, 4)]),
        (TWO_ACT, 6, [range(3), range(3)]),
        (UNEVEN, 6, [range(2), range(2, 4), range(4, 6)]),
    ],
)
def test_evaluation_deals_its_own_number_of_envs_alike(
    placement: dict[str, str], total: int, expected: list[range]
) -> None:
    plan = make_plan(placement, env__eval__total_num_envs=total)
    assert [part.slots for part in evaluation_parts(plan)] == expected


def test_a_stage_with_fewer_evaluation_envs_than_env_ranks_leaves_some_out() -> None:
    plan = make_plan(TWO_SIMULATE)
    config = plan.config
    few = config.env.train.model_copy(update={"total_num_envs": 1})
    env = config.env.model_copy(update={"eval": few})
    plan = plan.model_copy(update={"config": config.model_copy(update={"env": env})})
    assert [(part.server, part.slots) for part in evaluation_parts(plan)] == [(1, range(1))]


@pytest.mark.parametrize(
    ("workers", "sizes", "dealt"),
    [
        (0, [4, 4], [0, 0]),
        (1, [4, 4, 4], [1, 1, 1]),
        (4, [8, 4, 4], [2, 1, 1]),
        (6, [8, 4], [4, 2]),
        (9, [2, 3], [2, 3]),
        (5, [12], [5]),
        (3, [], []),
    ],
)
def test_processes_go_where_most_envs_are(workers: int, sizes: list[int], dealt: list[int]) -> None:
    assert deal_workers(workers, sizes) == dealt


def test_parts_share_the_processes_of_all_stages_of_a_rank() -> None:
    plan = make_plan(UNEVEN, rollout__pipeline_stage_num=2, env__train__num_workers=3)
    config, parts = plan.config.env.train, training_parts(plan)
    workers: dict[int, list[int]] = {}
    for server in range(3):
        built = part_configs(plan, config, parts, server).values()
        workers[server] = [how.config.num_workers for how in built]
    # Rank 1 has two parts of 2 envs: a process each env is all that can work.
    assert workers == {0: [4], 1: [2, 2], 2: [4]}
