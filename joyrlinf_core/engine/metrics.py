"""Metrics over all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from joyrlinf_core.batch.metrics import decode, encode, merge, values

if TYPE_CHECKING:
    from joyrlinf_core.batch.metrics import Metrics
    from joyrlinf_core.comm.collectives import Collectives


def reduce_metrics(own: Metrics, collectives: Collectives) -> dict[str, float]:
    """Return every metric over all ranks, the same on each; ranks may hold different names."""
    parts = collectives.gather_json(encode(own))
    return dict(sorted(values(merge(decode(part) for part in parts)).items()))
