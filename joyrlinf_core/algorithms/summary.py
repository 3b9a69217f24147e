"""Metrics of a rollout's trajectories and groups, mergeable over ranks.

Names are the same on every rank: a task that a rank did not meet has a metric of no entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from joyrlinf_core.batch.metrics import Metric

if TYPE_CHECKING:
    from torch import Tensor

    from joyrlinf_core.algorithms.groups import Groups
    from joyrlinf_core.algorithms.scores import Trajectories


def rollout_metrics(
    table: Trajectories, groups: Groups, kept: Tensor, *, num_tasks: int
) -> dict[str, Metric]:
    """Return what the window was like.

    Args:
        table: Trajectories of the window.
        groups: Groups of the window.
        kept: bool [P], groups that the filter keeps.
        num_tasks: Number of tasks; above one, success and groups are also told apart by task as
            `success_once/task_<i>`.
    """
    whole = table.finished
    score = table.score[whole]
    metrics = {
        "return": mean_of(score),
        "return_max": Metric(float(score.max()) if score.numel() else -float("inf"), 1, "max"),
        "return_min": Metric(float(score.min()) if score.numel() else float("inf"), 1, "min"),
        "episode_length": mean_of(table.length[whole]),
        "trajectories": count_of(whole),
        "trajectories_unfinished": count_of(table.exists & ~whole),
        "trajectories_without_partner": count_of(groups.size == 1),
    }
    metrics |= _outcomes(table.success[whole], groups.varied, kept, "")
    if num_tasks > 1:
        for task in range(num_tasks):
            mine = groups.task == task
            success = table.success[whole & (table.task == task)]
            metrics |= _outcomes(success, groups.varied[mine], kept[mine], f"/task_{task}")
    return metrics


def mean_of(values: Tensor) -> Metric:
    """Return the mean of all entries as a metric."""
    return Metric(float(values.double().sum()), values.numel())


def count_of(flags: Tensor) -> Metric:
    """Return the number of True entries as a metric that adds up."""
    return Metric(float(flags.sum()), 1, "sum")


def _outcomes(success: Tensor, varied: Tensor, kept: Tensor, suffix: str) -> dict[str, Metric]:
    return {
        f"success_once{suffix}": mean_of(success),
        f"groups{suffix}": count_of(varied | ~varied),
        f"groups_with_variance{suffix}": count_of(varied),
        f"groups_kept{suffix}": count_of(kept),
        f"groups_trained{suffix}": count_of(kept & varied),
    }
