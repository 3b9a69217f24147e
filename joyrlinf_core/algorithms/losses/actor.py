"""`actor`: PPO's clipped surrogate (arXiv 1707.06347, eq. 7) with dual clip, without a critic.

    ratio = exp(clamp(logp - logp_old))
    L = max(-A * ratio, -A * clip(ratio, 1 - low, 1 + high));   for A < 0 also L = min(L, -c * A)

With proximal log-probs the ratio is taken to those, and exp(logp_proximal - logp_old) weighs L
(decoupled objective, arXiv 2110.00641, eq. 4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from joyrlinf_core.algorithms.aggregation import weighted_sum
from joyrlinf_core.algorithms.base import LossOutput
from joyrlinf_core.algorithms.ratio import current_logprobs, log_ratio, proximal_logprobs
from joyrlinf_core.batch.layout import check_pair, expand_to
from joyrlinf_core.batch.metrics import Metric
from joyrlinf_core.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from joyrlinf_core.algorithms.base import LossInputs
    from joyrlinf_core.config.schema import AlgorithmConfig


def compute(inputs: LossInputs, config: AlgorithmConfig) -> LossOutput:
    """Return the policy loss, less the entropy bonus."""
    loss, metrics = policy_loss(inputs, config)
    parts = {"policy_loss": loss.detach()}
    if inputs.entropy is not None:
        per_row = inputs.weights if inputs.weights.dim() == 1 else inputs.weights.sum(-1)
        rows = inputs.mask if inputs.mask.dim() == 1 else inputs.mask.any(-1)
        metrics["entropy"] = masked_mean(inputs.entropy, rows)
        if config.entropy_bonus:
            bonus = config.entropy_bonus * weighted_sum(inputs.entropy, per_row, inputs.normaliser)
            loss = loss - bonus
            parts["entropy_loss"] = -bonus.detach()
    elif config.entropy_bonus:
        raise ConfigError(
            message=f"algorithm.entropy_bonus: {config.entropy_bonus}, but this policy has no "
            "entropy",
            fix="set algorithm.entropy_bonus: 0",
        )
    return LossOutput(loss=loss, parts=parts, metrics=metrics)


def policy_loss(inputs: LossInputs, config: AlgorithmConfig) -> tuple[Tensor, dict[str, Metric]]:
    """Return the weighted clipped surrogate (scalar) and its metrics."""
    check_pair(config.reward_type, config.logprob_type)
    logprobs = current_logprobs(inputs, config)
    advantages = expand_to(inputs.advantages, logprobs)
    mask = expand_to(inputs.mask, logprobs)

    proximal = proximal_logprobs(logprobs, inputs)
    weight = None
    metrics: dict[str, Metric] = {}
    if proximal is not None:
        weight, kept = _behaviour_weight(proximal, mask, inputs, config)
        metrics["behaviour_weight"] = masked_mean(weight, mask)
        metrics["behaviour_clip_fraction"] = masked_mean(~kept, mask)
        metrics["behaviour_approx_kl"] = masked_mean(inputs.old_logprobs - proximal, mask)
        weight = weight * kept
    reference = inputs.old_logprobs if proximal is None else proximal
    change = log_ratio(logprobs, reference, mask, config.clip_log_ratio)
    ratio = change.exp()

    plain = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - config.clip_ratio_low, 1 + config.clip_ratio_high)
    entries = plain.maximum(clipped)
    if config.clip_ratio_c is not None:
        # Bounds what a bad action can cost whose probability has grown. For A >= 0 the surrogate is
        # never positive, so |A| * c bounds nothing there.
        ceiling = config.clip_ratio_c * advantages.abs()
        metrics["dual_clip_fraction"] = masked_mean(ceiling < entries, mask)
        entries = entries.minimum(ceiling)
    if weight is not None:
        entries = entries * weight
    metrics |= _ratio_metrics(change.detach(), ratio.detach(), plain < clipped, mask)
    return weighted_sum(entries, inputs.weights, inputs.normaliser), metrics


def masked_mean(values: Tensor, mask: Tensor) -> Metric:
    """Return the mean over the entries of a mask of the same shape, as a metric."""
    return Metric(values.detach().float().masked_fill(~mask, 0.0).sum(), mask.sum())


def _behaviour_weight(
    proximal: Tensor, mask: Tensor, inputs: LossInputs, config: AlgorithmConfig
) -> tuple[Tensor, Tensor]:
    """Return exp(logp_proximal - logp_old), and where it is small enough to be used."""
    change = log_ratio(proximal, inputs.old_logprobs, mask, config.clip_log_ratio)
    weight = change.exp()
    limit = inputs.behaviour_weight_max
    return weight, weight <= (float("inf") if limit is None else limit)


def _ratio_metrics(
    change: Tensor, ratio: Tensor, is_clipped: Tensor, mask: Tensor
) -> dict[str, Metric]:
    """Return how far the policy has moved, over the valid entries.

    `approx_kl` is -log ratio, whose mean estimates KL(reference, current); `approx_kl_k3` is
    ratio - 1 - log ratio, which estimates the same with less variance and is never negative.
    """
    count = mask.sum()
    infinity = float("inf")
    return {
        "clip_fraction": masked_mean(is_clipped, mask),
        "approx_kl": masked_mean(-change, mask),
        "approx_kl_k3": masked_mean(ratio - 1 - change, mask),
        "ratio_mean": masked_mean(ratio, mask),
        "ratio_max": Metric(ratio.masked_fill(~mask, -infinity).amax(), count, "max"),
        "ratio_min": Metric(ratio.masked_fill(~mask, infinity).amin(), count, "min"),
    }
