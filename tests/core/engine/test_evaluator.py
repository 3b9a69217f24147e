from __future__ import annotations

import pytest

from joyrlinf_core.engine.evaluator import wilson


@pytest.mark.parametrize(
    ("wins", "episodes", "low", "high"),
    [
        # Newcombe 1998 (Statist. Med. 17, table I, method 3).
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_interval(wins: int, episodes: int, low: float, high: float) -> None:
    interval = wilson(wins, episodes)
    assert interval.low == pytest.approx(low, abs=1e-4)
    assert interval.high == pytest.approx(high, abs=1e-4)


def test_wilson_of_nothing_is_everything() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
