"""Scores of trajectories."""

from __future__ import annotations

import pytest
import torch

from joyrlinf_core.algorithms.masks import episode_mask
from joyrlinf_core.algorithms.scores import trajectories


def test_golden_scores_stop_at_the_done(rollout):
    rewards = torch.arange(12.0).reshape(3, 1, 4).expand(3, 2, 4)
    dones = torch.zeros(3, 2, 4, dtype=torch.bool)
    dones[1, 0, 1] = True
    batch = rollout(rewards, dones)
    table = trajectories(batch, episode_mask(batch, auto_reset=False))
    assert table.score[0].tolist() == [15.0, 66.0]
    assert table.exists.sum() == 2


def test_reward_after_success_inside_the_chunk_does_not_cancel_it(rollout):
    rewards = torch.tensor([[[0.0, 1.0, -1.0, 0.0]]])
    dones = torch.tensor([[[False, True, False, False]]])
    batch = rollout(rewards, dones)
    table = trajectories(batch, episode_mask(batch, auto_reset=False))
    assert table.score[0].tolist() == [1.0]


@pytest.mark.parametrize("auto_reset", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_table_equals_a_plain_loop(random_rollout, seed, auto_reset):
    batch = random_rollout(seed, auto_reset=auto_reset)
    masks = episode_mask(batch, auto_reset=auto_reset)
    table = trajectories(batch, masks)
    t, b, c = batch.shape
    for column in range(b):
        numbers = list(dict.fromkeys(batch.episode[:, column].tolist()))
        assert table.exists[:, column].tolist() == [i < len(numbers) for i in range(t)]
        for place, k in enumerate(numbers):
            score, length, success = 0.0, 0, False
            for row in range(t):
                if batch.episode[row, column] != k:
                    continue
                success |= bool(batch.success[row, column] & masks.valid[row, column].any())
                for action in range(c):
                    if masks.valid[row, column, action]:
                        score += float(batch.rewards[row, column, action])
                        length += 1
            assert table.score[place, column] == score
            assert table.length[place, column] == length
            assert table.success[place, column] == success
            assert table.episode[place, column] == k
            assert table.task[place, column] == batch.task[0, column]
