"""What the plan believes of a policy, against real policies and published numbers."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from joyrlinf_core import registry
from joyrlinf_core.config.schema import TensorSpec
from joyrlinf_core.policies.openpi import OpenPiConfig
from joyrlinf_core.policies.openpi.architecture import VARIANTS
from joyrlinf_core.policies.openpi.footprint import count_weights, count_work
from joyrlinf_core.policies.openpi.model import OpenPiModel

KINDS = {
    "pi0, one step": {"variant": "tiny-pi0"},
    "pi0, value head": {"variant": "tiny-pi0", "add_value_head": True, "train_expert_only": True},
    "pi0, joint": {"variant": "tiny-pi0", "joint_logprob": True, "num_steps": 3},
    "pi05, one step": {"variant": "tiny-pi05"},
    "pi05, state as text": {"variant": "tiny-pi05", "discrete_state_input": True},
    "pi05, learned noise": {
        "variant": "tiny-pi05",
        "noise_method": "flow_noise",
        "joint_logprob": True,
        "train_expert_only": True,
    },
}


@pytest.fixture(params=KINDS)
def keys(request):
    return KINDS[request.param]


def specs(tensors):
    return {
        name: TensorSpec(tuple(tensor.shape[1:]), str(tensor.dtype).removeprefix("torch."))
        for name, tensor in tensors.items()
    }


def test_rows_are_what_the_policy_stores(build, env, observe, rng, keys):
    policy = build(**keys)
    footprint = policy.config.footprint(env, gradient_checkpointing=False)
    inputs = policy.prepare(observe(3, tasks=2))
    replay = policy.predict(inputs, policy.draw(rng(), 3), "train").replay
    assert specs(inputs) == dict(footprint.inputs)
    assert specs(replay) == dict(footprint.replay)


def test_weights_are_counted(build, env, keys):
    policy = build(tokenizer="bytes", **keys)
    footprint = policy.config.footprint(env, gradient_checkpointing=False)
    assert footprint.parameters == sum(p.numel() for p in policy.module.parameters())
    assert footprint.trainable == sum(p.numel() for _, p in policy.trainable_parameters())


def test_sharding_unit_is_the_largest(build, env, keys):
    policy = build(tokenizer="bytes", **keys)
    sharding = policy.sharding()
    taken: set[int] = set()
    sizes = []
    for module in (*sharding.units, sharding.root):
        own = {id(p): p.numel() for p in module.parameters() if id(p) not in taken}
        taken |= set(own)
        sizes.append(sum(own.values()))
    footprint = policy.config.footprint(env, gradient_checkpointing=False)
    assert footprint.sharding_unit == max(sizes)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("heads", [False, True])
def test_every_variant_is_counted(variant, heads):
    with torch.device("meta"):
        model = OpenPiModel(VARIANTS[variant], value_head=heads, noise_head=heads)
    weights = count_weights(VARIANTS[variant], value_head=heads, noise_head=heads)
    assert weights.total == sum(p.numel() for p in model.parameters())
    assert weights.vision == sum(p.numel() for p in model.vision.parameters())
    assert weights.expert == sum(p.numel() for p in model.expert.parameters())
    unused = [p for layer in model.vlm.layers for p in layer.unused()]
    assert weights.unused == sum(p.numel() for p in (*unused, *model.vlm.norm.parameters()))


def test_published_sizes():
    pi0 = count_weights(VARIANTS["pi0"], value_head=False, noise_head=False)
    pi05 = count_weights(VARIANTS["pi05"], value_head=False, noise_head=False)
    millions = {
        pi0.vision: 412.44,
        pi0.projector: 2.36,
        pi0.embed: 526.65,
        pi0.vlm: 1981.88,
        pi0.expert: 311.46,
        pi0.total: 3238.0,
        pi05.expert: 427.93,
        pi05.total: 3353.4,
    }
    for counted, published in millions.items():
        assert counted / 1e6 == pytest.approx(published, abs=0.06)


@pytest.mark.parametrize(
    ("cameras", "text", "vision", "prefix", "step"),
    [(3, 200, 0.656, 3.975, 7.7), (2, 40, 0.437, 2.233, 7.1), (1, 30, 0.219, 1.146, 6.7)],
)
def test_work_of_the_full_model(cameras, text, vision, prefix, step):
    work = count_work(VARIANTS["pi05"], cameras=cameras, text=text)
    assert work.vision / 1e12 == pytest.approx(vision, rel=0.01)
    # The table runs all of the last layer; only its keys and values are needed: a 18th less.
    assert work.prefix / 1e12 == pytest.approx(prefix * 17 / 18, rel=0.01)
    assert work.step / 1e9 == pytest.approx(step, rel=0.01)


@pytest.mark.parametrize("family", ["pi0", "pi05"])
def test_flops_are_those_that_torch_counts(build, env, observe, rng, family):
    policy = build(f"tiny-{family}", tokenizer="bytes", discrete_state_input=False)
    inputs = policy.prepare(observe(4))
    draws = policy.draw(rng(), 4)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        policy.predict(inputs, draws, "eval")
    footprint = policy.config.footprint(env, gradient_checkpointing=False)
    assert footprint.predict_flops * 4 == pytest.approx(counter.get_total_flops(), rel=0.05)


@pytest.mark.parametrize("expert_only", [False, True])
def test_flops_of_the_update(build, env, observe, rng, expert_only):
    policy = build(
        "tiny-pi05",
        tokenizer="bytes",
        discrete_state_input=False,
        train_expert_only=expert_only,
        joint_logprob=True,
    )
    inputs = policy.prepare(observe(4))
    replay = policy.predict(inputs, policy.draw(rng(), 4), "train").replay
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        policy.evaluate_actions(inputs, replay).logprobs.sum().backward()
    footprint = policy.config.footprint(env, gradient_checkpointing=False)
    assert footprint.update_flops * 4 == pytest.approx(counter.get_total_flops(), rel=0.12)


def kept_bytes(policy, inputs, replay):
    """Bytes of everything that autograd keeps, weights not counted."""
    weights = {p.untyped_storage().data_ptr() for p in policy.module.parameters()}
    kept: dict[int, int] = {}

    def note(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights and tensor.dtype.is_floating_point:
            kept[storage.data_ptr()] = storage.nbytes()
        held.append(tensor)
        return tensor

    held: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        scores = policy.evaluate_actions(inputs, replay)
    assert scores.logprobs.requires_grad
    return sum(kept.values())


@pytest.mark.parametrize("expert_only", [False, True])
def test_activations_are_about_what_autograd_keeps(build, env, observe, rng, expert_only):
    policy = build(
        "small-pi05",
        tokenizer="bytes",
        discrete_state_input=False,
        train_expert_only=expert_only,
        sizes={"horizon": 8, "patch_size": 8},
    )
    policy.set_precision("bf16")
    rows = 16
    inputs = policy.prepare(observe(rows))
    replay = policy.predict(inputs, policy.draw(rng(), rows), "train").replay
    footprint = policy.config.footprint(env, gradient_checkpointing=False)
    # Copies of weights in bf16 are not of the row: two batch sizes tell them apart.
    half = {name: tensor[: rows // 2] for name, tensor in inputs.items()}
    half_replay = {name: tensor[: rows // 2] for name, tensor in replay.items()}
    more = kept_bytes(policy, inputs, replay) - kept_bytes(policy, half, half_replay)
    assert footprint.activation_bytes == pytest.approx(more / (rows // 2), rel=0.2)


@pytest.mark.parametrize("simulator", ["metaworld", "libero", "maniskill"])
@pytest.mark.parametrize("variant", ["tiny-pi0", "tiny-pi05"])
def test_a_tokenizer_that_is_still_to_be_trained_is_estimated(stats, simulator, variant):
    section = registry.load("envs", simulator)(type=simulator, total_num_envs=8)
    env = SimpleNamespace(
        task_prompts=section.task_prompts, action_dim=3, state_dim=5, image_shape=(1, 32, 32, 3)
    )
    config = OpenPiConfig(variant=variant)
    policy = config.create(env, stats, seed=0)
    real = sum(p.numel() for p in policy.module.parameters())
    footprint = config.footprint(env, gradient_checkpointing=False)
    assert footprint.parameters == pytest.approx(real, rel=0.01)


def test_a_policy_directory_tells_its_own_sizes(build, env, tmp_path):
    policy = build("tiny-pi05", sizes={"horizon": 6})
    policy.save(tmp_path / "policy")
    config = OpenPiConfig(model_path=str(tmp_path / "policy"), num_action_chunks=2)
    footprint = config.footprint(env, gradient_checkpointing=False)
    assert footprint.parameters == sum(p.numel() for p in policy.module.parameters())
    assert config.planned_horizon == 6


def test_horizon_is_planned_where_it_is_known(tmp_path):
    assert OpenPiConfig().planned_horizon == 10
    assert OpenPiConfig(variant="pi0").planned_horizon == 50
    assert OpenPiConfig(architecture={"horizon": 8}).planned_horizon == 8
    elsewhere = str(tmp_path / "elsewhere")
    assert OpenPiConfig(model_path=elsewhere).planned_horizon == 10
    assert not OpenPiConfig(model_path=elsewhere).horizon_is_certain
    assert OpenPiConfig(model_path=elsewhere, architecture={"horizon": 8}).horizon_is_certain
    assert OpenPiConfig().horizon_is_certain
    assert OpenPiConfig(model_path=elsewhere, architecture={"horizon": 8}).planned_horizon == 8


def test_entropy_needs_learned_noise():
    assert not OpenPiConfig().has_entropy
    assert OpenPiConfig(noise_method="flow_noise").has_entropy


def test_checkpointing_trades_memory_for_work(env):
    config = OpenPiConfig(variant="pi05", model_path="elsewhere")
    env = SimpleNamespace(**{**vars(env), "image_shape": (2, 224, 224, 3)})
    plain, again = (config.footprint(env, gradient_checkpointing=on) for on in (False, True))
    assert again.update_flops == pytest.approx(plain.update_flops * 4 / 3)
    assert again.activation_bytes < plain.activation_bytes / 2
    assert replace(again, update_flops=0, activation_bytes=0) == replace(
        plain, update_flops=0, activation_bytes=0
    )
