"""The learner: advantages of a rollout, then the optimizer steps on it.

A rollout is flattened to rows, one a chunk of one env. A minibatch is the rows of one optimizer
step; a rank computes those that can change the loss, micro-batch by micro-batch.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch

from joyrlinf_core.algorithms import aggregation
from joyrlinf_core.algorithms.objective import Objective, loss_metrics
from joyrlinf_core.batch import minibatch
from joyrlinf_core.batch.flatten import flatten
from joyrlinf_core.batch.layout import reduce_logprobs
from joyrlinf_core.batch.metrics import Metric, merge
from joyrlinf_core.comm.sharding import full_state, load_full_state, shard
from joyrlinf_core.engine.optim import build_learning_rate, build_optimizer, clip_gradients
from joyrlinf_core.errors import NonFiniteError, RunFailedError
from joyrlinf_core.observability import activity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from joyrlinf_core.algorithms.base import LossOutput
    from joyrlinf_core.batch.rollout import RolloutBatch
    from joyrlinf_core.batch.train import TrainBatch
    from joyrlinf_core.comm.collectives import Collectives
    from joyrlinf_core.comm.sharding import TrainingState
    from joyrlinf_core.engine.context import JobContext
    from joyrlinf_core.observability.timers import PhaseTimer
    from joyrlinf_core.policies.base import Policy


class _MicroBatch(NamedTuple):
    """Rows of one forward and backward pass.

    Attributes:
        rows: int64 [m], rows of the flat batch.
        padding: Adds nothing to loss and metrics; is there because ranks with shards of the weights
            have to make equally many passes.
    """

    rows: Tensor
    padding: bool


class Learner:
    """Optimizer and update of one actor rank.

    Args:
        context: This worker.
        policy: The policy, on any device; moved to the worker's and sharded where the plan says so.
        collectives: All actor ranks.
        timer: Wall times by phase.
    """

    def __init__(
        self, context: JobContext, policy: Policy, collectives: Collectives, timer: PhaseTimer
    ) -> None:
        self._config = context.plan.config
        self._algorithm = context.plan.config.algorithm
        self._plan = context.plan.batch
        self._device = context.device
        self._collectives = collectives
        self._timer = timer
        self._policy = policy
        policy.module.to(context.device).eval()
        self.sharded = self._wants_shards()
        if self.sharded:
            shard(policy, context.device, collectives.group)
        # Loss weights add up to one over all ranks, so gradients are to be summed; FSDP2 averages.
        self._gradient_scale = float(collectives.world_size if self.sharded else 1)
        self._parameters = [parameter for _, parameter in policy.trainable_parameters()]
        optim = self._config.actor.optim
        self._optimizer = build_optimizer(policy, optim)
        self._scheduler = build_learning_rate(self._optimizer, optim, self._config.runner.max_steps)
        self._objective = Objective(self._algorithm, self._config.env.train)
        self._decoupled = self._algorithm.pipeline_mode == "async"

    def update(self, batch: RolloutBatch, step: int) -> dict[str, Metric]:
        """Train on one rollout.

        Args:
            batch: This rank's columns.
            step: Training step, counted from 0; names the shuffle streams. Also the version of the
                weights at the start.

        Returns:
            Metrics of this rank, to be merged over ranks; `rollout/...` and `train/...`.
        """
        with self._timer("update/advantages"):
            result = self._objective.advantages(batch, self._sum_tensor)
            flat = flatten(batch, result, self._algorithm.logprob_type)
            (total_weight,) = self._collectives.sum([result.total_weight])
            normaliser = aggregation.normaliser(total_weight, self._plan.optimizer_steps_per_epoch)
            stale = self._collectives.any(flag=bool((batch.versions != step)[batch.played].any()))
        if self._decoupled and self._algorithm.proximal == "exact":
            with self._timer("update/proximal"):
                flat = replace(flat, proximal_logprobs=self._scores(flat))
        parts: list[Mapping[str, Metric]] = []
        for epoch in range(self._algorithm.update_epoch):
            minibatches = minibatch.minibatch_rows(
                flat.group,
                self._plan.optimizer_steps_per_epoch,
                seed=self._config.runner.seed,
                step=step,
                update_epoch=epoch,
            )
            for rows in minibatches:
                unchanged = all("steps_skipped" in part for part in parts)
                fresh = unchanged and not stale
                parts.append(self._optimizer_step(flat, rows, normaliser, step, check_ratio=fresh))
        learning_rate = self._optimizer.param_groups[0]["lr"]
        self._scheduler.step()
        metrics = {f"rollout/{name}": metric for name, metric in result.metrics.items()}
        metrics |= {f"train/{name}": metric for name, metric in merge(parts).items()}
        metrics["train/lr"] = Metric(learning_rate)
        if self._decoupled:
            metrics |= _staleness(step - batch.versions[batch.played])
        return metrics

    def state(self) -> TrainingState:
        """Return what a resumed run needs, complete on the main rank; called on all actors."""
        return full_state(
            self._policy,
            self._optimizer,
            self._scheduler,
            sharded=self.sharded,
            keep=self._collectives.is_main,
        )

    def load(self, state: TrainingState) -> None:
        """Continue from a state; called on all actors."""
        load_full_state(self._policy, self._optimizer, self._scheduler, state, sharded=self.sharded)

    def _wants_shards(self) -> bool:
        fsdp = self._config.actor.fsdp
        if fsdp.strategy == "auto":
            count = sum(p.numel() for _, p in self._policy.trainable_parameters())
            return self._collectives.world_size > 1 and count > fsdp.shard_above_params
        return fsdp.strategy == "fsdp2" and self._collectives.world_size > 1

    def _sum_tensor(self, values: Tensor) -> Tensor:
        return values.new_tensor(self._collectives.sum(values.tolist()))

    @torch.no_grad()
    def _scores(self, flat: TrainBatch) -> Tensor:
        """Return log-probs of the stored actions under the current weights, where they count."""
        rows = torch.arange(flat.num_rows)
        logprobs = flat.prev_logprobs.clone()
        for micro_batch in self._micro_batches(self._objective.active_rows(flat, rows), rows):
            activity.moved()
            part = flat.rows(micro_batch.rows).to(self._device)
            scores = self._policy.evaluate_actions(part.inputs, part.replay)
            reduced = reduce_logprobs(scores.logprobs, self._algorithm.logprob_type)
            if not micro_batch.padding:
                logprobs[micro_batch.rows] = reduced.to(logprobs.device)
        return logprobs

    def _optimizer_step(
        self, flat: TrainBatch, rows: Tensor, normaliser: float, step: int, *, check_ratio: bool
    ) -> dict[str, Metric]:
        """Accumulate the gradient of one global minibatch and step; return its metrics.

        Rows that can't change the loss are not computed; the normaliser counts them all the same.

        Args:
            flat: The rollout.
            rows: int64 [m], this rank's rows of the minibatch.
            normaliser: Divisor of the weighted sum of all ranks, the same for every minibatch.
            step: Training step, counted from 0.
            check_ratio: The policy is still the one that acted, so every ratio has to be one.
        """
        active = self._objective.active_rows(flat, rows)
        (active_ranks,) = self._collectives.sum([float(len(active) > 0)])
        if not active_ranks:
            return {"steps_skipped": Metric(1.0, 1.0, "sum")}
        self._optimizer.zero_grad(set_to_none=True)
        parts: list[Mapping[str, Metric]] = []
        micro_batches = self._micro_batches(active, rows)
        computed = sum(not micro_batch.padding for micro_batch in micro_batches)
        share = 1 / (active_ranks * max(1, computed))
        for micro_batch in micro_batches:
            # One block each: its begin and end are signs of life.
            with self._timer("update/forward_backward"):
                output = self._loss_of(flat, micro_batch, normaliser, step)
                (output.loss * self._gradient_scale).backward()
                if not micro_batch.padding:
                    parts.append(loss_metrics(output, len(micro_batch.rows), share))
        metrics = merge(parts)
        if check_ratio:
            self._check_first_ratio(metrics)
        with self._timer("update/gradients"):
            if not self.sharded:
                self._collectives.sum_gradients(self._parameters)
            norm = clip_gradients(self._parameters, self._config.actor.optim.clip_grad)
        if self._is_finite(norm, metrics):
            with self._timer("update/optimizer"):
                self._optimizer.step()
            metrics["grad_norm"] = Metric(norm)
        else:
            metrics["steps_nonfinite"] = Metric(1.0, 1.0, "sum")
        return metrics

    def _micro_batches(self, active: Tensor, rows: Tensor) -> list[_MicroBatch]:
        """Cut the active rows of a minibatch; pad with its first row where weights are sharded."""
        size = self._config.actor.micro_batch_size
        parts = [_MicroBatch(part, padding=False) for part in minibatch.micro_batches(active, size)]
        if self.sharded:
            wanted = int(self._collectives.max(len(parts)))
            parts += [_MicroBatch(rows[:1], padding=True)] * (wanted - len(parts))
        return parts

    def _loss_of(
        self, flat: TrainBatch, micro_batch: _MicroBatch, normaliser: float, step: int
    ) -> LossOutput:
        """Score the actions of a micro-batch under the current weights and compute its loss."""
        batch = flat.rows(micro_batch.rows).to(self._device)
        scores = self._policy.evaluate_actions(batch.inputs, batch.replay)
        if micro_batch.padding:
            batch = replace(batch, weights=batch.weights * 0)
        return self._objective.loss(
            batch,
            normaliser,
            logprobs=scores.logprobs,
            entropy=scores.entropy,
            values=scores.values,
            next_version=step + 1 if self._decoupled else None,
        )

    def _check_first_ratio(self, metrics: Mapping[str, Metric]) -> None:
        """Before any weight has changed, recomputed log-probs must be those of the rollout."""
        tolerance = self._policy.ratio_tolerance
        own = max(
            (
                abs(metrics[name].value() - 1)
                for name in ("ratio_max", "ratio_min")
                if name in metrics
            ),
            default=0.0,
        )
        error = self._collectives.max(own)
        if not error <= tolerance:
            raise RunFailedError(
                f"recomputed log-probs differ from those of the rollout before the first optimizer "
                f"step: |ratio - 1| is {error:.3g}, allowed are {tolerance:.3g}",
                fix="rollout and update do not run the same policy: look for dropout, another "
                "precision, or inputs that are not stored",
            )

    def _is_finite(self, norm: float, metrics: Mapping[str, Metric]) -> bool:
        losses = {name: m.value() for name, m in metrics.items() if name.endswith("_loss")}
        bad = [f"{name} = {value}" for name, value in losses.items() if not math.isfinite(value)]
        finite = math.isfinite(norm) and not bad
        if not self._collectives.any(flag=not finite):
            return True
        if self._algorithm.on_nonfinite == "stop":
            if self._collectives.any(flag=bool(bad)) and not bad:
                # The norm is that of all ranks. Those whose loss it was speak first.
                self._collectives.barrier()
            bad += [f"gradient norm = {norm}"] * (not math.isfinite(norm))
            raise NonFiniteError(
                f"the update is not finite: {', '.join(bad)}",
                fix="lower actor.optim.lr, or set algorithm.on_nonfinite: skip",
            )
        return False


def _staleness(age: Tensor) -> dict[str, Metric]:
    """Return metrics of the ages int64 [m] of samples, in weight versions."""
    count = len(age)
    if not count:
        return {}
    return {
        "train/staleness": Metric(float(age.sum()), float(count)),
        "train/staleness_max": Metric(float(age.max()), float(count), "max"),
        "train/versions": Metric(float(len(age.unique())), 1.0, "max"),
    }
