"""Contracts of advantage estimators and losses.

An advantage file exports `compute(batch, context) -> AdvantageResult`, a loss file
`compute(inputs, config) -> LossOutput`. Both are pure: no collective, no randomness, no state. A
loss whose rows teach something even where their advantage is zero says so with a module constant
`uses_values = True`; otherwise such rows are left out. No torch at module level anywhere in this
package; tensor methods do.

Shapes: T chunk steps, B columns, C actions per chunk, D env action dims, m rows of a micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from joyrlinf_core.batch.metrics import Metric
    from joyrlinf_core.batch.rollout import RolloutBatch
    from joyrlinf_core.batch.train import AdvantageResult
    from joyrlinf_core.config.schema import AlgorithmConfig


def own_sum(values: Tensor) -> Tensor:
    """Return `values`: the sum over ranks where there is one rank."""
    return values


@dataclass(frozen=True)
class AdvantageContext:
    """What an estimator needs beside the rollout.

    Attributes:
        config: `algorithm` section.
        auto_reset: Whether episodes go on across windows (`env.train.auto_reset`).
        num_tasks: Number of tasks of the env.
        sum_over_actors: Sums a float64 vector over all actors. Every actor calls it equally often.
    """

    config: AlgorithmConfig
    auto_reset: bool = False
    num_tasks: int = 1
    sum_over_actors: Callable[[Tensor], Tensor] = own_sum


ComputeAdvantages = Callable[["RolloutBatch", AdvantageContext], "AdvantageResult"]


@dataclass(frozen=True)
class LossInputs:
    """One micro-batch, as a loss reads it.

    Attributes:
        logprobs: float32 [m, C, D] under the current weights, with gradients.
        old_logprobs: float32 [m], [m, C] or [m, C, D] by `logprob_type`, under the policy that
            acted.
        advantages: float32 [m] or [m, C] by `reward_type`.
        mask: bool, shape of `advantages`.
        weights: float32, shape of `advantages`.
        normaliser: Divides the weighted sum; the same number in every micro-batch of every rank of
            one optimizer step (`aggregation.normaliser`). Losses and gradients of micro-batches and
            ranks therefore add up; nothing is averaged.
        entropy: float32 [m] with gradients, or None.
        values: float32 [m] or [m, C] with gradients, or None.
        old_values: float32 [m] or [m, C], or None.
        returns: float32, shape of `advantages`, or None.
        proximal_logprobs: float32, shape of `old_logprobs`: log-probs under the weights at the
            update's start. Given, the ratio is clipped around them and the step from the policy
            that acted becomes a weight (decoupled loss).
        versions: int64 [m], weight version that acted. With `next_version` and without
            `proximal_logprobs`, the proximal log-probs are interpolated.
        next_version: Weight version that this update makes.
        behaviour_weight_max: Entries of the decoupled loss whose behaviour weight is larger are
            dropped; None keeps all.
    """

    logprobs: Tensor
    old_logprobs: Tensor
    advantages: Tensor
    mask: Tensor
    weights: Tensor
    normaliser: float
    entropy: Tensor | None = None
    values: Tensor | None = None
    old_values: Tensor | None = None
    returns: Tensor | None = None
    proximal_logprobs: Tensor | None = None
    versions: Tensor | None = None
    next_version: int | None = None
    behaviour_weight_max: float | None = None


@dataclass(frozen=True)
class LossOutput:
    """What a micro-batch adds to the loss of its optimizer step.

    Attributes:
        loss: Scalar with gradients. Summed over micro-batches and ranks it is the step's loss.
        parts: Detached terms of `loss` by name; they sum in the same way.
        metrics: Mergeable numbers over the valid entries of this micro-batch.
    """

    loss: Tensor
    parts: Mapping[str, Tensor]
    metrics: Mapping[str, Metric] = field(default_factory=dict)


ComputeLoss = Callable[[LossInputs, "AlgorithmConfig"], LossOutput]
