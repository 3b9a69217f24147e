"""Bytes that go from process to process in one training step."""

from __future__ import annotations

from collections.abc import Sequence

from joyrlinf_core.config.schema import Config
from joyrlinf_core.config.schema.footprint import DTYPE_BYTES, Footprint
from joyrlinf_core.plan.run_plan import BatchPlan, PairBytes, Placement, Shard, Traffic

_FLOAT, _BOOL, _INT = DTYPE_BYTES["float32"], DTYPE_BYTES["bool"], DTYPE_BYTES["int64"]


def row_bytes(batch: BatchPlan, footprint: Footprint, *, values: bool) -> int:
    """Return the bytes of one env and chunk step in a `RolloutBatch`.

    Args:
        batch: Gives C and D.
        footprint: What the policy stores.
        values: Whether there is a value head.
    """
    c, d = batch.chunk_size, batch.action_dim
    stored = [*footprint.inputs.values(), *footprint.replay.values()]
    own = 2 * c * d * _FLOAT  # actions, prev_logprobs
    own += c * _FLOAT + 2 * c * _BOOL  # rewards; dones, terminations
    own += 2 * _BOOL + 3 * _INT  # played, success; episode, task, versions
    own += 2 * _FLOAT if values else 0  # prev_values, next_values
    return own + sum(spec.nbytes for spec in stored)


def column_bytes(config: Config, batch: BatchPlan, footprint: Footprint) -> int:
    """Return the bytes of one column: T_eff rows, and the number of its group."""
    values = config.actor.model.add_value_head
    return batch.t_eff * row_bytes(batch, footprint, values=values) + _INT


def rollout_weight_bytes(config: Config) -> int:
    """Return the bytes of one weight in the precision of the rollout."""
    return DTYPE_BYTES["bfloat16" if config.actor.precision == "bf16" else "float32"]


def weight_receivers(placement: Placement, *, sharded: bool) -> tuple[int, ...]:
    """Return the rollout ranks that hold weights of their own.

    The others act with the actor's copy. A sharded copy can be used only by all actors together.

    Args:
        placement: Who plays which role.
        sharded: Whether actors hold shards of the weights.
    """
    if placement.rollout_ranks == placement.actor_ranks:
        return ()
    actors = frozenset(placement.actor_ranks)
    return tuple(rank for rank in placement.rollout_ranks if sharded or rank not in actors)


def build_traffic(
    config: Config,
    placement: Placement,
    batch: BatchPlan,
    shards: Sequence[Shard],
    footprint: Footprint | None,
    *,
    sharded: bool,
) -> Traffic:
    """Add up what one training step sends.

    Args:
        config: The config.
        placement: Who plays which role.
        batch: Sizes of the batch.
        shards: The shard map.
        footprint: What the policy stores; None if it does not tell.
        sharded: Whether actors hold shards of the weights.
    """
    sent = [shard for shard in shards if not shard.in_process]
    receivers = weight_receivers(placement, sharded=sharded)
    column = column_bytes(config, batch, footprint) if footprint is not None else None
    pairs = _pair_bytes(sent, column)
    weights = _weight_bytes(config, footprint) if receivers else 0
    return Traffic(
        column_bytes=column,
        trajectories=pairs,
        trajectory_bytes=None if pairs is None else sum(pair.nbytes for pair in pairs),
        trajectory_bytes_between_nodes=None
        if pairs is None
        else sum(
            pair.nbytes
            for pair in pairs
            if placement.node_of(pair.source) != placement.node_of(pair.destination)
        ),
        weight_receivers=receivers,
        weight_bytes=weights,
        weight_bytes_all=None if weights is None else weights * len(receivers),
    )


def _pair_bytes(sent: Sequence[Shard], column: int | None) -> tuple[PairBytes, ...] | None:
    """Return the bytes of each pair of ranks; None if something of unknown size is sent."""
    if not sent:
        return ()
    if column is None:
        return None
    return tuple(
        PairBytes(source=shard.source, destination=shard.destination, nbytes=shard.columns * column)
        for shard in sent
    )


def _weight_bytes(config: Config, footprint: Footprint | None) -> int | None:
    return None if footprint is None else footprint.trainable * rollout_weight_bytes(config)
