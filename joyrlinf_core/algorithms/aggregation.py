"""How entries add up to a loss: every trajectory weighs the same, whatever its length.

An entry of a trajectory with v valid entries weighs 1/v. The loss of an optimizer step is

    sum over its entries of weight * L, divided by (trajectories / optimizer steps per epoch)

both counted over all ranks. One step per epoch gives the mean over trajectories of each one's own
masked mean; with several, the mean of their losses is that number. Where episodes are as long as
the window this equals the mean over all entries of L * mask * (window / v). The divisor is known
before the loss is, so micro-batches, ranks and dropped rows of weight zero change nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from joyrlinf_core.algorithms.masks import segment_sum, spread
from joyrlinf_core.batch.layout import reduce_to

if TYPE_CHECKING:
    from torch import Tensor


def trajectory_weights(mask: Tensor, segment: Tensor) -> Tensor:
    """Return weights that sum to 1 over each trajectory.

    Args:
        mask: bool [T, B] or [T, B, C], valid entries.
        segment: int64 [T, B], place of the row's episode in its column.

    Returns:
        float32, shape of `mask`; zero where it is False.
    """
    per_row = mask if mask.dim() == 2 else mask.sum(-1)
    entries = spread(segment_sum(per_row.long(), segment), segment).clamp(min=1)
    if mask.dim() == 3:
        entries = entries.unsqueeze(-1)
    return mask.float() / entries


def normaliser(total_weight: float, minibatches: int) -> float:
    """Return the divisor of an optimizer step's weighted sum.

    Args:
        total_weight: `AdvantageResult.total_weight`, summed over all actors.
        minibatches: Optimizer steps per update epoch.
    """
    return max(total_weight, 1.0) / minibatches


def weighted_sum(loss: Tensor, weights: Tensor, normaliser: float) -> Tensor:
    """Return the scalar that this micro-batch adds to its step's loss.

    Args:
        loss: Loss of each entry, at the level of `weights` or finer; finer axes are averaged.
        weights: float32 [m] or [m, C].
        normaliser: From `normaliser`.
    """
    return (reduce_to(loss, weights.dim()) * weights).sum() / normaliser
