from __future__ import annotations

from datetime import timedelta

import pytest
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from joyrlinf_core.comm.groups import group_specs, make_groups
from joyrlinf_core.config.loader import load_config
from joyrlinf_core.config.schema import Config
from joyrlinf_core.plan.build import build_plan

WORLD = 16


def plan_of(placement):
    """Returns the plan of 2 nodes x 8 GPUs; local ranks repeat on both."""
    config = Config.model_validate(
        {
            "cluster": {
                "num_nodes": 2,
                "gpus_per_node": 8,
                "placement_basis": "per_node",
                "component_placement": placement,
            },
            "algorithm": {"group_size": 8},
            "env": {
                "train": {
                    "type": "tests.doubles.toy:ToyEnv",
                    "total_num_envs": 384,
                    "max_episode_steps": 80,
                }
            },
            "actor": {
                "micro_batch_size": 32,
                "model": {
                    "model_type": "tests.doubles.sized:SizedModel",
                    "num_action_chunks": 10,
                    "model_path": "policy",
                },
            },
        }
    )
    return build_plan(config, None)


PLACEMENTS = {
    "colocated": {"env,rollout,actor": "0-7"},
    "disaggregated": {"env,rollout": "0-5", "actor": "6-7"},
    "hybrid": {"env": "0-3", "rollout": "4-7", "actor": "0-7"},
    "split": {"env": "0-3", "rollout": "4-5", "actor": "6-7"},
}


def test_groups_of_two_nodes_with_actors_on_ranks_of_their_own():
    told = {spec.name: spec.ranks for spec in group_specs(plan_of(PLACEMENTS["disaggregated"]))}
    acting = (0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13)
    assert told == {
        "rollout": acting,
        "actor": (6, 7, 14, 15),
        "trajectories": tuple(range(16)),
        "weights": (0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13),
    }


def test_async_ranks_report_beside_evaluations():
    plan = build_plan(load_config("maniskill-pi05-async").config, None)
    told = {spec.name: spec.ranks for spec in group_specs(plan)}
    assert told["reports"] == told["rollout"] == (0, 1, 2, 3)
    assert told["scalars"] == (0, 4)


def test_what_stays_in_a_process_has_no_group():
    names = [spec.name for spec in group_specs(plan_of(PLACEMENTS["colocated"]))]
    assert names == ["rollout", "actor"]


def test_a_hybrid_rank_acts_with_its_own_copy_of_the_weights():
    told = {spec.name: spec.ranks for spec in group_specs(plan_of(PLACEMENTS["hybrid"]))}
    assert "weights" not in told
    assert told["observations"] == told["actor"] == tuple(range(16))


@pytest.fixture
def as_rank():
    """Returns a function that makes this process one rank of a world that does not exist."""

    def join(rank):
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=WORLD)

    assert not dist.is_initialized()
    yield join
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.parametrize("name", [*PLACEMENTS, "maniskill-pi05-async-2node"])
def test_every_rank_of_two_nodes_makes_its_groups(name, as_rank):
    if name in PLACEMENTS:
        plan = plan_of(PLACEMENTS[name])
        assert plan.placement.mode == name
    else:
        plan = build_plan(load_config(name).config, None)
    assert (plan.placement.num_nodes, plan.placement.world_size) == (2, WORLD)
    specs = group_specs(plan)
    members = {spec.name: [] for spec in specs}
    for rank in range(WORLD):
        as_rank(rank)
        groups = make_groups(
            plan, device_backend="fake", cpu_backend="fake", timeout=timedelta(seconds=5)
        )
        assert set(groups) == {spec.name for spec in specs if rank in spec.ranks}
        roles = plan.ranks[rank].roles
        assert {"rollout", "actor"} & set(groups) == set(roles) - {"env"}
        for spec in specs:
            if rank not in spec.ranks:
                continue
            group = groups[spec.name]
            assert dist.get_process_group_ranks(group) == list(spec.ranks)
            assert dist.get_rank(group) == spec.ranks.index(rank)
            members[spec.name].append(rank)
        dist.destroy_process_group()
    assert members == {spec.name: list(spec.ranks) for spec in specs}


@pytest.mark.parametrize("mode", PLACEMENTS)
def test_who_sends_to_whom_shares_a_group(mode):
    plan = plan_of(PLACEMENTS[mode])
    told = {spec.name: set(spec.ranks) for spec in group_specs(plan)}
    for shard in plan.shards:
        if not shard.in_process:
            assert {shard.source, shard.destination} <= told["trajectories"]
    for receiver in plan.traffic.weight_receivers:
        assert receiver in told["weights"]
        assert plan.placement.actor_ranks[0] in told["weights"]
