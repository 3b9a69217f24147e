"""What every policy family must do, whatever its architecture."""

from __future__ import annotations

import inspect
import subprocess
import sys
import typing

import pytest
import torch

from joyrlinf_core import registry
from joyrlinf_core.config.help_texts import help_texts
from joyrlinf_core.config.schema import ModelConfig
from joyrlinf_core.policies.base import Policy

TINY = {
    "openpi": {"variant": "tiny-pi0", "architecture": {"horizon": 4}, "num_action_chunks": 2},
}
"""Keys that make a family small; a new family adds a line."""

FAMILIES = registry.names("policies")
RUNNING = [n for n in FAMILIES if not registry.load("policies", n).missing_runtime]


@pytest.fixture(params=RUNNING)
def config(request):
    assert request.param in TINY, f"add a tiny config of {request.param} to TINY"
    return registry.load("policies", request.param)(model_type=request.param, **TINY[request.param])


@pytest.fixture
def policy(config, env, stats):
    return config.create(env, stats, seed=3)


def test_families_are_found():
    assert "openpi" in RUNNING


@pytest.mark.parametrize("name", FAMILIES)
def test_config_class(name):
    cls = registry.load("policies", name)
    assert issubclass(cls, ModelConfig)
    assert typing.get_args(cls.model_fields["model_type"].annotation) == (name,)
    assert not [key for key, text in help_texts(cls).items() if not text]


def test_config_import_needs_no_torch():
    code = (
        "import sys; from joyrlinf_core import registry\n"
        "for name in registry.names('policies'): registry.load('policies', name)\n"
        "heavy = {'torch', 'transformers', 'sentencepiece', 'mujoco', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_protocol_members_exist(policy):
    members = {
        name
        for name, value in vars(Policy).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
    }
    assert members >= {"predict", "evaluate_actions", "module", "save"}
    missing = [
        name for name in members | {"config", "ratio_tolerance"} if not hasattr(policy, name)
    ]
    assert not missing
    for name in members:
        expected = getattr(Policy, name)
        if inspect.isfunction(expected):
            given = inspect.signature(getattr(type(policy), name)).parameters
            assert list(given) == list(inspect.signature(expected).parameters)


def test_shapes_and_types(policy, config, env, observe, rng):
    b, chunk, d = 5, config.num_action_chunks, env.action_dim
    observation = observe(b, tasks=2)
    inputs = policy.prepare(observation)
    assert all(tensor.shape[0] == b for tensor in inputs.values())
    assert torch.equal(inputs["images"], observation.images)
    draws = policy.draw(rng(), b)
    for mode in ("train", "eval"):
        output = policy.predict(inputs, draws, mode)
        assert output.actions.shape == output.logprobs.shape == (b, chunk, d)
        assert output.actions.dtype == output.logprobs.dtype == torch.float32
        assert not output.logprobs.requires_grad
    assert not output.logprobs.any()
    replay = policy.predict(inputs, draws, "train").replay
    assert all(tensor.shape[0] == b for tensor in replay.values())
    scores = policy.evaluate_actions(inputs, replay)
    assert scores.logprobs.shape == (b, chunk, d)
    assert scores.logprobs.requires_grad


def test_recomputed_logprobs_equal_those_of_the_rollout(policy, observe, rng):
    inputs = policy.prepare(observe(6, tasks=2))
    output = policy.predict(inputs, policy.draw(rng(), 6), "train")
    again = policy.evaluate_actions(inputs, output.replay).logprobs
    torch.testing.assert_close(again, output.logprobs, atol=1e-5, rtol=0)
    ratio = (again - output.logprobs).sum(dim=(1, 2)).exp()
    assert (ratio - 1).abs().max() < policy.ratio_tolerance


def test_rows_do_not_depend_on_their_batch(policy, observe, rng):
    inputs, draws = policy.prepare(observe(6, tasks=2)), policy.draw(rng(), 6)
    whole = policy.predict(inputs, draws, "train")
    rows = slice(2, 4)
    part = policy.predict(
        {name: tensor[rows] for name, tensor in inputs.items()},
        {name: tensor[rows] for name, tensor in draws.items()},
        "train",
    )
    torch.testing.assert_close(part.actions, whole.actions[rows], atol=1e-5, rtol=0)
    torch.testing.assert_close(part.logprobs, whole.logprobs[rows], atol=1e-5, rtol=0)


def test_draws_are_a_function_of_the_generator(policy, rng):
    first, second = policy.draw(rng(5), 4), policy.draw(rng(5), 4)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert all(tensor.shape[0] == 4 for tensor in first.values())


def test_seed_makes_the_weights(config, env, stats):
    state = torch.random.get_rng_state()
    one, two, other = (config.create(env, stats, seed=seed).module for seed in (1, 1, 2))
    assert torch.equal(state, torch.random.get_rng_state())
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, two.state_dict()[name]), name
    assert any(
        not torch.equal(tensor, other.state_dict()[name])
        for name, tensor in one.state_dict().items()
    )


def test_gradients_reach_the_trainable_parameters_and_no_others(policy, observe, rng):
    b, horizon = 4, policy.horizon
    inputs = policy.prepare(observe(b))
    actions = torch.randn((b, horizon, 3), generator=rng())
    valid = torch.ones((b, horizon), dtype=torch.bool)
    policy.sft_loss(inputs, actions, valid, rng(1)).backward()
    replay = policy.predict(inputs, policy.draw(rng(), b), "train").replay
    policy.evaluate_actions(inputs, replay).logprobs.sum().backward()
    trainable = dict(policy.trainable_parameters())
    assert trainable
    for name, parameter in policy.module.named_parameters():
        if name in trainable:
            assert parameter.grad is not None, name
            assert torch.isfinite(parameter.grad).all(), name
        else:
            assert parameter.grad is None, name
            assert not parameter.requires_grad, name


def test_directory_round_trip(policy, config, observe, rng, tmp_path):
    directory = tmp_path / "policy"
    policy.save(directory)
    assert config.check_directory(directory) == []
    loaded = config.load(directory)
    mine = policy.module.state_dict()
    for name, tensor in loaded.module.state_dict().items():
        assert torch.equal(tensor, mine[name]), name
    assert len(mine) == len(loaded.module.state_dict())
    inputs, draws = policy.prepare(observe(3)), policy.draw(rng(), 3)
    again = loaded.predict(loaded.prepare(observe(3)), draws, "train")
    assert torch.equal(again.actions, policy.predict(inputs, draws, "train").actions)
    names = {name for name, _ in policy.trainable_parameters()}
    assert names == {name for name, _ in loaded.trainable_parameters()}


def test_sharding_names_modules_and_methods_of_the_policy(policy):
    modules = set(policy.module.modules())
    sharding = policy.sharding()
    assert sharding.units
    assert set(sharding.units) < set(sharding.root.modules()) <= modules
    assert sharding.root not in sharding.units
    weights = {id(p) for p in policy.module.parameters()}
    assert {id(p) for p in sharding.root.parameters()} == weights
    for module, name in sharding.forward_methods:
        assert module in (*sharding.units, sharding.root)
        assert callable(getattr(module, name))
