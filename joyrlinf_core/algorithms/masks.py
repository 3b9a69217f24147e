"""Which actions count: played, and not after the end of their episode.

T chunk steps, B columns, C actions per chunk. An episode of a column is the run of chunks that
share an episode number; its place among the column's episodes in the window is its segment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from joyrlinf_core.batch.layout import RewardLevel
    from joyrlinf_core.batch.rollout import RolloutBatch


@dataclass(frozen=True)
class EpisodeMask:
    """Masks of a rollout.

    Attributes:
        segment: int64 [T, B], place of the row's episode among those of its column, from 0.
        valid: bool [T, B, C], the action was executed; the one that ends the episode included.
        finished: bool [T, B], the row's episode is a whole trajectory. With `auto_reset` that
            needs a done inside the window; without, every window is one.
        valid_actions: int64 [T, B], valid actions of the row's episode.
    """

    segment: Tensor
    valid: Tensor
    finished: Tensor
    valid_actions: Tensor


def episode_mask(batch: RolloutBatch, *, auto_reset: bool) -> EpisodeMask:
    """Return the masks of a rollout.

    Args:
        batch: The rollout.
        auto_reset: Whether an episode can go on after the window.
    """
    t, b, c = batch.shape
    starts = batch.episode != batch.episode.roll(1, dims=0)
    starts[0] = True
    segment = starts.long().cumsum(0) - 1

    done = (batch.dones & batch.played.unsqueeze(-1)).transpose(1, 2).reshape(t * c, b).long()
    done_before = done.cumsum(0) - done
    # The running count never falls, so the running maximum of its values at episode starts is its
    # value at the latest start.
    at_start = done_before[::c].where(starts, done_before.new_zeros(()))
    done_before = done_before.reshape(t, c, b) - at_start.cummax(0).values.unsqueeze(1)
    valid = batch.played.unsqueeze(-1) & (done_before == 0).transpose(1, 2)

    finished = batch.played.new_ones(t, b)
    if auto_reset:
        finished = spread(segment_sum((batch.dones & valid).sum(-1), segment), segment) > 0
    valid_actions = spread(segment_sum(valid.sum(-1), segment), segment)
    return EpisodeMask(segment, valid, finished, valid_actions)


def at_level(valid: Tensor, level: RewardLevel) -> Tensor:
    """Return the mask [T, B, C] at the reward level; a chunk counts if any of its actions does."""
    return valid.any(-1) if level == "chunk_level" else valid


def segment_sum(values: Tensor, segment: Tensor) -> Tensor:
    """Sum values [T, B] over each segment: result [T, B], row k for the column's segment k."""
    return values.new_zeros(values.shape).scatter_add(0, segment, values)


def spread(table: Tensor, segment: Tensor) -> Tensor:
    """Return for each row [T, B] the entry of its segment in a table [T, B]."""
    return table.gather(0, segment)
