"""`Objective`: advantage estimator and loss of a config, and the pure steps between them.

What needs other ranks, a policy or an optimizer is the learner's. `joyrl shape-check` runs the same
steps on synthetic rollouts. No torch at module level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from joyrlinf_core import registry
from joyrlinf_core.algorithms.base import AdvantageContext, LossInputs, own_sum
from joyrlinf_core.batch.metrics import Metric

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from joyrlinf_core.algorithms.base import LossOutput
    from joyrlinf_core.batch.rollout import RolloutBatch
    from joyrlinf_core.batch.train import AdvantageResult, TrainBatch
    from joyrlinf_core.config.schema import AlgorithmConfig, EnvConfig


class Objective:
    """What an update maximises.

    Args:
        algorithm: `algorithm` section; names the estimator and the loss.
        env: `env.train` section.
    """

    def __init__(self, algorithm: AlgorithmConfig, env: EnvConfig) -> None:
        self._algorithm = algorithm
        self._env = env
        self._estimator: Any = registry.load("advantages", algorithm.adv_type)
        self._loss: Any = registry.load("losses", algorithm.loss_type)
        self.uses_values = bool(getattr(self._loss, "uses_values", False))
        """Whether a row teaches something even where its advantage is zero."""

    def advantages(
        self, batch: RolloutBatch, sum_over_actors: Callable[[Tensor], Tensor] = own_sum
    ) -> AdvantageResult:
        """Return the advantages of one actor's rollout.

        Args:
            batch: Its rollout.
            sum_over_actors: See `AdvantageContext`.
        """
        context = AdvantageContext(
            config=self._algorithm,
            auto_reset=self._env.auto_reset,
            num_tasks=len(self._env.task_prompts),
            sum_over_actors=sum_over_actors,
        )
        return self._estimator.compute(batch, context)

    def active_rows(self, flat: TrainBatch, rows: Tensor) -> Tensor:
        """Return those of `rows` int64 [m] that can change the loss."""
        from joyrlinf_core.batch import minibatch

        policy_only = not self.uses_values and not self._algorithm.entropy_bonus
        return minibatch.active_rows(flat, rows, policy_only=policy_only)

    def loss(
        self,
        rows: TrainBatch,
        normaliser: float,
        *,
        logprobs: Tensor,
        entropy: Tensor | None,
        values: Tensor | None,
        next_version: int | None = None,
    ) -> LossOutput:
        """Return the loss of a micro-batch.

        Args:
            rows: Its m rows.
            normaliser: See `LossInputs`.
            logprobs: float32 [m, C, D] of the stored actions under the current weights.
            entropy: float32 [m], or None where the policy has none.
            values: float32 [m], or None without a value head.
            next_version: Weight version that this update makes, where the loss is to take the age
                of samples into account (decoupled loss); None where all are of one version.
        """
        inputs = LossInputs(
            logprobs=logprobs,
            old_logprobs=rows.prev_logprobs,
            advantages=rows.advantages,
            mask=rows.mask,
            weights=rows.weights,
            normaliser=normaliser,
            entropy=entropy,
            values=values,
            old_values=rows.prev_values,
            returns=rows.returns,
            proximal_logprobs=rows.proximal_logprobs,
            versions=rows.versions,
            next_version=next_version,
            behaviour_weight_max=self._algorithm.behaviour_weight_max,
        )
        return self._loss.compute(inputs, self._algorithm)


def loss_metrics(output: LossOutput, samples: int, share: float) -> dict[str, Metric]:
    """Return the metrics of a micro-batch.

    Args:
        output: What the loss returned.
        samples: Rows of the micro-batch.
        share: How much it counts in the mean over the micro-batches of all ranks. Their loss terms
            add up, so their shares have to make one.
    """
    metrics = {name: Metric(value, share) for name, value in output.parts.items()}
    metrics |= output.metrics
    metrics["samples"] = Metric(float(samples), 1.0, "sum")
    return metrics
