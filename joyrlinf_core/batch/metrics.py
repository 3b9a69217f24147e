"""`Metric`: a number that micro-batches and ranks can merge without losing its meaning.

A mean of means over parts of unequal size is wrong, so a mean travels as total and count. Totals
may be 0-dim tensors, which spares a device synchronisation per micro-batch. No torch at module
level.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Kind = Literal["mean", "sum", "max", "min"]


@dataclass(frozen=True)
class Metric:
    """One mergeable number.

    Attributes:
        total: Sum of the entries (`mean`, `sum`) or their extreme (`max`, `min`; of no entries:
            -inf, inf).
        count: Number of entries; a metric of no entries has no value.
        kind: How parts merge and what the value is.
    """

    total: float | Tensor
    count: float | Tensor = 1.0
    kind: Kind = "mean"

    def merge(self, other: Metric) -> Metric:
        """Return the metric of both parts together."""
        if self.kind != other.kind:
            raise ValueError(f"metrics of kind {self.kind} and {other.kind} do not merge")
        count = self.count + other.count
        if self.kind in ("mean", "sum"):
            return Metric(self.total + other.total, count, self.kind)
        return Metric(_extreme(self.total, other.total, self.kind), count, self.kind)

    def value(self) -> float:
        """Return the number; NaN when there were no entries."""
        count = float(self.count)
        if not count:
            return math.nan
        return float(self.total) / count if self.kind == "mean" else float(self.total)


def _extreme(a: float | Tensor, b: float | Tensor, kind: Kind) -> float | Tensor:
    if isinstance(a, int | float) or isinstance(b, int | float):
        return max(float(a), float(b)) if kind == "max" else min(float(a), float(b))
    return a.maximum(b) if kind == "max" else a.minimum(b)


Metrics = Mapping[str, Metric]


def merge(parts: Iterable[Metrics]) -> dict[str, Metric]:
    """Merge metrics by name, in the order given; a part may lack names that others have."""
    merged: dict[str, Metric] = {}
    for part in parts:
        for name, metric in part.items():
            merged[name] = merged[name].merge(metric) if name in merged else metric
    return merged


def values(metrics: Metrics) -> dict[str, float]:
    """Return every metric that has entries as a plain number."""
    return {name: m.value() for name, m in metrics.items() if float(m.count)}


def encode(metrics: Metrics) -> dict[str, tuple[Kind, float, float]]:
    """Return metrics as JSON-able values, to send between ranks."""
    return {name: (m.kind, float(m.total), float(m.count)) for name, m in metrics.items()}


def decode(encoded: Mapping[str, tuple[Kind, float, float]]) -> dict[str, Metric]:
    """Return what `encode` was given."""
    return {name: Metric(total, count, kind) for name, (kind, total, count) in encoded.items()}
