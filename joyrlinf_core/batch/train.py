"""What an update reads: advantages of a rollout, and the flat batch made from both.

T chunk steps, B batch columns, C actions per chunk, D env action dims, N = T * B rows. "Level"
shapes follow `layout.py`. No torch at module level.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from joyrlinf_core.batch.metrics import Metric


@dataclass(frozen=True)
class AdvantageResult:
    """Result of an advantage estimator, at the reward level: [T, B] or [T, B, C].

    Attributes:
        advantages: float32, zero outside `mask`.
        returns: float32 targets of the value loss, or None where no value head learns from them.
        mask: bool, entries that are trained on.
        weights: float32, zero outside `mask`; how much an entry counts in the loss.
        total_weight: What `weights` would sum to on this rank if no group had been filtered out.
            Summed over ranks and divided by the number of minibatches it is the loss's normaliser.
        valid_actions: int64 [T, B], valid actions of the row's episode inside the window.
        metrics: What the rollout was like, by name.
    """

    advantages: Tensor
    returns: Tensor | None
    mask: Tensor
    weights: Tensor
    total_weight: float
    valid_actions: Tensor
    metrics: Mapping[str, Metric]


@dataclass(frozen=True)
class TrainBatch:
    """Flat rows of one actor; row n = t * B + column.

    Attributes:
        inputs: Policy inputs by name, each [N, ...].
        replay: Policy replay by name, each [N, ...].
        actions: float32 [N, C, D].
        prev_logprobs: float32 [N], [N, C] or [N, C, D] by `logprob_type`, under the policy that
            acted.
        advantages: float32 [N] or [N, C].
        mask: bool [N] or [N, C].
        weights: float32 [N] or [N, C].
        versions: int64 [N], weight version that acted.
        group: int64 [N], global number of the row's group.
        column: int64 [N], batch column of the row.
        returns: float32 [N] or [N, C], or None.
        prev_values: float32 [N], or [N, C] from a head with one value per action, or None.
        proximal_logprobs: float32, shape of `prev_logprobs`: under the weights at the start of the
            update, or None where nothing clips around them.
    """

    inputs: Mapping[str, Tensor]
    replay: Mapping[str, Tensor]
    actions: Tensor
    prev_logprobs: Tensor
    advantages: Tensor
    mask: Tensor
    weights: Tensor
    versions: Tensor
    group: Tensor
    column: Tensor
    returns: Tensor | None = None
    prev_values: Tensor | None = None
    proximal_logprobs: Tensor | None = None

    @property
    def num_rows(self) -> int:
        """N."""
        return self.group.shape[0]

    def rows(self, index: Tensor) -> TrainBatch:
        """Return the rows at `index` int64 [m], copied."""
        return self._map(lambda value: value[index])

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> TrainBatch:
        """Return the batch on a device."""
        return self._map(lambda value: value.to(device, non_blocking=non_blocking))

    def _map(self, function: Callable[[Tensor], Tensor]) -> TrainBatch:
        changed: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Mapping):
                changed[field.name] = {name: function(item) for name, item in value.items()}
            elif value is not None:
                changed[field.name] = function(value)
        return replace(self, **changed)
