"""Rules and the search for fixes stay quick whatever the numbers are: a typing error is no hang."""

import time

import pytest

from joyrlinf_core.plan.batching import BatchShape, nearest
from joyrlinf_core.plan.build import check_loaded

PLACEMENT = "cluster.component_placement"
EVERY_RANK = {PLACEMENT: {"env,rollout,actor": "0-65535"}, "env.eval": None}
EVENS = ",".join(str(rank) for rank in range(0, 65536, 2))
ODDS = ",".join(str(rank) for rank in range(1, 65536, 2))

HUGE = [
    {**EVERY_RANK, "env.train.total_num_envs": 65536 * 80, "actor.micro_batch_size": 7},
    {**EVERY_RANK, "env.train.total_num_envs": 1_000_000},
    {
        PLACEMENT: {"env": "0-9999", "rollout": "10000-39999", "actor": "40000-65535"},
        "env.train.total_num_envs": 999_999_937,
    },
    {PLACEMENT: {"env,rollout": "0-29999", "actor": "30001-65535"}},
    {PLACEMENT: {"env,rollout,actor": EVENS}},
    {PLACEMENT: {"env,rollout": EVENS, "actor": ODDS}},
    {
        "cluster.num_nodes": 1024,
        "cluster.gpus_per_node": 256,
        "cluster.placement_basis": "per_node",
        PLACEMENT: {"env,rollout": "0-99", "actor": "100-254"},
    },
    {"env.train.total_num_envs": 2**63 - 1, "actor.micro_batch_size": 999_983},
    {
        "env.train.total_num_envs": 1_000_003 * 80,
        "actor.micro_batch_size": 99_991,
        "actor.gradient_accumulation_steps": 7919,
    },
    {"env.train.total_num_envs": 3 * 10**12, "env.train.infer_micro_batch_size": 700_000_001},
    {
        "runner.save_interval": 999_999_999_989,
        "runner.val_check_interval": 999_999_999_961,
    },
    {"actor.model.num_action_chunks": 2_000_000_000},
]


@pytest.mark.parametrize("overrides", HUGE, ids=range(len(HUGE)))
def test_findings_come_at_once(load_toy, overrides):
    loaded = load_toy(overrides)
    start = time.process_time()
    found = check_loaded(loaded)
    assert time.process_time() - start < 3.0, "0.7 s at most on one slow core"
    assert any(finding.severity in ("error", "warning") for finding in found)
    for finding in found:
        assert len(finding.message) < 500


def test_envs_for_many_ranks_are_found_far_away():
    shape = BatchShape(
        num_envs=1_000_000, env_ranks=65_536, rollout_ranks=65_536, actor_ranks=65_536, stages=1,
        group_size=1, chunk_size=10, steps_per_epoch=60, max_episode_steps=60, auto_reset=False,
        rollout_epochs=1, micro_batch_size=1, gradient_accumulation_steps=1,
    )  # fmt: skip
    assert nearest(shape, "num_envs", "JR101") == (15 * 65_536, 16 * 65_536)
