"""`Footprint`: what a policy stores and costs, known from its config alone.

The plan turns it into memory and throughput estimates, `shape-check` into synthetic rollouts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Literal, NamedTuple

DType = Literal["bool", "uint8", "int32", "int64", "bfloat16", "float32"]

DTYPE_BYTES: dict[DType, int] = {
    "bool": 1,
    "uint8": 1,
    "int32": 4,
    "int64": 8,
    "bfloat16": 2,
    "float32": 4,
}
"""Bytes of one element."""


class TensorSpec(NamedTuple):
    """Shape and type of one row of a stored tensor."""

    shape: tuple[int, ...]
    """Shape without the row axis."""

    dtype: DType

    @property
    def nbytes(self) -> int:
        """Bytes of one row."""
        return prod(self.shape) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True)
class Footprint:
    """What one policy in one env stores and costs.

    A row is one observation with the chunk that answered it. FLOPs count a multiply-add as two, and
    only work that the result needs: real cameras, real text. Working memory is that of bf16.

    Attributes:
        parameters: Weights of the whole policy.
        trainable: Of these, weights that the optimizer changes.
        sharding_unit: Weights of the largest unit that FSDP2 gathers at once.
        inputs: What a rollout stores of an observation, by name, as `Policy.prepare` returns it.
        replay: What a rollout stores to score the actions again, as `PolicyOutput.replay`.
        predict_flops: Forward pass of one row, all denoise steps or tokens.
        update_flops: Forward and backward pass of one row in the update.
        predict_bytes: Working memory of `predict` per row (prefix keys and values, activations).
        activation_bytes: What the update keeps per row of a micro-batch for the backward pass.
    """

    parameters: int
    trainable: int
    sharding_unit: int
    inputs: Mapping[str, TensorSpec]
    replay: Mapping[str, TensorSpec] = field(default_factory=dict[str, TensorSpec])
    predict_flops: float = 0.0
    update_flops: float = 0.0
    predict_bytes: int = 0
    activation_bytes: int = 0
