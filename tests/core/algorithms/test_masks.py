"""Masks against golden vectors and a plain loop."""

from __future__ import annotations

import pytest
import torch

from joyrlinf_core.algorithms.masks import at_level, episode_mask


def _done_at(*actions: int, t: int = 3, c: int = 4) -> torch.Tensor:
    """Return dones [T, 2, C]: column 0 is done after the given actions, column 1 never."""
    dones = torch.zeros(t * c, 2, dtype=torch.bool)
    dones[list(actions), 0] = True
    return dones.reshape(t, c, 2).transpose(1, 2).contiguous()


def _text(valid: torch.Tensor, column: int) -> str:
    return "|".join("".join(str(int(a)) for a in chunk) for chunk in valid[:, column])


@pytest.mark.parametrize(
    ("action", "mask", "valid_actions"),
    [(5, "1111|1100|0000", 6), (7, "1111|1111|0000", 8), (0, "1000|0000|0000", 1)],
)
def test_golden_mask_keeps_the_ending_action(rollout, action, mask, valid_actions):
    batch = rollout(torch.zeros(3, 2, 4), _done_at(action))
    masks = episode_mask(batch, auto_reset=False)
    assert _text(masks.valid, 0) == mask
    assert _text(masks.valid, 1) == "1111|1111|1111"
    assert masks.valid_actions[:, 0].tolist() == [valid_actions] * 3
    assert masks.valid_actions[:, 1].tolist() == [12] * 3


def test_chunk_counts_if_any_of_its_actions_does(rollout):
    masks = episode_mask(rollout(torch.zeros(3, 2, 4), _done_at(5)), auto_reset=False)
    assert at_level(masks.valid, "chunk_level").tolist() == [
        [True, True],
        [True, True],
        [False, True],
    ]
    assert at_level(masks.valid, "action_level") is masks.valid


def test_second_done_of_an_episode_changes_nothing(rollout):
    once = episode_mask(rollout(torch.zeros(3, 2, 4), _done_at(5)), auto_reset=False)
    twice = episode_mask(rollout(torch.zeros(3, 2, 4), _done_at(5, 6, 9)), auto_reset=False)
    assert torch.equal(once.valid, twice.valid)


def test_unfinished_episode_counts_only_without_auto_reset(rollout):
    batch = rollout(
        torch.zeros(3, 2, 4), _done_at(5), episode=torch.tensor([[0, 0], [0, 0], [1, 0]])
    )
    masks = episode_mask(batch, auto_reset=True)
    assert _text(masks.valid, 0) == "1111|1100|1111"
    assert masks.finished.tolist() == [[True, False], [True, False], [False, False]]
    assert masks.valid_actions[:, 0].tolist() == [6, 6, 4]
    assert episode_mask(batch, auto_reset=False).finished.all()


@pytest.mark.parametrize("auto_reset", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_mask_equals_a_plain_loop(random_rollout, seed, auto_reset):
    batch = random_rollout(seed, auto_reset=auto_reset)
    masks = episode_mask(batch, auto_reset=auto_reset)
    t, b, c = batch.shape
    for column in range(b):
        valid = torch.zeros(t, c, dtype=torch.bool)
        ended: set[int] = set()
        for row in range(t):
            k = int(batch.episode[row, column])
            for action in range(c):
                valid[row, action] = batch.played[row, column] and k not in ended
                if batch.played[row, column] and batch.dones[row, column, action]:
                    ended.add(k)
        assert torch.equal(masks.valid[:, column], valid)
        for row in range(t):
            k = int(batch.episode[row, column])
            same = batch.episode[:, column] == k
            assert masks.valid_actions[row, column] == valid[same].sum()
            assert bool(masks.finished[row, column]) == (k in ended or not auto_reset)
