"""`actor_critic`: the `actor` loss plus a clipped Huber loss of the value head.

V_clipped = V_old + clamp(V - V_old, +-value_clip)
L_value = max(huber(return - V), huber(return - V_clipped))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from joyrlinf_core.algorithms.aggregation import weighted_sum
from joyrlinf_core.algorithms.base import LossOutput
from joyrlinf_core.algorithms.losses import actor
from joyrlinf_core.batch.layout import expand_to
from joyrlinf_core.batch.metrics import Metric
from joyrlinf_core.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from joyrlinf_core.algorithms.base import LossInputs
    from joyrlinf_core.config.schema import AlgorithmConfig

uses_values = True


def compute(inputs: LossInputs, config: AlgorithmConfig) -> LossOutput:
    """Return policy loss, entropy term and `value_loss_coef` times the value loss."""
    policy = actor.compute(inputs, config)
    value, metrics = value_loss(inputs, config)
    weighted = config.value_loss_coef * value
    return LossOutput(
        loss=policy.loss + weighted,
        parts={**policy.parts, "value_loss": weighted.detach()},
        metrics={**policy.metrics, **metrics},
    )


def value_loss(inputs: LossInputs, config: AlgorithmConfig) -> tuple[Tensor, dict[str, Metric]]:
    """Return the weighted value loss (scalar) and its metrics."""
    if inputs.values is None or inputs.old_values is None or inputs.returns is None:
        raise ConfigError(
            message="algorithm.loss_type: actor_critic needs values and returns, but "
            + ("the policy has no value head" if inputs.values is None else "there are no returns"),
            fix="set actor.model.add_value_head: true and algorithm.adv_type: gae",
        )
    returns = inputs.returns
    values = expand_to(inputs.values, returns)
    old_values = expand_to(inputs.old_values, returns)
    moved = values - old_values
    near = old_values + moved.clamp(-config.value_clip, config.value_clip)
    entries = huber(returns - values, config.huber_delta).maximum(
        huber(returns - near, config.huber_delta)
    )
    metrics = {
        "value_clip_fraction": actor.masked_mean(moved.abs() > config.value_clip, inputs.mask),
        "value_mean": actor.masked_mean(values, inputs.mask),
        "return_target_mean": actor.masked_mean(returns, inputs.mask),
        "value_error": actor.masked_mean((returns - values).abs(), inputs.mask),
    }
    return weighted_sum(entries, inputs.weights, inputs.normaliser), metrics


def huber(error: Tensor, delta: float) -> Tensor:
    """Return e^2 / 2 where |e| < delta, else delta * (|e| - delta / 2)."""
    size = error.abs()
    return (0.5 * error**2).where(size < delta, delta * (size - 0.5 * delta))
