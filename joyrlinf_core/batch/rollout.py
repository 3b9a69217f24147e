"""`RolloutBatch`: everything one actor receives from a rollout, observations stored once.

Shapes: T chunk steps (T_eff = rollout_epoch * chunk steps per epoch), B batch columns, C actions
per chunk, D env action dims.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class RolloutBatch:
    """Trajectories of whole groups: columns g*G .. g*G+G-1 start from one initial state.

    Attributes:
        inputs: Policy inputs by name, each [T, B, ...]; rows that were not played hold zeros.
        replay: Policy replay by name, each [T, B, ...]; rows that were not played hold zeros.
        actions: float32 [T, B, C, D].
        rewards: float32 [T, B, C].
        dones: bool [T, B, C]; the episode ended after action c of chunk t.
        terminations: bool [T, B, C]; of these, ends that are not time limits.
        prev_logprobs: float32 [T, B, C, D] under the policy that acted.
        played: bool [T, B]; the chunk was executed (False once an episode is over and the env
            waits).
        episode: int64 [T, B]; number of the env's episode in the run (k), counted from 0. Changes
            only between chunks.
        group: int64 [B]; global number of the column's group.
        task: int64 [T, B]; task of the column's episode.
        success: bool [T, B]; the episode has been successful by the end of chunk t.
        versions: int64 [T, B]; weight version that acted.
        prev_values: float32 [T, B], or None without a value head.
        next_values: float32 [T, B]: value of the observation after chunk t where a bootstrap needs
            it (episode cut by the time limit or by the window's end), else 0; None without a value
            head.
    """

    inputs: Mapping[str, Tensor]
    replay: Mapping[str, Tensor]
    actions: Tensor
    rewards: Tensor
    dones: Tensor
    terminations: Tensor
    prev_logprobs: Tensor
    played: Tensor
    episode: Tensor
    group: Tensor
    task: Tensor
    success: Tensor
    versions: Tensor
    prev_values: Tensor | None = None
    next_values: Tensor | None = None

    def tensors(self) -> dict[str, Tensor]:
        """Return every tensor by name, `inputs/...` and `replay/...` for those in mappings.

        The column axis is 1, of 1-dimensional tensors 0.
        """
        named: dict[str, Tensor] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Mapping):
                named |= {f"{field.name}/{name}": tensor for name, tensor in value.items()}
            elif value is not None:
                named[field.name] = value
        return named

    @classmethod
    def from_tensors(cls, named: Mapping[str, Tensor]) -> RolloutBatch:
        """Return the batch whose `tensors` these are."""
        grouped: dict[str, Any] = {"inputs": {}, "replay": {}}
        for name, tensor in named.items():
            field, _, entry = name.partition("/")
            if entry:
                grouped[field][entry] = tensor
            else:
                grouped[field] = tensor
        return cls(**grouped)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(T, B, C)."""
        t, b, c = self.rewards.shape
        return t, b, c
