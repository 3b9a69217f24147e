import pytest

from joyrlinf_core.config.schema.footprint import Footprint
from joyrlinf_core.plan.batching import build_batch
from joyrlinf_core.plan.build import assemble
from joyrlinf_core.plan.memory import is_sharded, predict_rows
from joyrlinf_core.plan.placement import resolve_placement

SIZED = {"actor.model.model_type": "tests.doubles.sized:SizedModel"}
MILLION = 1_000_000


def plan_of(make_config, overrides=None):
    """Plans without the rules, so that every mode can be looked at."""
    config = make_config({**SIZED, **(overrides or {})})
    placement = resolve_placement(config.cluster)
    return assemble("train", {}, config, placement, build_batch(config, placement, "train"))


def items(group):
    return {(item.role, item.name, item.when): item.nbytes for item in group.items}


def test_one_rank_in_fp32(make_config):
    """A million weights, all trained: 4 + 4 + 8 bytes each; 32 rows of 10 kB, in fp32 twice."""
    memory = plan_of(make_config).memory
    (group,) = memory.ranks
    assert (memory.parameters, memory.trainable, memory.strategy) == (MILLION, MILLION, "ddp")
    assert items(group) == {
        ("rollout", "predict", "predict"): 80 * 2 * 1000,
        ("actor", "trained weights", "always"): 4 * MILLION,
        ("actor", "gradients", "always"): 4 * MILLION,
        ("actor", "optimizer state", "always"): 8 * MILLION,
        ("actor", "activations", "update"): 32 * 2 * 10_000,
        ("actor", "optimizer step", "step"): 4 * MILLION,
        # 8 chunk steps x 80 columns x (252 bytes stored, 406 own) + 8 of each.
        ("rollout", "rollout storage", "always"): 80 * (8 * (252 + 406) + 8),
    }
    assert group.resident == 16 * MILLION
    assert group.peak == 20 * MILLION  # the optimizer step takes more than 640 kB of activations


def test_bf16_halves_working_memory_and_frozen_weights(make_config):
    plan = plan_of(
        make_config,
        {
            "actor.precision": "bf16",
            "actor.model.train_expert_only": True,
            "actor.model.row": 10**5,
        },
    )
    (group,) = plan.memory.ranks
    found = items(group)
    assert found["actor", "frozen weights", "always"] == 2 * 900_000
    assert found["actor", "trained weights", "always"] == 4 * 100_000
    assert found["actor", "bf16 copy", "update"] == 2 * 100_000
    assert found["rollout", "bf16 copy", "predict"] == 2 * 100_000
    assert found["actor", "activations", "update"] == 32 * 10**6
    assert group.resident == 1_800_000 + 16 * 100_000
    assert group.peak == group.resident + 32 * 10**6 + 200_000


def test_checkpointing_reaches_the_footprint(make_config):
    plain = plan_of(make_config).memory.ranks[0]
    less = plan_of(make_config, {"actor.gradient_checkpointing": True}).memory.ranks[0]
    key = ("actor", "activations", "update")
    assert items(plain)[key] == 10 * items(less)[key]


def test_fsdp2_spreads_what_an_actor_holds(make_config):
    plan = plan_of(
        make_config,
        {
            "cluster.component_placement": {"env,rollout,actor": "0-1"},
            "actor.fsdp.strategy": "fsdp2",
            "actor.precision": "bf16",
            "actor.model.train_expert_only": True,
        },
    )
    (group,) = plan.memory.ranks
    assert group.ranks == (0, 1)
    found = items(group)
    assert found["actor", "frozen weights", "always"] == 900_000
    assert found["actor", "trained weights", "always"] == 200_000
    assert found["actor", "optimizer state", "always"] == 400_000
    assert found["actor", "gathered units", "update"] == 2 * 50_000 * 4
    assert found["rollout", "gathered units", "predict"] == 2 * 50_000 * 4
    assert found["actor", "bf16 copy", "update"] == 200_000  # autocast keeps it whole


def test_separate_ranks_hold_what_their_roles_need(make_config):
    plan = plan_of(
        make_config,
        {"cluster.component_placement": {"env,rollout": "0-1", "actor": "2"}},
    )
    acting, training = plan.memory.ranks
    assert (acting.ranks, acting.roles) == ((0, 1), ("env", "rollout"))
    assert (training.ranks, training.roles) == ((2,), ("actor",))
    assert items(acting)["rollout", "rollout copy", "always"] == 4 * MILLION
    assert acting.resident == 4 * MILLION
    assert acting.peak == 4 * MILLION + 40 * 2000
    assert training.resident == 16 * MILLION
    assert not any(role == "rollout" for role, _, _ in items(training))
    assert training.host == 2 * acting.host  # 40 columns of each rollout rank arrive


def test_a_rank_that_only_simulates_has_no_policy(make_config):
    plan = plan_of(make_config, {"cluster.component_placement": {"env": "0", "rollout,actor": "1"}})
    simulating, other = plan.memory.ranks
    assert (simulating.items, simulating.peak, simulating.host) == ((), 0, 0)
    assert other.roles == ("rollout", "actor")
    assert ("rollout", "rollout copy", "always") not in items(other)


def test_unknown_sizes_are_unknown(make_config):
    config = make_config()
    placement = resolve_placement(config.cluster)
    plan = assemble("train", {}, config, placement, build_batch(config, placement, "train"))
    assert plan.memory is None
    assert plan.traffic.column_bytes is None
    assert plan.traffic.trajectory_bytes == plan.traffic.weight_bytes_all == 0


@pytest.mark.parametrize(
    ("overrides", "rows"),
    [
        ({}, 80),
        ({"env.train.infer_micro_batch_size": 16}, 16),
        ({"actor.model.predict_micro_batch_size": 4, "env.train.infer_micro_batch_size": 16}, 4),
        ({"rollout.pipeline_stage_num": 5}, 16),
        ({"env.eval.total_num_envs": 400}, 80),
        ({"env.eval.total_num_envs": 400, "runner.eval_at_end": True}, 400),
        ({"cluster.component_placement": {"env,rollout": "0-1", "actor": "2"}}, 40),
    ],
)
def test_rows_of_one_predict_call(make_config, overrides, rows):
    config = make_config({**SIZED, **overrides})
    assert predict_rows(config, resolve_placement(config.cluster)) == rows


@pytest.mark.parametrize(
    ("strategy", "actors", "trainable", "sharded"),
    [
        ("auto", 2, 101, True),
        ("auto", 2, 100, False),
        ("auto", 1, 101, False),
        ("ddp", 2, 101, False),
        ("fsdp2", 2, 1, True),
        ("fsdp2", 1, 101, False),
    ],
)
def test_who_shards(make_config, strategy, actors, trainable, sharded):
    """The same answer as the learner gives."""
    config = make_config({"actor.fsdp.strategy": strategy, "actor.fsdp.shard_above_params": 100})
    footprint = Footprint(200, trainable, 10, {})
    assert is_sharded(config, actors, footprint) is sharded


def test_auto_is_not_guessed_without_sizes(make_config):
    assert is_sharded(make_config(), 2, None) is False
