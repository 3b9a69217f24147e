"""Groups: the finished trajectories that started from one initial state.

They share (group, episode number). P is the number of such pairs in a window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from joyrlinf_core.algorithms.scores import Trajectories


@dataclass(frozen=True)
class Groups:
    """Statistics of the scores of each group.

    Attributes:
        index: int64 [T, B], group of a trajectory; -1 where there is no finished trajectory.
        size: int64 [P], finished trajectories.
        mean: float64 [P].
        std: float64 [P], sample standard deviation; zero for a single trajectory.
        varied: bool [P], at least two trajectories and not all scores equal.
        task: int64 [P].
    """

    index: Tensor
    size: Tensor
    mean: Tensor
    std: Tensor
    varied: Tensor
    task: Tensor

    def per_trajectory(self, values: Tensor, default: float) -> Tensor:
        """Return for each trajectory [T, B] the value [P] of its group."""
        if not values.numel():
            return values.new_full(self.index.shape, default)
        return values[self.index.clamp(min=0)].masked_fill(self.index < 0, default)


def group_statistics(table: Trajectories, group: Tensor) -> Groups:
    """Return the groups of a window.

    Args:
        table: Trajectories of the window.
        group: int64 [B], global group number of each column.
    """
    used = table.finished
    episodes = int(table.episode.max()) + 1 if table.episode.numel() else 1
    keys, member = (group * episodes + table.episode)[used].unique(return_inverse=True)
    pairs = keys.shape[0]
    score = table.score[used]
    size = member.new_zeros(pairs).index_add(0, member, member.new_ones(member.shape))
    mean = score.new_zeros(pairs).index_add(0, member, score) / size
    squares = score.new_zeros(pairs).index_add(0, member, (score - mean[member]) ** 2)
    highest = score.new_full((pairs,), -float("inf")).scatter_reduce(0, member, score, "amax")
    lowest = score.new_full((pairs,), float("inf")).scatter_reduce(0, member, score, "amin")
    return Groups(
        index=member.new_full(used.shape, -1).masked_scatter(used, member),
        size=size,
        mean=mean,
        std=(squares / (size - 1).clamp(min=1)).sqrt(),
        # Comparing extremes and not the deviation: equal scores can have a rounded mean, and then a
        # tiny deviation.
        varied=highest > lowest,
        task=table.task.new_zeros(pairs).scatter(0, member, table.task[used]),
    )
