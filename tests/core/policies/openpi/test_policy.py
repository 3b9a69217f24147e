from __future__ import annotations

import math

import pytest
import torch

from joyrlinf_core.policies.openpi import policy as policy_module
from joyrlinf_core.policies.openpi.policy import beta_times

MODES = {
    "one-step": {},
    "one-step-cps": {"noise_method": "flow_cps"},
    "one-step-learned": {"noise_method": "flow_noise"},
    "joint": {"joint_logprob": True},
    "joint-sum": {"joint_logprob": True, "logprob_reduction": "sum"},
    "joint-cps": {"joint_logprob": True, "noise_method": "flow_cps"},
    "flow-noise": {"joint_logprob": True, "noise_method": "flow_noise"},
}
VARIANTS = ("tiny-pi0", "tiny-pi05")


def rollout(policy, observe, rng, n=6, tasks=2, mode="train"):
    inputs, draws = policy.prepare(observe(n, tasks=tasks)), policy.draw(rng(7), n)
    return inputs, draws, policy.predict(inputs, draws, mode)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("keys", MODES.values(), ids=MODES)
@pytest.mark.parametrize("tasks", [1, 2], ids=["unpadded", "padded"])
def test_recompute_equals_rollout(build, observe, rng, variant, keys, tasks):
    policy = build(variant, add_value_head=True, **keys)
    inputs, _, output = rollout(policy, observe, rng, tasks=tasks)
    again = policy.evaluate_actions(inputs, output.replay)
    assert output.logprobs.std() > 0.01
    torch.testing.assert_close(again.logprobs, output.logprobs, atol=1e-5, rtol=0)
    torch.testing.assert_close(again.values, output.values, atol=1e-5, rtol=0)
    assert (again.entropy is not None) == (keys.get("noise_method") == "flow_noise")
    assert output.values.shape == (6,)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("joint", [False, True])
def test_rollout_equals_a_plain_loop(build, observe, rng, variant, joint):
    """Chain and log-prob, row by row and step by step, from the definition."""
    policy = build(
        variant, joint_logprob=joint, logprob_reduction="sum", normalize_actions=False, num_steps=3
    )
    inputs, draws, output = rollout(policy, observe, rng, n=3)
    model, steps, delta, a = policy.model, 3, 1 / 3, policy.config.noise_level
    chunk, d = policy.config.num_action_chunks, policy.settings.action_dim
    for row in range(3):
        single = {name: tensor[row : row + 1] for name, tensor in inputs.items()}
        x, total = draws["x0"][row], torch.zeros(chunk, d)
        with torch.no_grad():
            cache = policy._prefix_cache(single)
            if joint:
                total += torch.distributions.Normal(0, 1).log_prob(x[:chunk, :d])
            for index in range(steps):
                t = 1 - index * delta
                condition = model.condition(torch.tensor([t]))[None]
                v = model.velocity(model.features(cache, x[None, None], condition))[0, 0]
                if not joint and index != int(draws["step"][row]):
                    x = x - delta * v
                    continue
                sigma = a * math.sqrt(t / (1 - t if index else delta))
                mean = x - delta * (v + sigma**2 / (2 * t) * (x + (1 - t) * v))
                std = sigma * math.sqrt(delta)
                x = mean + std * draws["noise"][row, index if joint else 0]
                density = torch.distributions.Normal(mean, std).log_prob(x)
                total += density[:chunk, :d]
        torch.testing.assert_close(output.actions[row], x[:chunk, :d], atol=2e-5, rtol=0)
        torch.testing.assert_close(output.logprobs[row], total, atol=5e-5, rtol=0)


def test_replay_is_minimal(build, observe, rng):
    _, _, one = rollout(build(), observe, rng)
    assert {name: tuple(tensor.shape) for name, tensor in one.replay.items()} == {
        "x": (6, 1, 4, 6),
        "x_next": (6, 1, 2, 3),
        "step": (6,),
    }
    _, _, joint = rollout(build(joint_logprob=True, num_steps=5), observe, rng)
    assert {name: tuple(tensor.shape) for name, tensor in joint.replay.items()} == {
        "x": (6, 5, 4, 6),
        "x_next": (6, 5, 2, 3),
    }


@pytest.mark.parametrize("variant", VARIANTS)
def test_eval_integrates_the_ode(build, observe, rng, variant):
    policy = build(variant, num_steps=3, normalize_actions=False)
    inputs, draws, output = rollout(policy, observe, rng, mode="eval")
    x = draws["x0"]
    with torch.no_grad():
        cache = policy._prefix_cache(inputs)
        for index in range(3):
            condition = policy.model.condition(torch.tensor([1 - index / 3]))[None]
            features = policy.model.features(cache, x[:, None], condition)
            x = x - policy.model.velocity(features)[:, 0] / 3
    torch.testing.assert_close(output.actions, x[:, :2, :3], atol=1e-5, rtol=0)
    quiet = dict(draws) | {"noise": draws["noise"] * 0}
    assert torch.equal(policy.predict(inputs, quiet, "eval").actions, output.actions)


