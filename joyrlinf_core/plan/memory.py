"""Memory estimate of every rank, from the policy's `Footprint`.

Letters: n weights, t of them trained, f = n - t frozen, w bytes of a weight in the chosen precision
(2 or 4), s actors that a sharded state is spread over (1 under ddp).

    frozen weights     w f / s
    trained weights    4 t / s    float32: they are the optimizer's master weights
    gradients          4 t / s
    optimizer state    8 t / s    two moments of AdamW
    bf16 copy          2 t        made by autocast in each pass and kept for the backward pass;
                                  whole on every rank, also under fsdp2
    gathered units     8 u        fsdp2: the unit that computes and the next one, u weights each
    activations        micro_batch_size x activation_bytes, twice that in fp32; at least what
                       `predict` takes, since a frozen part is computed in the same way
    optimizer step     4 t / s    temporaries; activations are gone by then
    predict            rows of one call x predict_bytes, twice that in fp32
    rollout copy       w n        where the rollout can't use the actor's weights
    rollout storage    columns x T_eff rows, in host memory

Not in it: simulators, the CUDA context, NCCL, and what the allocator loses to fragmentation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from joyrlinf_core.config.schema import Config, EnvConfig
from joyrlinf_core.config.schema.footprint import Footprint
from joyrlinf_core.plan.batching import evaluation_is_on
from joyrlinf_core.plan.run_plan import (
    BatchPlan,
    MemoryItem,
    MemoryPlan,
    Placement,
    RankMemory,
    RankPlan,
    Role,
    Shard,
)
from joyrlinf_core.plan.traffic import column_bytes, rollout_weight_bytes, weight_receivers

FP32 = 4
BF16 = 2
ADAM_MOMENTS = 8
"""Bytes of AdamW's two moments."""


def footprint_of(config: Config) -> Footprint | None:
    """Return what the policy stores and costs in this run; None if it does not tell."""
    checkpointing = config.actor.gradient_checkpointing
    return config.actor.model.footprint(config.env.train, gradient_checkpointing=checkpointing)


def is_sharded(config: Config, actors: int, footprint: Footprint | None) -> bool:
    """Say whether actors shard their weights, as far as that is known before they are loaded."""
    fsdp = config.actor.fsdp
    if actors == 1 or fsdp.strategy == "ddp":
        return False
    if fsdp.strategy == "fsdp2":
        return True
    return footprint is not None and footprint.trainable > fsdp.shard_above_params


