"""PPO clip, dual clip, decoupled loss and their metrics: golden numbers and plain loops."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from joyrlinf_core.algorithms.base import LossInputs
from joyrlinf_core.algorithms.losses import actor
from joyrlinf_core.batch.layout import LEGAL_PAIRS
from joyrlinf_core.batch.metrics import merge, values
from joyrlinf_core.config.schema import AlgorithmConfig
from joyrlinf_core.errors import ConfigError


def test_golden_ppo(chunk_inputs):
    inputs = chunk_inputs([0.0, 0.3, -0.4, 0.1], [0.0] * 4, [1.0, 1.0, -1.0, -1.0])
    out = actor.compute(inputs, AlgorithmConfig(clip_ratio_low=0.2, clip_ratio_high=0.28))
    assert float(out.loss) == pytest.approx(-0.093707, abs=1e-6)
    metrics = values(out.metrics)
    assert metrics["ratio_mean"] == pytest.approx(1.031337, abs=1e-6)
    assert metrics["clip_fraction"] == 0.5
    assert metrics["approx_kl"] == pytest.approx(0.0, abs=1e-7)
    assert metrics["approx_kl_k3"] == pytest.approx(0.031337, abs=1e-6)
    assert metrics["ratio_max"] == pytest.approx(math.exp(0.3))
    assert metrics["ratio_min"] == pytest.approx(math.exp(-0.4))


def test_golden_dual_clip(chunk_inputs):
    inputs = chunk_inputs([2.0, 0.0], [0.0, 0.0], [-1.0, 1.0])
    out = actor.compute(inputs, AlgorithmConfig(clip_ratio_c=3.0))
    assert float(out.loss) == pytest.approx(1.0)
    assert values(out.metrics)["dual_clip_fraction"] == 0.5
    without = actor.compute(inputs, AlgorithmConfig(clip_ratio_c=None))
    assert float(without.loss) == pytest.approx((math.exp(2) - 1) / 2, rel=1e-6)


def test_dual_clip_never_binds_for_good_actions(chunk_inputs):
    inputs = chunk_inputs([2.0, -2.0], [0.0, 0.0], [1.0, 1.0])
    with_c = actor.compute(inputs, AlgorithmConfig(clip_ratio_c=1.5)).loss
    assert torch.equal(with_c, actor.compute(inputs, AlgorithmConfig(clip_ratio_c=None)).loss)


def test_golden_decoupled_by_interpolation(chunk_inputs):
    inputs = chunk_inputs(
        [0.1, -0.1],
        [-0.2, 0.3],
        [1.0, -1.0],
        versions=torch.tensor([3, 4]),
        next_version=5,
        behaviour_weight_max=2.0,
    )
    out = actor.compute(inputs, AlgorithmConfig(clip_ratio_c=3.0))
    assert float(out.loss) == pytest.approx(-0.274929, abs=1e-6)
    assert values(out.metrics)["ratio_mean"] == pytest.approx(0.916077, abs=1e-6)
    assert values(out.metrics)["behaviour_clip_fraction"] == 0


def test_decoupled_drops_entries_of_large_behaviour_weight(chunk_inputs):
    inputs = chunk_inputs(
        [0.1, 0.1],
        [-2.0, 0.0],
        [1.0, 1.0],
        proximal_logprobs=torch.tensor([0.0, 0.0]),
        behaviour_weight_max=2.0,
    )
    out = actor.compute(inputs, AlgorithmConfig())
    assert float(out.loss) == pytest.approx(-math.exp(0.1) / 2, rel=1e-6)
    assert values(out.metrics)["behaviour_clip_fraction"] == 0.5


def test_decoupled_with_old_as_proximal_is_plain_ppo(chunk_inputs):
    plain = chunk_inputs([0.3, -0.4], [0.0, 0.1], [1.0, -1.0])
    decoupled = dataclasses.replace(plain, proximal_logprobs=plain.old_logprobs)
    config = AlgorithmConfig()
    assert torch.equal(actor.compute(plain, config).loss, actor.compute(decoupled, config).loss)


def _random(reward_type: str, logprob_type: str, seed: int, m: int = 7) -> LossInputs:
    c, d = 3, 4
    generator = torch.Generator().manual_seed(seed)
    level = (m,) if reward_type == "chunk_level" else (m, c)
    old = {"chunk_level": (m,), "action_level": (m, c), "token_level": (m, c, d)}[logprob_type]
    mask = torch.rand(level, generator=generator) < 0.7
    return LossInputs(
        logprobs=torch.randn(m, c, d, generator=generator).mul(0.3).requires_grad_(),
        old_logprobs=torch.randn(old, generator=generator) * 0.3,
        advantages=torch.randn(level, generator=generator).masked_fill(~mask, 0.0),
        mask=mask,
        weights=torch.rand(level, generator=generator).masked_fill(~mask, 0.0),
        normaliser=2.5,
        entropy=torch.rand(m, generator=generator),
    )


@pytest.mark.parametrize(("reward_type", "logprob_type"), LEGAL_PAIRS)
@pytest.mark.parametrize("seed", range(4))
def test_every_legal_pair_equals_a_plain_loop(reward_type, logprob_type, seed):
    inputs = _random(reward_type, logprob_type, seed)
    config = AlgorithmConfig(
        reward_type=reward_type,
        logprob_type=logprob_type,
        clip_ratio_low=0.1,
        clip_ratio_high=0.3,
        clip_ratio_c=1.4,
        entropy_bonus=0.05,
    )
    out = actor.compute(inputs, config)
    total, entries, clipped, kl = 0.0, 0, 0, 0.0
    m, c, d = inputs.logprobs.shape
    entropy = inputs.entropy
    assert entropy is not None
    sizes = {"chunk_level": [()], "action_level": [(a,) for a in range(c)]}
    tokens = [(a, k) for a in range(c) for k in range(d)]
    places = sizes.get(logprob_type, tokens)
    for row in range(m):
        for place in places:
            at = (row, *place)
            coarse = at[: inputs.advantages.dim()]
            if not inputs.mask[coarse]:
                continue
            now = float(inputs.logprobs[at].detach().sum())
            change = now - float(inputs.old_logprobs[at])
            ratio, adv = math.exp(change), float(inputs.advantages[coarse])
            bounded = min(max(ratio, 0.9), 1.3)
            value = max(-adv * ratio, -adv * bounded)
            clipped += -adv * ratio < -adv * bounded
            if adv < 0:
                value = min(value, -1.4 * adv)
            finer = len(places) if reward_type == "chunk_level" else len(places) // c
            total += value * float(inputs.weights[coarse]) / finer / 2.5
            entries += 1
            kl -= change
        total -= 0.05 * float(entropy[row]) * float(inputs.weights[row].sum()) / 2.5
    assert float(out.loss.detach()) == pytest.approx(total, abs=1e-5)
    metrics = values(out.metrics)
    assert metrics["clip_fraction"] == pytest.approx(clipped / entries)
    assert metrics["approx_kl"] == pytest.approx(kl / entries, abs=1e-6)
    assert 0 <= metrics["clip_fraction"] <= 1
    assert float(sum(out.parts.values())) == pytest.approx(total, abs=1e-5)


@pytest.mark.parametrize(("reward_type", "logprob_type"), LEGAL_PAIRS)
def test_splits_and_dropped_rows_change_nothing(reward_type, logprob_type):
    """Gradients and losses of parts add up; rows of weight or advantage zero may be left out."""
    config = AlgorithmConfig(reward_type=reward_type, logprob_type=logprob_type)
    inputs = dataclasses.replace(_random(reward_type, logprob_type, 3), entropy=None)
    whole = actor.compute(inputs, config)
    whole.loss.backward()
    assert inputs.logprobs.grad is not None
    grad = inputs.logprobs.grad.clone()
    inputs.logprobs.grad = None

    adv = inputs.advantages if inputs.advantages.dim() == 1 else inputs.advantages.abs().sum(-1)
    active = adv.nonzero().squeeze(1)
    assert 0 < len(active) < 8
    parts = [actor.compute(_rows(inputs, rows), config) for rows in active.split(2)]
    for part in parts:
        part.loss.backward()
    torch.testing.assert_close(sum(p.loss for p in parts), whole.loss, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(inputs.logprobs.grad, grad, atol=1e-7, rtol=1e-6)
    merged = values(merge(part.metrics for part in parts))
    if reward_type == "action_level":
        assert merged["ratio_max"] == values(whole.metrics)["ratio_max"]
        assert merged["clip_fraction"] == pytest.approx(values(whole.metrics)["clip_fraction"])


def _rows(inputs: LossInputs, rows: torch.Tensor) -> LossInputs:
    names = ("logprobs", "old_logprobs", "advantages", "mask", "weights")
    return dataclasses.replace(inputs, **{name: getattr(inputs, name)[rows] for name in names})


def test_token_level_clip_fraction_is_a_fraction():
    """All tokens clipped gives 1, not D."""
    inputs = LossInputs(
        logprobs=torch.ones(2, 3, 7),
        old_logprobs=torch.zeros(2, 3, 7),
        advantages=torch.ones(2, 3),
        mask=torch.tensor([[True, True, False], [True, False, False]]),
        weights=torch.ones(2, 3),
        normaliser=1.0,
    )
    config = AlgorithmConfig(reward_type="action_level", logprob_type="token_level")
    metrics = values(actor.compute(inputs, config).metrics)
    assert metrics["clip_fraction"] == 1
    assert metrics["approx_kl"] == -1


def test_entropy_is_masked_and_averaged(chunk_inputs):
    inputs = chunk_inputs(
        [0.0] * 4,
        [0.0] * 4,
        [0.0] * 4,
        entropy=torch.tensor([1.0, 2.0, 3.0, 100.0]),
        mask=torch.tensor([True, True, True, False]),
        weights=torch.tensor([1.0, 1.0, 1.0, 0.0]),
        normaliser=3.0,
    )
    out = actor.compute(inputs, AlgorithmConfig(entropy_bonus=0.5))
    assert float(out.loss) == pytest.approx(-1.0)
    assert values(out.metrics)["entropy"] == 2.0


def test_entropy_bonus_without_entropy_is_refused(chunk_inputs):
    with pytest.raises(ConfigError, match=r"entropy_bonus: 0\.1"):
        actor.compute(chunk_inputs([0.0], [0.0], [1.0]), AlgorithmConfig(entropy_bonus=0.1))


def test_coarser_logprob_than_reward_is_refused(chunk_inputs):
    config = AlgorithmConfig(reward_type="action_level", logprob_type="chunk_level")
    with pytest.raises(ConfigError, match="logprob_type: chunk_level is coarser"):
        actor.compute(chunk_inputs([0.0], [0.0], [1.0]), config)


def test_masked_rows_are_silent(chunk_inputs):
    inputs = chunk_inputs(
        [0.3, float("inf")],
        [0.0, 0.0],
        [1.0, 0.0],
        mask=torch.tensor([True, False]),
        weights=torch.tensor([1.0, 0.0]),
        normaliser=1.0,
    )
    out = actor.compute(inputs, AlgorithmConfig())
    assert float(out.loss) == pytest.approx(-1.2)
    assert values(out.metrics)["ratio_max"] == pytest.approx(math.exp(0.3))