def test_mean_reduction_divides_the_sum(build, observe, rng):
    _, _, mean = rollout(build(joint_logprob=True, num_steps=3), observe, rng)
    _, _, total = rollout(
        build(joint_logprob=True, num_steps=3, logprob_reduction="sum"), observe, rng
    )
    torch.testing.assert_close(mean.logprobs * 4, total.logprobs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("keys", "most"), [({}, 3), ({"ignore_last": True}, 2), (MODES["one-step-cps"], 2)]
)
def test_noised_step_range(build, rng, keys, most):
    steps = build(**keys).draw(rng(), 400)["step"]
    assert set(steps.tolist()) == set(range(most + 1))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("size", [1, 4])
def test_micro_batches_change_nothing(build, observe, rng, variant, size):
    _, _, whole = rollout(build(variant), observe, rng)
    _, _, parts = rollout(build(variant, predict_micro_batch_size=size), observe, rng)
    torch.testing.assert_close(parts.actions, whole.actions, atol=1e-5, rtol=0)
    torch.testing.assert_close(parts.logprobs, whole.logprobs, atol=1e-5, rtol=0)
    assert parts.replay.keys() == whole.replay.keys()


@pytest.mark.parametrize("variant", VARIANTS)
def test_padding_tokens_change_nothing(build, observe, rng, variant):
    policy = build(variant, discrete_state_input=False)
    inputs, draws, padded = rollout(policy, observe, rng, tasks=2)
    assert inputs["token_count"].unique().numel() == 2
    junk = inputs["tokens"].clone()
    junk[torch.arange(junk.shape[1]) >= inputs["token_count"][:, None]] = 9
    again = policy.predict({**inputs, "tokens": junk}, draws, "train")
    assert torch.equal(again.actions, padded.actions)
    one = {name: tensor[1:2] for name, tensor in inputs.items()}
    alone = policy.predict(one, {name: t[1:2] for name, t in draws.items()}, "train")
    torch.testing.assert_close(alone.actions, padded.actions[1:2], atol=1e-5, rtol=0)


def test_inputs_matter(build, observe, rng):
    """Picture, prompt and state each reach the actions."""
    for variant in VARIANTS:
        policy = build(variant)
        inputs, draws, output = rollout(policy, observe, rng)
        shuffled = {"images": inputs["images"].flip(0)}
        if variant == "tiny-pi0":
            shuffled |= {"state": inputs["state"] + 1}
        shuffled |= {"tokens": inputs["tokens"].flip(0)}
        for name, tensor in shuffled.items():
            other = policy.predict({**inputs, name: tensor}, draws, "train")
            assert (other.actions - output.actions).abs().max() > 1e-4, (variant, name)


def test_state_reaches_the_prompt_of_pi05(build, observe):
    policy = build("tiny-pi05")
    inputs = policy.prepare(observe(4))
    assert not torch.equal(inputs["tokens"][0], inputs["tokens"][1])
    blind = build("tiny-pi05", discrete_state_input=False).prepare(observe(4))
    assert torch.equal(blind["tokens"][0], blind["tokens"][1])
    padded = build("tiny-pi05", pad_discrete_state=True).prepare(observe(4))
    assert (padded["token_count"] == inputs["token_count"] + 2 * (7 - 5)).all()


def test_action_padding_does_not_enter_the_log_prob(build, observe, rng):
    policy = build(normalize_actions=False)
    inputs, _, output = rollout(policy, observe, rng)
    with torch.no_grad():
        policy.model.action_out_proj.bias[3:] += 5
    again = policy.evaluate_actions(inputs, output.replay)
    torch.testing.assert_close(again.logprobs, output.logprobs, atol=1e-5, rtol=0)


def test_expert_only_freezes_the_prefix(build, observe, rng):
    policy = build(train_expert_only=True)
    names = {name for name, _ in policy.trainable_parameters()}
    assert names
    assert not [
        n for n in names if ".vision." in n or ".vlm." in n or ".embed." in n or ".mm." in n
    ]
    inputs, _, output = rollout(policy, observe, rng)
    policy.evaluate_actions(inputs, output.replay).logprobs.sum().backward()
    for name, parameter in policy.module.named_parameters():
        assert (parameter.grad is not None) == (name in names), name


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradient_reaches_value_and_noise_heads(build, observe, rng, variant):
    policy = build(variant, add_value_head=True, **MODES["flow-noise"])
    inputs, _, output = rollout(policy, observe, rng)
    result = policy.evaluate_actions(inputs, output.replay)
    (result.logprobs.sum() + result.values.sum()).backward()
    missing = [name for name, parameter in policy.trainable_parameters() if parameter.grad is None]
    assert missing == []
    zero = [name for name, p in policy.trainable_parameters() if not p.grad.any()]
    assert zero == []


def test_detached_critic_trains_only_its_head(build, observe, rng):
    policy = build(add_value_head=True, detach_critic_input=True)
    inputs, _, output = rollout(policy, observe, rng)
    policy.evaluate_actions(inputs, output.replay).values.sum().backward()
    reached = {name for name, p in policy.module.named_parameters() if p.grad is not None}
    assert reached
    assert all("value_head" in name for name in reached)


