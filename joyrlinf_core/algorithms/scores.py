"""Trajectories of a window and their scores.

A table has the shape [T, B]: row k holds the k-th episode of a column in this window, so that
nothing here depends on how many episodes a column has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from joyrlinf_core.algorithms.masks import segment_sum

if TYPE_CHECKING:
    from torch import Tensor

    from joyrlinf_core.algorithms.masks import EpisodeMask
    from joyrlinf_core.batch.rollout import RolloutBatch


@dataclass(frozen=True)
class Trajectories:
    """Tables [T, B] by (place in the window, column).

    Attributes:
        exists: bool, something was played.
        finished: bool, it exists and is a whole trajectory.
        score: float64, undiscounted sum of the rewards of valid actions.
        length: int64, valid actions.
        success: bool, it was successful at some step.
        episode: int64, number of the env's episode in the run.
        task: int64, its task.
    """

    exists: Tensor
    finished: Tensor
    score: Tensor
    length: Tensor
    success: Tensor
    episode: Tensor
    task: Tensor


def valid_rewards(batch: RolloutBatch, mask: EpisodeMask) -> Tensor:
    """Return rewards float32 [T, B, C] without those after an episode's end."""
    return batch.rewards.masked_fill(~mask.valid, 0.0)


def trajectories(batch: RolloutBatch, mask: EpisodeMask) -> Trajectories:
    """Return the trajectories of a window."""
    length = segment_sum(mask.valid.sum(-1), mask.segment)
    exists = length > 0
    finished = segment_sum(mask.finished.long(), mask.segment) > 0
    success = segment_sum((batch.success & mask.valid.any(-1)).long(), mask.segment) > 0
    return Trajectories(
        exists=exists,
        finished=exists & finished,
        score=segment_sum(valid_rewards(batch, mask).double().sum(-1), mask.segment),
        length=length,
        success=success,
        episode=batch.episode.new_zeros(exists.shape).scatter(0, mask.segment, batch.episode),
        task=batch.task.new_zeros(exists.shape).scatter(0, mask.segment, batch.task),
    )
