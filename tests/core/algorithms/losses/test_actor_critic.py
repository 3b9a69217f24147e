"""The clipped Huber value loss: golden numbers and a plain loop."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from joyrlinf_core.algorithms.losses import actor, actor_critic
from joyrlinf_core.batch.metrics import values
from joyrlinf_core.config.schema import AlgorithmConfig
from joyrlinf_core.errors import ConfigError


def _critic(chunk_inputs, **other):
    fields = {
        "values": torch.tensor([0.5, 1.0]),
        "old_values": torch.tensor([0.4, 0.2]),
        "returns": torch.tensor([1.0, 0.0]),
    }
    return chunk_inputs([0.0, 0.0], [0.0, 0.0], [0.0, 0.0], **(fields | other))


def test_golden_value_loss(chunk_inputs):
    config = AlgorithmConfig(value_clip=0.2, huber_delta=10.0)
    out = actor_critic.compute(_critic(chunk_inputs), config)
    assert float(out.loss) == pytest.approx(0.3125, abs=1e-6)
    assert float(out.parts["value_loss"]) == pytest.approx(0.3125, abs=1e-6)


def test_value_clip_fraction_sees_the_unclamped_step(chunk_inputs):
    """0.1 is inside the range of 0.2, 0.8 is not."""
    out = actor_critic.compute(_critic(chunk_inputs), AlgorithmConfig(value_clip=0.2))
    assert values(out.metrics)["value_clip_fraction"] == 0.5


def test_huber_is_linear_beyond_delta():
    error = torch.tensor([-3.0, -1.0, 0.5, 2.0])
    assert actor_critic.huber(error, 2.0).tolist() == [4.0, 0.5, 0.125, 2.0]


def test_coefficient_scales_the_value_term_only(chunk_inputs):
    inputs = chunk_inputs(
        [0.3, 0.0],
        [0.0, 0.0],
        [1.0, -1.0],
        values=torch.tensor([0.5, 1.0]),
        old_values=torch.tensor([0.4, 0.2]),
        returns=torch.tensor([1.0, 0.0]),
    )
    policy = actor.compute(inputs, AlgorithmConfig()).loss
    out = actor_critic.compute(inputs, AlgorithmConfig(value_loss_coef=0.5))
    assert float(out.loss) == pytest.approx(float(policy) + 0.15625, abs=1e-6)


def test_one_value_per_chunk_meets_one_return_per_action(chunk_inputs):
    inputs = dataclasses.replace(
        _critic(chunk_inputs),
        logprobs=torch.zeros(2, 2, 1),
        old_logprobs=torch.zeros(2, 2),
        advantages=torch.zeros(2, 2),
        mask=torch.ones(2, 2, dtype=torch.bool),
        weights=torch.tensor([[0.5, 0.5], [1.0, 0.0]]),
        returns=torch.tensor([[1.0, 0.5], [0.0, 7.0]]),
    )
    config = AlgorithmConfig(reward_type="action_level", logprob_type="action_level")
    loss, _ = actor_critic.value_loss(inputs, config)
    # Row 0: max(.5^2, .5^2)/2 and max(0, 0)/2; row 1: max(1, .4^2)/2.
    assert float(loss) == pytest.approx((0.5 * 0.125 + 0.5 * 0.0 + 1.0 * 0.5) / 2, abs=1e-6)


@pytest.mark.parametrize(
    ("missing", "said"), [("values", "no value head"), ("returns", "no returns")]
)
def test_missing_values_are_named(chunk_inputs, missing, said):
    with pytest.raises(ConfigError, match=said):
        actor_critic.compute(_critic(chunk_inputs, **{missing: None}), AlgorithmConfig())
