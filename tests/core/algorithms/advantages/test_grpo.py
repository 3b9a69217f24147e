"""GRPO against golden vectors, a plain loop, and the faults it must not have."""

from __future__ import annotations

import statistics
from collections import defaultdict

import pytest
import torch

from joyrlinf_core.algorithms.advantages import grpo
from joyrlinf_core.algorithms.masks import episode_mask
from joyrlinf_core.batch.metrics import values

LEVELS = ["chunk_level", "action_level"]
LOGPROB = {"chunk_level": "chunk_level", "action_level": "action_level"}


def _of_scores(rollout, scores, **other):
    """One chunk of one action per column."""
    rewards = torch.tensor(scores).reshape(1, -1, 1)
    group = torch.arange(len(scores)) // 4
    return rollout(rewards, torch.ones_like(rewards), group=group, **other)


def test_golden_group_advantages(rollout, context):
    batch = _of_scores(rollout, [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    result = grpo.compute(batch, context())
    a = 0.8660254
    torch.testing.assert_close(
        result.advantages, torch.tensor([[a, -a, -a, a, 0, 0, 0, 0]]), atol=2e-6, rtol=0
    )
    assert result.returns is None
    metrics = values(result.metrics)
    assert metrics["groups"] == 2
    assert metrics["groups_with_variance"] == 1


def test_equal_scores_give_exactly_zero(rollout, context):
    batch = _of_scores(rollout, [0.1] * 4)
    batch = rollout(
        batch.rewards.expand(3, 4, 1), torch.zeros(3, 4, 1), group=torch.zeros(4).long()
    )
    result = grpo.compute(batch, context())
    assert (result.advantages == 0).all()
    assert values(result.metrics)["groups_with_variance"] == 0


@pytest.mark.parametrize("coef", [1.0, 5.0])
def test_golden_filter(rollout, context, coef):
    scores = [coef * s for s in (1.0, 0, 0, 0, 1.0, 1.0, 1.0, 1.0, 0, 0, 0, 0)]
    result = grpo.compute(
        _of_scores(rollout, scores),
        context(
            filter_rewards=True, rewards_lower_bound=0.1 * coef, rewards_upper_bound=0.9 * coef
        ),
    )
    assert result.mask[0].tolist() == [True] * 4 + [False] * 8
    assert result.total_weight == 12
    assert result.weights.sum() == 4
    assert values(result.metrics)["groups_kept"] == 1


def test_filter_bounds_are_inclusive_in_float32(rollout, context):
    batch = _of_scores(rollout, [0.9, 0.9, 0.9, 0.9])
    config = context(filter_rewards=True, rewards_lower_bound=0.9, rewards_upper_bound=0.9)
    assert grpo.compute(batch, config).mask.all()


def test_success_inside_a_chunk_scores_one_at_both_levels(rollout, context):
    rewards = torch.tensor([[[0.0, 1.0, -1.0, 0.0], [0.0, 0.0, 0.0, 0.0]]])
    dones = torch.tensor([[[False, True, False, False], [False, False, False, False]]])
    for level in LEVELS:
        result = grpo.compute(
            rollout(rewards, dones), context(reward_type=level, logprob_type=level)
        )
        assert values(result.metrics)["return_max"] == 1
        first = result.advantages[0, 0].reshape(-1)[0]
        assert first == pytest.approx(2**-0.5, abs=1e-5)


def test_rollout_epochs_are_not_mixed_into_one_group(rollout, context):
    """Two epochs from different initial states: each is normalised by itself."""
    rewards = torch.tensor([[[1.0], [0.0]], [[10.0], [30.0]]])
    episode = torch.tensor([[0, 0], [1, 1]])
    result = grpo.compute(rollout(rewards, torch.ones_like(rewards), episode=episode), context())
    a = 2**-0.5
    torch.testing.assert_close(
        result.advantages, torch.tensor([[a, -a], [-a, a]]), atol=1e-5, rtol=0
    )


def test_columns_of_other_groups_do_not_matter(random_rollout, context):
    """The group number decides, not the position of a column: no group straddles anything."""
    batch = random_rollout(3, auto_reset=False)
    result = grpo.compute(batch, context())
    order = torch.randperm(batch.shape[1], generator=torch.Generator().manual_seed(0))
    moved = type(batch)(
        **{
            name: value[:, order] if name != "group" else value[order]
            for name, value in vars(batch).items()
            if name not in ("inputs", "replay")
        },
        inputs={},
        replay={},
    )
    assert torch.equal(grpo.compute(moved, context()).advantages, result.advantages[:, order])


def test_single_finished_member_has_no_partner(rollout, context):
    rewards = torch.tensor([[[1.0], [0.0]], [[1.0], [0.0]]])
    dones = torch.tensor([[[False], [False]], [[True], [False]]])
    batch = rollout(rewards, dones)
    result = grpo.compute(batch, context(auto_reset=True))
    assert (result.advantages == 0).all()
    assert result.mask.tolist() == [[True, False], [True, False]]
    metrics = values(result.metrics)
    assert metrics["trajectories_without_partner"] == 1
    assert metrics["trajectories_unfinished"] == 1
    assert metrics["groups_with_variance"] == 0


def test_nothing_finished(rollout, context):
    batch = rollout(torch.ones(2, 4, 3))
    result = grpo.compute(batch, context(auto_reset=True, filter_rewards=True))
    assert not result.mask.any()
    assert result.total_weight == 0
    assert "return" not in values(result.metrics)


def test_tasks_are_counted_apart_and_always_named(random_rollout, context):
    batch = random_rollout(1, auto_reset=False)
    metrics = grpo.compute(batch, context(num_tasks=3)).metrics
    got = values(metrics)
    assert got["groups/task_0"] + got["groups/task_1"] == got["groups"]
    assert got["groups/task_2"] == 0
    assert "success_once/task_2" in metrics
    assert "success_once/task_2" not in got
    assert (
        got["groups_with_variance/task_0"] + got["groups_with_variance/task_1"]
        == got["groups_with_variance"]
    )


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("auto_reset", [False, True])
@pytest.mark.parametrize("filter_rewards", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_advantages_equal_a_plain_loop(
    random_rollout, context, seed, filter_rewards, auto_reset, level
):
    batch = random_rollout(seed, auto_reset=auto_reset, done_rate=0.12)
    result = grpo.compute(
        batch,
        context(
            auto_reset=auto_reset,
            reward_type=level,
            logprob_type=level,
            filter_rewards=filter_rewards,
            rewards_lower_bound=0.0,
            rewards_upper_bound=3.0,
        ),
    )
    t, b, c = batch.shape
    masks = episode_mask(batch, auto_reset=auto_reset)
    scores: dict[tuple[int, int], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for column in range(b):
        for row in range(t):
            if masks.finished[row, column]:
                pair = (int(batch.group[column]), int(batch.episode[row, column]))
                scores[pair][column] += float(
                    (batch.rewards[row, column] * masks.valid[row, column]).sum()
                )
    expected = torch.zeros(t, b, c)
    kept = torch.zeros(t, b, c, dtype=torch.bool)
    for column in range(b):
        for row in range(t):
            members = scores.get((int(batch.group[column]), int(batch.episode[row, column])), {})
            if column not in members:
                continue
            mean = statistics.fmean(members.values())
            if filter_rewards and not 0.0 <= mean <= 3.0:
                continue
            kept[row, column] = masks.valid[row, column]
            if len(members) >= 2:
                std = statistics.stdev(members.values())
                expected[row, column] = (members[column] - mean) / (std + 1e-6)
    if level == "chunk_level":
        assert torch.equal(result.mask, kept.any(-1))
        expected = expected[..., 0] * kept.any(-1)
    else:
        assert torch.equal(result.mask, kept)
        expected = expected * kept
    torch.testing.assert_close(result.advantages, expected, atol=1e-5, rtol=1e-5)
    assert result.advantages.dtype == torch.float32
    assert result.total_weight == sum(len(members) for members in scores.values())
