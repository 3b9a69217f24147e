"""Aggregation: every trajectory weighs the same, however the batch is cut."""

from __future__ import annotations

import pytest
import torch

from joyrlinf_core.algorithms.aggregation import normaliser, trajectory_weights, weighted_sum
from joyrlinf_core.algorithms.masks import at_level, episode_mask


@pytest.mark.parametrize("level", ["chunk_level", "action_level"])
def test_equals_mean_over_columns_of_masked_means(rollout, level):
    """Also equals the mean over all entries of L * mask * (window / v), v in actions."""
    t, b, c = 4, 3, 2
    dones = torch.zeros(t, b, c)
    dones[1, 0, 1] = dones[2, 2, 1] = 1
    masks = episode_mask(rollout(torch.zeros(t, b, c), dones), auto_reset=False)
    mask = at_level(masks.valid, level)
    loss = torch.randn(mask.shape, generator=torch.Generator().manual_seed(0))
    got = weighted_sum(loss, trajectory_weights(mask, masks.segment), normaliser(b, 1))

    per_column = [loss[:, i][mask[:, i]].mean() for i in range(b)]
    torch.testing.assert_close(got, torch.stack(per_column).mean(), atol=1e-7, rtol=0)
    scale = t * c / masks.valid_actions
    scale = scale if level == "chunk_level" else scale.unsqueeze(-1)
    torch.testing.assert_close(got, (loss * mask * scale).mean(), atol=1e-7, rtol=0)


@pytest.mark.parametrize("auto_reset", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_weights_sum_to_one_per_episode(random_rollout, seed, auto_reset):
    batch = random_rollout(seed, auto_reset=auto_reset)
    masks = episode_mask(batch, auto_reset=auto_reset)
    for level in ("chunk_level", "action_level"):
        mask = at_level(masks.valid, level)
        weights = trajectory_weights(mask, masks.segment)
        assert (weights[~mask] == 0).all()
        for column in range(batch.shape[1]):
            for k in batch.episode[:, column].unique():
                rows = batch.episode[:, column] == k
                assert weights[rows, column].sum() == pytest.approx(1.0, abs=1e-6)


def test_finer_loss_is_averaged_over_its_own_axes():
    loss = torch.arange(12.0).reshape(2, 2, 3)
    weights = torch.tensor([[0.5, 0.25], [0.0, 1.0]])
    expected = (loss.mean(-1) * weights).sum() / 2
    assert weighted_sum(loss, weights, 2.0) == expected
    rows = torch.tensor([1.0, 3.0])
    assert weighted_sum(loss, rows, 1.0) == 2.5 + 3 * 8.5


def test_normaliser_of_an_empty_window_is_no_division_by_zero():
    assert normaliser(0.0, 4) == 0.25
    assert normaliser(32.0, 4) == 8.0
