import dataclasses

import pytest
import torch

from joyrlinf_core.batch.rollout import RolloutBatch
from joyrlinf_core.config.schema.footprint import DTYPE_BYTES, Footprint, TensorSpec
from joyrlinf_core.plan.batching import build_batch
from joyrlinf_core.plan.build import assemble
from joyrlinf_core.plan.placement import resolve_placement
from joyrlinf_core.plan.traffic import column_bytes, weight_receivers

SIZED = {"actor.model.model_type": "tests.doubles.sized:SizedModel"}


def plan_of(make_config, placement, **overrides):
    config = make_config({**SIZED, "cluster.component_placement": placement, **overrides})
    where = resolve_placement(config.cluster)
    return assemble("train", {}, config, where, build_batch(config, where, "train"))


@pytest.mark.parametrize("values", [True, False])
def test_a_column_has_the_bytes_of_a_real_rollout_batch(make_config, values):
    config = make_config({"actor.model.add_value_head": values})
    placement = resolve_placement(config.cluster)
    plan = build_batch(config, placement, "train")
    t, b, c, d = plan.t_eff, 3, plan.chunk_size, plan.action_dim
    specs = {
        "images": TensorSpec((2, 4, 4, 3), "uint8"),
        "tokens": TensorSpec((6,), "int64"),
        "chain": TensorSpec((5, 8), "bfloat16"),
    }
    stored = {
        name: torch.zeros(t, b, *spec.shape, dtype=getattr(torch, spec.dtype))
        for name, spec in specs.items()
    }
    chain = {"chain": stored.pop("chain")}
    real = RolloutBatch(
        inputs=stored,
        replay=chain,
        actions=torch.zeros(t, b, c, d),
        rewards=torch.zeros(t, b, c),
        dones=torch.zeros(t, b, c, dtype=torch.bool),
        terminations=torch.zeros(t, b, c, dtype=torch.bool),
        prev_logprobs=torch.zeros(t, b, c, d),
        played=torch.zeros(t, b, dtype=torch.bool),
        episode=torch.zeros(t, b, dtype=torch.int64),
        group=torch.zeros(b, dtype=torch.int64),
        task=torch.zeros(t, b, dtype=torch.int64),
        success=torch.zeros(t, b, dtype=torch.bool),
        versions=torch.zeros(t, b, dtype=torch.int64),
        prev_values=torch.zeros(t, b) if values else None,
        next_values=torch.zeros(t, b) if values else None,
    )
    tensors = [*real.inputs.values(), *real.replay.values()]
    for field in dataclasses.fields(real):
        value = getattr(real, field.name)
        tensors += [value] if isinstance(value, torch.Tensor) else []
    held = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    inputs = {name: specs[name] for name in stored}
    footprint = Footprint(1, 1, 1, inputs, {"chain": specs["chain"]})
    assert b * column_bytes(config, plan, footprint) == held


def test_element_sizes_are_those_of_torch():
    for name, size in DTYPE_BYTES.items():
        assert torch.zeros(1, dtype=getattr(torch, name)).element_size() == size


def test_nothing_is_sent_in_process(make_config):
    traffic = plan_of(make_config, {"env,rollout,actor": "0-1"}).traffic
    assert traffic.trajectories == ()
    assert traffic.trajectory_bytes == traffic.trajectory_bytes_between_nodes == 0
    assert (traffic.weight_receivers, traffic.weight_bytes, traffic.weight_bytes_all) == ((), 0, 0)


def test_three_rollouts_two_actors(make_config):
    plan = plan_of(
        make_config,
        {"env,rollout": "0-2", "actor": "3-4"},
        **{"env.train.total_num_envs": 96, "actor.model.train_expert_only": True},
    )
    traffic = plan.traffic
    # One row: a picture 8x8x3, 3 + 10 floats, a step number; 40 actions and log-probs of 4 bytes
    # each; 10 rewards, dones, terminations; 2 flags; 3 numbers. 8 rows, and the group's number.
    row = 192 + 12 + 40 + 8 + 2 * 160 + 40 + 20 + 2 + 24
    assert traffic.column_bytes == 8 * row + 8
    told = [(pair.source, pair.destination, pair.nbytes) for pair in traffic.trajectories]
    assert told == [
        (source, destination, columns * traffic.column_bytes)
        for source, destination, columns in [(0, 3, 32), (1, 3, 16), (1, 4, 16), (2, 4, 32)]
    ]
    assert traffic.trajectory_bytes == 96 * traffic.column_bytes
    assert traffic.weight_receivers == (0, 1, 2)
    assert traffic.weight_bytes == 4 * 100_000
    assert traffic.weight_bytes_all == 3 * 4 * 100_000


def test_weights_are_sent_in_the_precision_of_the_rollout(make_config):
    traffic = plan_of(
        make_config, {"env,rollout": "0", "actor": "1"}, **{"actor.precision": "bf16"}
    ).traffic
    assert traffic.weight_bytes == 2 * 1_000_000


def test_bytes_between_nodes(make_config):
    nodes = {"cluster.num_nodes": 2, "cluster.gpus_per_node": 2}
    across = plan_of(make_config, {"env,rollout": "0-1", "actor": "2-3"}, **nodes).traffic
    assert across.trajectory_bytes_between_nodes == across.trajectory_bytes > 0
    within = plan_of(
        make_config,
        {"env,rollout": "0", "actor": "1"},
        **nodes,
        **{"cluster.placement_basis": "per_node"},
    ).traffic
    assert within.trajectory_bytes == across.trajectory_bytes
    assert within.trajectory_bytes_between_nodes == 0


def test_who_gets_weights(make_config):
    placement = plan_of(make_config, {"env": "0", "rollout": "1", "actor": "0-1"}).placement
    assert weight_receivers(placement, sharded=False) == ()
    assert weight_receivers(placement, sharded=True) == (1,)
    same = plan_of(make_config, {"env,rollout,actor": "0-1"}).placement
    assert weight_receivers(same, sharded=True) == ()


def test_what_is_sent_without_known_sizes_is_unknown(make_config):
    traffic = plan_of(
        make_config,
        {"env,rollout": "0", "actor": "1"},
        **{"actor.model.model_type": "tests.doubles.toy:ToyModel"},
    ).traffic
    assert traffic.trajectories is None
    assert traffic.trajectory_bytes is traffic.weight_bytes is traffic.weight_bytes_all is None
    assert traffic.weight_receivers == (0,)
