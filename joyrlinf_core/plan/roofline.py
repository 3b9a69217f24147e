"""Throughput that a card allows: what is needed, over what it can do.

P peak FLOP/s times the share of it that is reached (MFU), W memory bytes per second:

    predict  max(rows x predict_flops / P, calls x weight bytes / W)
    update   max(samples x update_flops / P, micro-batches x bytes read / W)
             + optimizer steps x 28 bytes x trained weights / W
             bytes read: all weights forward, the trained ones twice more backward
    rollout  one stage: simulation + predict; several: the longer one, and the other once over
             the chunk steps (the first stage has nothing to hide behind)
    step     rollout + update; where both run at once (async) the longer of the two, or
             predict + update if they share a card (`launcher.mps`)

Weight sync, transport, checkpoints and evaluation are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from joyrlinf_core.config.schema.footprint import Footprint
from joyrlinf_core.plan.hardware import Card
from joyrlinf_core.plan.run_plan import MemoryPlan, RunPlan
from joyrlinf_core.plan.traffic import rollout_weight_bytes

ADAMW_BYTES = 28
"""AdamW per weight: reads weight, gradient and two moments, writes all but the gradient."""


@dataclass(frozen=True)
class Rates:
    """What the estimate assumes.

    Attributes:
        mfu: Share of the peak FLOP/s that is reached.
        env_steps_per_second: Of the simulators of one env rank; None leaves simulation out.
    """

    mfu: float = 0.4
    env_steps_per_second: float | None = None


@dataclass(frozen=True)
class Throughput:
    """Seconds of one training step, and env steps per second of the whole run."""

    predict_seconds: float
    simulation_seconds: float
    rollout_seconds: float
    update_seconds: float
    step_seconds: float
    env_steps_per_second: float


def throughput(
    plan: RunPlan, memory: MemoryPlan, footprint: Footprint, card: Card, rates: Rates
) -> Throughput:
    """Estimate the time of one training step.

    Args:
        plan: The plan.
        memory: Its memory estimate.
        footprint: What the policy costs.
        card: What every rank runs on.
        rates: Assumptions.
    """
    batch, config = plan.batch, plan.config
    peak = card.bf16_flops if config.actor.precision == "bf16" else card.fp32_flops
    flops = peak * rates.mfu
    env_steps = batch.num_envs * batch.t_eff * batch.chunk_size
    predict = _predict_seconds(plan, memory, footprint, card, flops)
    simulation = 0.0
    if rates.env_steps_per_second:
        simulation = env_steps / len(plan.placement.env_ranks) / rates.env_steps_per_second
    rollout = predict + simulation
    if config.rollout.pipeline_stage_num > 1:
        rollout = max(predict, simulation) + min(predict, simulation) / batch.t_eff
    update = _update_seconds(plan, memory, footprint, card, flops)
    step = rollout + update
    if config.algorithm.pipeline_mode == "async":
        step = max(rollout, update, predict + update if config.launcher.mps else 0.0)
    return Throughput(
        predict_seconds=predict,
        simulation_seconds=simulation,
        rollout_seconds=rollout,
        update_seconds=update,
        step_seconds=step,
        env_steps_per_second=env_steps / step if step > 0 else 0.0,
    )


def _predict_seconds(
    plan: RunPlan, memory: MemoryPlan, footprint: Footprint, card: Card, flops: float
) -> float:
    batch = plan.batch
    envs = ceil(batch.num_envs / len(plan.placement.rollout_ranks))
    stages = plan.config.rollout.pipeline_stage_num
    calls = batch.t_eff * stages * ceil(envs / stages / memory.predict_rows)
    weights = footprint.parameters * rollout_weight_bytes(plan.config)
    computed = batch.t_eff * envs * footprint.predict_flops / flops
    return max(computed, calls * weights / card.bandwidth)


def _update_seconds(
    plan: RunPlan, memory: MemoryPlan, footprint: Footprint, card: Card, flops: float
) -> float:
    batch, config = plan.batch, plan.config
    samples = batch.samples_per_actor * config.algorithm.update_epoch
    weights = footprint.parameters + 2 * footprint.trainable
    computed = samples * footprint.update_flops / flops
    passes = samples / config.actor.micro_batch_size
    read = passes * weights * rollout_weight_bytes(config) / card.bandwidth
    spread = len(plan.placement.actor_ranks) if memory.strategy == "fsdp2" else 1
    optimizer = ADAMW_BYTES * footprint.trainable / spread / card.bandwidth
    return max(computed, read) + batch.optimizer_steps_per_update * optimizer
