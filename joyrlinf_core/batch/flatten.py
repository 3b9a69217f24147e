"""Rollout and advantages -> flat training batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from joyrlinf_core.batch.layout import LogprobLevel, reduce_logprobs, split_tokens
from joyrlinf_core.batch.train import TrainBatch

if TYPE_CHECKING:
    from torch import Tensor

    from joyrlinf_core.batch.rollout import RolloutBatch
    from joyrlinf_core.batch.train import AdvantageResult


def flatten(batch: RolloutBatch, result: AdvantageResult, logprob_type: LogprobLevel) -> TrainBatch:
    """Return the flat batch; policy inputs are views of the rollout's, not copies.

    Args:
        batch: Rollout of one actor.
        result: Its advantages.
        logprob_type: Level that the stored log-probs are reduced to, once.
    """
    t, b, chunk = batch.shape
    logprobs = reduce_logprobs(split_tokens(batch.prev_logprobs, chunk), logprob_type)
    return TrainBatch(
        inputs={name: value.flatten(0, 1) for name, value in batch.inputs.items()},
        replay={name: value.flatten(0, 1) for name, value in batch.replay.items()},
        actions=batch.actions.flatten(0, 1),
        prev_logprobs=logprobs.flatten(0, 1),
        advantages=result.advantages.flatten(0, 1),
        mask=result.mask.flatten(0, 1),
        weights=result.weights.flatten(0, 1),
        versions=batch.versions.flatten(0, 1),
        group=batch.group.expand(t, b).flatten(),
        column=(batch.group.new_ones(b).cumsum(0) - 1).expand(t, b).flatten(),
        returns=_flat(result.returns),
        prev_values=_flat(batch.prev_values),
    )


def _flat(value: Tensor | None) -> Tensor | None:
    return None if value is None else value.flatten(0, 1)
