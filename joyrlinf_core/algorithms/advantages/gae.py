"""Generalised advantage estimation (arXiv 1506.02438, eq. 16), on chunks or on actions.

    delta = r + gamma * V_next - V;   A = delta + gamma * lambda * A_next;   return = A + V

At an episode's end A_next is zero and V_next is zero if it terminated; if the time limit or the
window cut it, V_next is the bootstrap value. An episode cut by the window is therefore trained on.
On actions, a value head with one value per chunk gives every action of the chunk that value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from joyrlinf_core.algorithms.aggregation import trajectory_weights
from joyrlinf_core.algorithms.filters import kept_groups
from joyrlinf_core.algorithms.groups import group_statistics
from joyrlinf_core.algorithms.masks import at_level, episode_mask, spread
from joyrlinf_core.algorithms.scores import trajectories, valid_rewards
from joyrlinf_core.algorithms.summary import rollout_metrics
from joyrlinf_core.batch.layout import expand_to
from joyrlinf_core.batch.metrics import Metric
from joyrlinf_core.batch.train import AdvantageResult

if TYPE_CHECKING:
    from torch import Tensor

    from joyrlinf_core.algorithms.base import AdvantageContext
    from joyrlinf_core.algorithms.masks import EpisodeMask
    from joyrlinf_core.batch.rollout import RolloutBatch

_EPS = 1e-5


@dataclass(frozen=True)
class _Sequence:
    """One time axis of L steps (chunks or actions), each tensor [L, B].

    Attributes:
        rewards: Rewards of valid actions.
        values: V of the step; zeros without a value head.
        ends: bool, the step is the last of its episode in this window.
        bootstrap: V_next where `ends` is True.
    """

    rewards: Tensor
    values: Tensor
    ends: Tensor
    bootstrap: Tensor


def compute(batch: RolloutBatch, context: AdvantageContext) -> AdvantageResult:
    """Return advantages and value targets.

    Without a value head gamma and lambda are 1 and the advantage is the reward to come.
    """
    config = context.config
    masks = episode_mask(batch, auto_reset=context.auto_reset)
    table = trajectories(batch, masks)
    groups = group_statistics(table, batch.group)
    kept = kept_groups(groups, config)

    valid = at_level(masks.valid, config.reward_type)
    # An unfinished episode has no score to be filtered by, so it stays.
    chosen = spread(groups.per_trajectory(kept, default=1), masks.segment)
    mask = valid & expand_to(chosen, valid)
    by_action = config.reward_type == "action_level"
    sequence = _actions(batch, masks) if by_action else _chunks(batch, masks)
    has_values = batch.prev_values is not None
    gamma, lam = (config.gamma, config.gae_lambda) if has_values else (1.0, 1.0)
    advantages = _scan(sequence, gamma, lam)
    returns = advantages + sequence.values
    if by_action:
        advantages, returns = _by_chunk(advantages, batch), _by_chunk(returns, batch)

    metrics = rollout_metrics(table, groups, kept, num_tasks=context.num_tasks)
    metrics["advantage_mean"] = Metric(float(advantages[mask].double().sum()), int(mask.sum()))
    if config.normalize_advantages:
        advantages = _normalised(advantages, mask, context)
    # Under auto_reset the pieces of episodes in a window are no trajectories; entries weigh the
    # same then.
    weights = valid.float() if context.auto_reset else trajectory_weights(valid, masks.segment)
    return AdvantageResult(
        advantages=advantages.float().masked_fill(~mask, 0.0),
        returns=returns.float().masked_fill(~mask, 0.0) if has_values else None,
        mask=mask,
        weights=weights.masked_fill(~mask, 0.0),
        total_weight=float(weights.double().sum()),
        valid_actions=masks.valid_actions,
        metrics=metrics,
    )


def _last_rows(masks: EpisodeMask) -> Tensor:
    """Return bool [T, B]: the chunk is the last of its segment."""
    last = masks.segment != masks.segment.roll(-1, dims=0)
    last[-1] = True
    return last


def _bootstrap(batch: RolloutBatch, masks: EpisodeMask) -> Tensor:
    """Return float32 [T, B]: value after the chunk, zero where the episode terminated in it."""
    if batch.next_values is None:
        return batch.rewards.new_zeros(batch.played.shape)
    terminated = (batch.terminations & masks.valid).any(-1)
    return batch.next_values.masked_fill(terminated, 0.0)


def _chunks(batch: RolloutBatch, masks: EpisodeMask) -> _Sequence:
    rewards = valid_rewards(batch, masks).sum(-1)
    values = batch.prev_values
    return _Sequence(
        rewards=rewards,
        values=rewards.new_zeros(rewards.shape) if values is None else values,
        ends=(batch.dones & masks.valid).any(-1) | _last_rows(masks),
        bootstrap=_bootstrap(batch, masks),
    )


def _actions(batch: RolloutBatch, masks: EpisodeMask) -> _Sequence:
    rewards = valid_rewards(batch, masks)
    values = batch.prev_values
    ends = batch.dones & masks.valid
    ends[..., -1] |= _last_rows(masks)
    return _Sequence(
        rewards=_by_action(rewards),
        values=_by_action(
            rewards.new_zeros(rewards.shape) if values is None else expand_to(values, rewards)
        ),
        ends=_by_action(ends),
        bootstrap=_by_action(expand_to(_bootstrap(batch, masks), rewards)),
    )


def _by_action(values: Tensor) -> Tensor:
    """[T, B, C] -> [T * C, B]."""
    return values.transpose(1, 2).flatten(0, 1)


def _by_chunk(values: Tensor, batch: RolloutBatch) -> Tensor:
    """[T * C, B] -> [T, B, C]."""
    t, b, c = batch.shape
    return values.reshape(t, c, b).transpose(1, 2)


def _scan(sequence: _Sequence, gamma: float, lam: float) -> Tensor:
    """Return A [L, B]."""
    advantages = sequence.rewards.new_zeros(sequence.rewards.shape)
    later = sequence.rewards.new_zeros(sequence.rewards.shape[1:])
    next_value = later
    for step in reversed(range(sequence.rewards.shape[0])):
        ends = sequence.ends[step]
        value = sequence.values[step]
        ahead = sequence.bootstrap[step].where(ends, next_value)
        delta = sequence.rewards[step] + gamma * ahead - value
        later = delta + gamma * lam * later.masked_fill(ends, 0.0)
        advantages[step] = later
        next_value = value
    return advantages


def _normalised(advantages: Tensor, mask: Tensor, context: AdvantageContext) -> Tensor:
    """Return (A - mean) / (std + 1e-5) over the valid entries of all actors."""
    entries = advantages[mask].double()
    moments = entries.new_tensor([0.0, 0.0, float(entries.numel())])
    moments[0], moments[1] = entries.sum(), (entries**2).sum()
    total, squares, count = context.sum_over_actors(moments).tolist()
    if count < 2:
        return advantages
    mean = total / count
    variance = max(squares - count * mean**2, 0.0) / (count - 1)
    return (advantages - mean) / (variance**0.5 + _EPS)
