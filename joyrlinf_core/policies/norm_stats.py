"""`norm_stats.json`: normalisation statistics in the upstream layout.

Read, written and computed here. numpy is imported inside functions: `joyrl validate` must start
fast.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joyrlinf_core.errors import CheckpointError
from joyrlinf_core.policies.base import FieldStats, NormStats

if TYPE_CHECKING:
    import numpy as np

FILE_NAME = "norm_stats.json"
_KEYS = ("mean", "std", "q01", "q99")


def compute_field_stats(values: np.ndarray, *, std_floor: float = 0.0) -> FieldStats:
    """Return the statistics of a vector.

    Args:
        values: float [n, D], one row per frame; n >= 1.
        std_floor: Lower bound of the standard deviation. A dimension that hardly moves in the
            demonstrations would otherwise be blown up by the division.

    Returns:
        Statistics of D dimensions; quantiles at 1 % and 99 %, linearly interpolated.
    """
    import numpy as np

    rows = np.asarray(values, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[0] == 0:
        raise CheckpointError(
            f"statistics need an array of shape [n >= 1, D], got {rows.shape}",
            fix="collect at least one frame before computing statistics",
        )
    low, high = np.quantile(rows, [0.01, 0.99], axis=0)
    return FieldStats(
        mean=tuple(rows.mean(axis=0).tolist()),
        std=tuple(np.maximum(rows.std(axis=0), std_floor).tolist()),
        q01=tuple(low.tolist()),
        q99=tuple(high.tolist()),
    )


def compute_norm_stats(
    states: np.ndarray, actions: np.ndarray, *, std_floor: float = 0.02
) -> NormStats:
    """Return the statistics of states float [n, S] and actions float [m, D]."""
    return NormStats(
        state=compute_field_stats(states, std_floor=std_floor),
        actions=compute_field_stats(actions, std_floor=std_floor),
    )


def read_norm_stats(path: Path) -> NormStats:
    """Read a `norm_stats.json`.

    Quantiles that the file lacks (old Pi0 files) become NaN, which only quantile normalisation
    refuses.

    Raises:
        CheckpointError: The file can't be read or does not have the layout.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        fields = document["norm_stats"]
        return NormStats(state=_field(fields["state"]), actions=_field(fields["actions"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path}: no valid normalisation statistics ({type(error).__name__}: {error})",
            fix='expected {"norm_stats": {"state": {"mean", "std", "q01", "q99"}, "actions": ...}}',
        ) from error


def write_norm_stats(path: Path, stats: NormStats) -> None:
    """Write a `norm_stats.json`, making its directory; quantiles that are NaN are left out."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"norm_stats": {"state": _json(stats.state), "actions": _json(stats.actions)}}
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _field(raw: dict[str, Any]) -> FieldStats:
    mean = tuple(float(x) for x in raw["mean"])
    columns = {key: tuple(float(x) for x in raw.get(key) or ()) for key in _KEYS[1:]}
    for key, column in columns.items():
        if not column and key != "std":
            columns[key] = (math.nan,) * len(mean)
        elif len(column) != len(mean):
            raise ValueError(f"'{key}' has {len(column)} numbers, 'mean' has {len(mean)}")
    return FieldStats(mean=mean, **columns)


def _json(stats: FieldStats) -> dict[str, list[float]]:
    columns = {key: list(getattr(stats, key)) for key in _KEYS}
    return {key: column for key, column in columns.items() if not any(map(math.isnan, column))}
