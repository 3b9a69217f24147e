"""Loss: importance-weighted policy gradient, without a clip."""

from __future__ import annotations

from typing import TYPE_CHECKING

from joyrlinf_core.algorithms.aggregation import weighted_sum
from joyrlinf_core.algorithms.base import LossOutput
from joyrlinf_core.algorithms.ratio import current_logprobs, log_ratio
from joyrlinf_core.batch.layout import expand_to

if TYPE_CHECKING:
    from joyrlinf_core.algorithms.base import LossInputs
    from joyrlinf_core.config.schema import AlgorithmConfig


def compute(inputs: LossInputs, config: AlgorithmConfig) -> LossOutput:
    """Return -A * ratio, added up."""
    logprobs = current_logprobs(inputs, config)
    mask = expand_to(inputs.mask, logprobs)
    ratio = log_ratio(logprobs, inputs.old_logprobs, mask, config.clip_log_ratio).exp()
    entries = -expand_to(inputs.advantages, logprobs) * ratio
    loss = weighted_sum(entries, inputs.weights, inputs.normaliser)
    return LossOutput(loss=loss, parts={"policy_loss": loss.detach()})
