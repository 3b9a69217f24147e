"""GRPO: a trajectory's score against those that started from the same state (arXiv 2402.03300).

Advantage = (score - mean) / (std + 1e-6) over the finished trajectories of (group, episode number),
with the sample standard deviation, the same for every action of the trajectory. Groups without
variance and trajectories without a partner get zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from joyrlinf_core.algorithms.aggregation import trajectory_weights
from joyrlinf_core.algorithms.filters import kept_groups
from joyrlinf_core.algorithms.groups import group_statistics
from joyrlinf_core.algorithms.masks import at_level, episode_mask, spread
from joyrlinf_core.algorithms.scores import trajectories
from joyrlinf_core.algorithms.summary import rollout_metrics
from joyrlinf_core.batch.layout import expand_to
from joyrlinf_core.batch.train import AdvantageResult

if TYPE_CHECKING:
    from torch import Tensor

    from joyrlinf_core.algorithms.base import AdvantageContext
    from joyrlinf_core.algorithms.groups import Groups
    from joyrlinf_core.algorithms.scores import Trajectories
    from joyrlinf_core.batch.rollout import RolloutBatch

_EPS = 1e-6


def compute(batch: RolloutBatch, context: AdvantageContext) -> AdvantageResult:
    """Return group-relative advantages; there are no returns, a value head learns nothing here."""
    config = context.config
    masks = episode_mask(batch, auto_reset=context.auto_reset)
    table = trajectories(batch, masks)
    groups = group_statistics(table, batch.group)
    kept = kept_groups(groups, config)

    valid = at_level(masks.valid & masks.finished.unsqueeze(-1), config.reward_type)
    chosen = spread(groups.per_trajectory(kept, default=0), masks.segment)
    mask = valid & expand_to(chosen, valid)
    advantages = expand_to(spread(_standardised(table, groups), masks.segment), mask)
    return AdvantageResult(
        advantages=advantages.masked_fill(~mask, 0.0),
        returns=None,
        mask=mask,
        weights=trajectory_weights(valid, masks.segment).masked_fill(~mask, 0.0),
        total_weight=float(table.finished.sum()),
        valid_actions=masks.valid_actions,
        metrics=rollout_metrics(table, groups, kept, num_tasks=context.num_tasks),
    )


def _standardised(table: Trajectories, groups: Groups) -> Tensor:
    """Return float32 [T, B], the advantage of each trajectory."""
    mean = groups.per_trajectory(groups.mean, default=0.0)
    std = groups.per_trajectory(groups.std, default=0.0)
    varied = groups.per_trajectory(groups.varied, default=0)
    return ((table.score - mean) / (std + _EPS)).masked_fill(~varied, 0.0).float()
