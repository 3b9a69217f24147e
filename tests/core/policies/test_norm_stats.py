from __future__ import annotations

import json
import math

import numpy as np
import pytest

from joyrlinf_core.errors import CheckpointError
from joyrlinf_core.policies import norm_stats


def test_statistics_of_known_numbers():
    values = np.stack([np.arange(101.0), np.full(101, 3.0)], axis=1)
    stats = norm_stats.compute_field_stats(values, std_floor=0.02)
    assert stats.mean == (50.0, 3.0)
    assert stats.std == (pytest.approx(math.sqrt(850.0)), 0.02)
    assert stats.q01 == (pytest.approx(1.0), 3.0)
    assert stats.q99 == (pytest.approx(99.0), 3.0)


def test_golden_numbers_of_uneven_rows():
    """Quantiles lie between rows: at positions 0.01 x 2 and 0.99 x 2, counted from 0."""
    stats = norm_stats.compute_field_stats(np.array([[30.0, -1.0], [0.0, 5.0], [10.0, 2.0]]))
    assert stats.mean == pytest.approx((40 / 3, 2.0), rel=1e-12)
    assert stats.std == pytest.approx((math.sqrt(1400) / 3, math.sqrt(6)), rel=1e-12)
    assert stats.q01 == pytest.approx((0.2, -0.94), rel=1e-12)
    assert stats.q99 == pytest.approx((29.6, 4.94), rel=1e-12)


def test_float32_with_a_large_offset_keeps_its_precision():
    """The spread is one part in four million; sums in float32 would lose it."""
    step = 2.0**-10
    rows = np.full((100_000, 2), 4096.0, dtype=np.float32)
    rows[::2] += np.float32(2 * step)
    stats = norm_stats.compute_field_stats(rows)
    assert stats.mean == pytest.approx((4096 + step,) * 2, abs=step * 1e-6)
    assert stats.std == pytest.approx((step,) * 2, rel=1e-6)
    assert (stats.q01, stats.q99) == ((4096.0,) * 2, (4096 + 2 * step,) * 2)
    in_float32 = rows.mean(axis=0)[0]
    assert abs(float(in_float32) - 4096 - step) > step * 1e-6, "this test could not fail"


def test_the_floor_of_a_policy_applies_to_states_and_actions():
    still = np.full((10, 3), 7.0)
    stats = norm_stats.compute_norm_stats(still, still[:, :2])
    assert stats.state.std == (0.02,) * 3
    assert stats.actions.std == (0.02,) * 2
    assert norm_stats.compute_field_stats(still).std == (0.0,) * 3


@pytest.mark.parametrize("shape", [(0, 2), (4,)])
def test_no_frames_is_an_error(shape):
    with pytest.raises(CheckpointError, match="n >= 1"):
        norm_stats.compute_field_stats(np.zeros(shape))


def test_file_round_trip_and_layout(tmp_path):
    rows = np.random.default_rng(0).normal(size=(50, 3))
    stats = norm_stats.compute_norm_stats(rows, rows[:, :2])
    path = tmp_path / "assets" / "x" / "norm_stats.json"
    norm_stats.write_norm_stats(path, stats)
    assert norm_stats.read_norm_stats(path) == stats
    document = json.loads(path.read_text())
    assert set(document["norm_stats"]["actions"]) == {"mean", "std", "q01", "q99"}


def test_quantiles_may_be_absent(tmp_path):
    path = tmp_path / "norm_stats.json"
    field = {"mean": [0.0], "std": [1.0]}
    path.write_text(json.dumps({"norm_stats": {"state": field, "actions": field}}))
    stats = norm_stats.read_norm_stats(path)
    assert math.isnan(stats.state.q01[0])
    norm_stats.write_norm_stats(tmp_path / "again.json", stats)
    again = json.loads((tmp_path / "again.json").read_text())
    assert again["norm_stats"]["state"] == field


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{}",
        '{"norm_stats": {"state": {"mean": [0]}, "actions": {}}}',
        '{"norm_stats": {"state": {"mean": [0], "std": [1, 2]}, "actions": {"mean": []}}}',
    ],
)
def test_broken_files_are_named(tmp_path, text):
    path = tmp_path / "norm_stats.json"
    path.write_text(text)
    with pytest.raises(CheckpointError, match=r"norm_stats\.json"):
        norm_stats.read_norm_stats(path)