def predict_rows(config: Config, placement: Placement) -> int:
    """Return the most rows that one `predict` call has in rollout or evaluation."""
    envs: list[EnvConfig] = [config.env.train]
    if evaluation_is_on(config) and config.env.eval is not None:
        envs.append(config.env.eval)
    shares = len(placement.rollout_ranks) * config.rollout.pipeline_stage_num
    inside = config.actor.model.predict_micro_batch_size
    largest = 0
    for env in envs:
        limits = [-(-env.total_num_envs // shares), env.infer_micro_batch_size, inside]
        largest = max(largest, min(limit for limit in limits if limit))
    return largest


def estimate_memory(
    config: Config,
    placement: Placement,
    batch: BatchPlan,
    ranks: Sequence[RankPlan],
    shards: Sequence[Shard],
    footprint: Footprint,
) -> MemoryPlan:
    """Estimate the memory of every rank.

    Args:
        config: The config.
        placement: Who plays which role.
        batch: Sizes of the batch.
        ranks: The rank table.
        shards: The shard map.
        footprint: What the policy stores and costs.
    """
    actors = len(placement.actor_ranks)
    sharded = is_sharded(config, actors, footprint)
    rows = predict_rows(config, placement)
    receivers = frozenset(weight_receivers(placement, sharded=sharded))
    actor = tuple(_actor_items(config, footprint, spread=actors if sharded else 1))
    shared = tuple(_shared_items(config, footprint, rows, sharded=sharded))
    own = tuple(_own_items(config, footprint, rows))
    stored = _stored_columns(shards)
    column = column_bytes(config, batch, footprint)

    def items(rank: RankPlan) -> tuple[MemoryItem, ...]:
        found: list[MemoryItem] = []
        if "rollout" in rank.roles:
            found += own if rank.rank in receivers else shared
        if "actor" in rank.roles:
            found += actor
        for role, columns in stored.get(rank.rank, {}).items():
            found.append(_host(role, "rollout storage", columns * column))
        return tuple(found)

    alike: dict[tuple[tuple[Role, ...], tuple[MemoryItem, ...]], list[int]] = {}
    for rank in ranks:
        alike.setdefault((rank.roles, items(rank)), []).append(rank.rank)
    return MemoryPlan(
        parameters=footprint.parameters,
        trainable=footprint.trainable,
        strategy="fsdp2" if sharded else "ddp",
        predict_rows=rows,
        ranks=tuple(
            RankMemory(
                ranks=tuple(members),
                roles=roles,
                items=found,
                resident=_resident(found),
                peak=_peak(found),
                host=sum(item.nbytes for item in found if item.where == "host"),
            )
            for (roles, found), members in alike.items()
        ),
    )


def _actor_items(config: Config, footprint: Footprint, *, spread: int) -> Iterator[MemoryItem]:
    trained, frozen = footprint.trainable, footprint.parameters - footprint.trainable
    if frozen:
        size = frozen * rollout_weight_bytes(config) // spread
        yield _device("actor", "frozen weights", "always", size)
    yield _device("actor", "trained weights", "always", trained * FP32 // spread)
    yield _device("actor", "gradients", "always", trained * FP32 // spread)
    yield _device("actor", "optimizer state", "always", trained * ADAM_MOMENTS // spread)
    if config.actor.precision == "bf16":
        yield _device("actor", "bf16 copy", "update", trained * BF16)
    if spread > 1:
        yield _device("actor", "gathered units", "update", _gathered(footprint))
    row = max(footprint.activation_bytes, footprint.predict_bytes) * _working_factor(config)
    yield _device("actor", "activations", "update", config.actor.micro_batch_size * row)
    yield _device("actor", "optimizer step", "step", trained * FP32 // spread)


def _shared_items(
    config: Config, footprint: Footprint, rows: int, *, sharded: bool
) -> Iterator[MemoryItem]:
    """Yield what acting with the actor's weights takes beside them."""
    row = footprint.predict_bytes * _working_factor(config)
    yield _device("rollout", "predict", "predict", rows * row)
    if config.actor.precision == "bf16":
        yield _device("rollout", "bf16 copy", "predict", footprint.trainable * BF16)
    if sharded:
        yield _device("rollout", "gathered units", "predict", _gathered(footprint))


def _own_items(config: Config, footprint: Footprint, rows: int) -> Iterator[MemoryItem]:
    """Yield what acting with weights of its own takes."""
    size = footprint.parameters * rollout_weight_bytes(config)
    yield _device("rollout", "rollout copy", "always", size)
    row = footprint.predict_bytes * _working_factor(config)
    yield _device("rollout", "predict", "predict", rows * row)


def _working_factor(config: Config) -> int:
    """Return how much more working memory the precision takes than the bf16 of a footprint."""
    return rollout_weight_bytes(config) // BF16


def _gathered(footprint: Footprint) -> int:
    return 2 * footprint.sharding_unit * FP32


def _stored_columns(shards: Sequence[Shard]) -> dict[int, dict[Role, int]]:
    """Return the columns that each rank keeps: its own as rollout, received ones as actor."""
    kept: dict[int, dict[Role, int]] = {}
    for shard in shards:
        own = kept.setdefault(shard.source, {})
        own["rollout"] = own.get("rollout", 0) + shard.columns
        if not shard.in_process:
            received = kept.setdefault(shard.destination, {})
            received["actor"] = received.get("actor", 0) + shard.columns
    return kept


def _device(
    role: Role, name: str, when: Literal["always", "predict", "update", "step"], nbytes: int
) -> MemoryItem:
    return MemoryItem(role=role, name=name, where="device", when=when, nbytes=nbytes)


def _host(role: Role, name: str, nbytes: int) -> MemoryItem:
    return MemoryItem(role=role, name=name, where="host", when="always", nbytes=nbytes)


def _resident(items: Iterable[MemoryItem]) -> int:
    return sum(item.nbytes for item in items if item.where == "device" and item.when == "always")


def _peak(items: Sequence[MemoryItem]) -> int:
    """Return what stays and what the largest phase adds; phases follow one another."""
    phases = [
        sum(item.nbytes for item in items if item.when == when)
        for when in ("predict", "update", "step")
    ]
    return _resident(items) + max(phases)
