"""GAE against golden numbers and a plain loop."""

from __future__ import annotations

import math

import pytest
import torch

from joyrlinf_core.algorithms.advantages import gae
from joyrlinf_core.algorithms.masks import episode_mask


def _golden(rollout, **other):
    """r = (1, 0, 2), V = (.5, .4, .3 | .2), done after step 1."""
    dones = torch.tensor([0, 1, 0]).reshape(3, 1, 1)
    fields = {
        "episode": torch.tensor([[0], [0], [1]]),
        "prev_values": torch.tensor([[0.5], [0.4], [0.3]]),
        "next_values": torch.tensor([[0.0], [9.0], [0.2]]),
    }
    return rollout(torch.tensor([1.0, 0.0, 2.0]).reshape(3, 1, 1), dones, **(fields | other))


def test_golden_advantages_and_returns(rollout, context):
    result = gae.compute(_golden(rollout), context(auto_reset=True, normalize_advantages=False))
    torch.testing.assert_close(
        result.advantages[:, 0], torch.tensor([0.5198, -0.4, 1.898]), atol=1e-6, rtol=0
    )
    assert result.returns is not None
    torch.testing.assert_close(
        result.returns[:, 0], torch.tensor([1.0198, 0.0, 2.198]), atol=1e-6, rtol=0
    )
    assert result.mask.all()
    assert result.weights.sum() == result.total_weight == 3


def test_golden_normalised_advantages(rollout, context):
    result = gae.compute(_golden(rollout), context(auto_reset=True))
    torch.testing.assert_close(
        result.advantages[:, 0],
        torch.tensor([-0.132111, -0.927369, 1.059480]),
        atol=2e-5,
        rtol=0,
    )


def test_time_limit_bootstraps_and_termination_does_not(rollout, context):
    limit = _golden(rollout, terminations=torch.zeros(3, 1, 1, dtype=torch.bool))
    config = context(auto_reset=True, normalize_advantages=False)
    cut = gae.compute(limit, config).advantages[1, 0]
    ended = gae.compute(_golden(rollout), config).advantages[1, 0]
    assert float(cut - ended) == pytest.approx(0.99 * 9.0)


def test_normalisation_is_over_all_actors(random_rollout, context):
    """Two actors with half of the columns each get what one actor with all gets."""
    batch = random_rollout(0, auto_reset=False)
    whole = gae.compute(batch, context())
    halves = [_columns(batch, slice(0, 4)), _columns(batch, slice(4, 12))]
    sent = []
    for half in halves:
        gae.compute(half, context(sum_over_actors=lambda v: sent.append(v.clone()) or v))
    parts = [
        gae.compute(half, context(sum_over_actors=lambda _: sent[0] + sent[1])) for half in halves
    ]
    joined = torch.cat([part.advantages for part in parts], dim=1)
    torch.testing.assert_close(joined, whole.advantages, atol=1e-6, rtol=1e-6)
    assert sum(part.total_weight for part in parts) == pytest.approx(whole.total_weight)


def _columns(batch, columns):
    return type(batch)(
        **{
            name: value[columns] if name == "group" else value[:, columns]
            for name, value in vars(batch).items()
            if name not in ("inputs", "replay")
        },
        inputs={},
        replay={},
    )


@pytest.mark.parametrize("level", ["chunk_level", "action_level"])
@pytest.mark.parametrize("auto_reset", [False, True])
@pytest.mark.parametrize("with_values", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_equals_a_plain_loop(random_rollout, context, seed, with_values, auto_reset, level):
    batch = random_rollout(seed, auto_reset=auto_reset)
    if not with_values:
        batch = type(batch)(**{**vars(batch), "prev_values": None, "next_values": None})
    config = context(
        auto_reset=auto_reset,
        reward_type=level,
        logprob_type=level,
        normalize_advantages=False,
        gamma=0.9,
        gae_lambda=0.8,
    )
    result = gae.compute(batch, config)
    gamma, lam = (0.9, 0.8) if with_values else (1.0, 1.0)
    valid = episode_mask(batch, auto_reset=auto_reset).valid
    t, b, _ = batch.shape
    expected = torch.zeros(result.advantages.shape)
    for column in range(b):
        for first in range(t):
            if first and batch.episode[first, column] == batch.episode[first - 1, column]:
                continue
            same = batch.episode[:, column] == batch.episode[first, column]
            steps = _steps(batch, valid, [r for r in range(t) if same[r]], column, level)
            later, after = 0.0, math.nan
            for row, action, reward, value, bootstrap in reversed(steps):
                ahead = bootstrap if math.isnan(after) else after
                later = reward + gamma * ahead - value + gamma * lam * later
                after = value
                index = (row, column) if level == "chunk_level" else (row, column, action)
                expected[index] = later
    torch.testing.assert_close(result.advantages, expected, atol=1e-5, rtol=1e-5)
    if not with_values:
        assert result.returns is None


def _steps(batch, valid, rows, column, level):
    """Return (row, action, reward, value, bootstrap) of the valid steps of one episode."""
    steps = []
    for row in rows:
        actions = [a for a in range(batch.shape[2]) if valid[row, column, a]]
        if not actions:
            continue
        value = bootstrap = 0.0
        if batch.prev_values is not None:
            value = float(batch.prev_values[row, column])
            ended = bool((batch.terminations[row, column] & valid[row, column]).any())
            bootstrap = 0.0 if ended else float(batch.next_values[row, column])
        rewards = [float(batch.rewards[row, column, a]) for a in actions]
        if level == "chunk_level":
            steps.append((row, 0, sum(rewards), value, bootstrap))
        else:
            steps += [(row, a, r, value, bootstrap) for a, r in zip(actions, rewards, strict=True)]
    return steps