def test_value_in_eval_mode(build, observe, rng):
    _, _, output = rollout(build(add_value_head=True), observe, rng, mode="eval")
    assert output.values.shape == (6,)


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradient_checkpointing_changes_no_gradient(build, observe, rng, variant):
    policy = build(variant)
    inputs, _, output = rollout(policy, observe, rng)
    grads = []
    for enabled in (False, True):
        policy.set_gradient_checkpointing(enabled=enabled)
        policy.module.zero_grad()
        policy.evaluate_actions(inputs, output.replay).logprobs.sum().backward()
        grads.append([p.grad.clone() for _, p in policy.trainable_parameters()])
    for plain, recomputed in zip(*grads, strict=True):
        torch.testing.assert_close(recomputed, plain, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_bf16_keeps_islands_and_ratio(build, observe, rng, variant, frozen):
    policy = build(variant, train_expert_only=frozen)
    inputs, draws, exact = rollout(policy, observe, rng)
    policy.set_precision("bf16")
    output = policy.predict(inputs, draws, "train")
    assert output.actions.dtype == output.logprobs.dtype == torch.float32
    error = (output.actions - exact.actions).abs().max()
    assert 0 < error < 0.2
    again = policy.evaluate_actions(inputs, output.replay)
    assert again.logprobs.dtype == torch.float32
    ratio = (again.logprobs - output.logprobs).sum((1, 2)).exp()
    assert (ratio - 1).abs().max() < policy.ratio_tolerance
    again.logprobs.sum().backward()
    for name, parameter in policy.trainable_parameters():
        assert parameter.dtype == torch.float32, name
    vlm = policy.model.vlm.layers[0].qkv_proj.weight.dtype
    assert vlm == (torch.bfloat16 if frozen else torch.float32)


def test_flow_loss_target(build, observe, rng, monkeypatch):
    """A velocity of exactly noise - action has no loss; padding dims do not count."""
    policy = build(normalize_actions=False)
    inputs = policy.prepare(observe(4))
    actions, valid = torch.randn((4, 4, 3), generator=rng()), torch.ones((4, 4), dtype=torch.bool)
    noise, times = torch.randn((4, 4, 6), generator=rng(1)), torch.rand(4, generator=rng(2))
    perfect = noise.clone()
    perfect[..., :3] -= actions
    perfect[..., 3:] = 99
    seen = []

    def features(cache, x, condition):
        seen.append(x)
        return torch.zeros(4, 1, 4, policy.settings.architecture.expert_width)

    monkeypatch.setattr(policy.model, "features", features)
    monkeypatch.setattr(policy.model, "velocity", lambda _: perfect)
    loss = policy.flow_loss(inputs, actions, valid, noise, times)
    assert loss.shape == (4, 4, 3)
    assert not loss.any()
    expected = times[:, None, None] * noise[..., :3] + (1 - times[:, None, None]) * actions
    torch.testing.assert_close(seen[0][:, 0, :, :3], expected)


def test_sft_loss_ignores_invalid_actions(build, observe, rng):
    policy = build()
    inputs = policy.prepare(observe(4))
    actions, valid = torch.randn((4, 4, 3), generator=rng()), torch.ones((4, 4), dtype=torch.bool)
    valid[:, 3] = False
    loss = policy.sft_loss(inputs, actions, valid, rng(1))
    other = actions.clone()
    other[:, 3] += 10
    assert torch.equal(policy.sft_loss(inputs, other, valid, rng(1)), loss)
    assert not torch.equal(policy.sft_loss(inputs, actions, valid, rng(2)), loss)


def test_training_times_follow_the_beta_law(rng):
    times = beta_times(20000, rng())
    assert times.min() >= 0.001
    assert times.max() <= 1.0
    assert float(times.mean()) == pytest.approx(0.999 * 0.6 + 0.001, abs=0.01)
    share = float((times < 0.001 + 0.999 * 0.25).float().mean())
    assert share == pytest.approx(0.25**1.5, abs=0.01)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_few_steps_of_sft_learn(env, stats, observe, rng, variant):
    from joyrlinf_core.policies.openpi import OpenPiConfig

    config = OpenPiConfig(
        variant=variant, num_action_chunks=2, architecture={"horizon": 4, "patch_size": 8}
    )
    policy = config.create(env, stats, seed=0)
    inputs = policy.prepare(observe(16))
    actions = inputs["state"][:, None, :3].expand(-1, 4, -1)
    valid = torch.ones((16, 4), dtype=torch.bool)
    optimizer = torch.optim.Adam([p for _, p in policy.trainable_parameters()], lr=3e-3)
    losses = []
    for step in range(40):
        loss = policy.sft_loss(inputs, actions, valid, rng(step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert sum(losses[-5:]) < 0.6 * sum(losses[:5])


def test_module_has_no_second_copy_of_anything(build):
    policy = build()
    parameters = sum(p.numel() for p in policy.module.parameters())
    assert parameters == sum(p.numel() for p in policy.model.parameters())
    assert not [name for name in policy.module.state_dict() if "normalizer" in name]
    assert set(policy_module.RATIO_TOLERANCE) == {"fp32", "bf16"}
