"""Advantage: a trajectory's score less the mean score of the others in its group."""

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
    from joyrlinf_core.algorithms.base import AdvantageContext
    from joyrlinf_core.batch.rollout import RolloutBatch


def compute(batch: RolloutBatch, context: AdvantageContext) -> AdvantageResult:
    """Return the advantages of a rollout."""
    masks = episode_mask(batch, auto_reset=context.auto_reset)
    table = trajectories(batch, masks)
    groups = group_statistics(table, batch.group)
    kept = kept_groups(groups, context.config)

    # score - mean of the other n - 1  =  (score - mean of all n) * n / (n - 1)
    factor = groups.size / (groups.size - 1).clamp(min=1)
    mean = groups.per_trajectory(groups.mean, default=0.0)
    advantage = (table.score - mean) * groups.per_trajectory(factor, default=0.0)

    valid = at_level(masks.valid & masks.finished.unsqueeze(-1), context.config.reward_type)
    chosen = spread(groups.per_trajectory(kept, default=0), masks.segment)
    mask = valid & expand_to(chosen, valid)
    return AdvantageResult(
        advantages=expand_to(spread(advantage.float(), masks.segment), mask) * mask,
        returns=None,
        mask=mask,
        weights=trajectory_weights(valid, masks.segment) * mask,
        total_weight=float(table.finished.sum()),
        valid_actions=masks.valid_actions,
        metrics=rollout_metrics(table, groups, kept, num_tasks=context.num_tasks),
    )
