from __future__ import annotations

from typing import Any

import pytest
import torch

from joyrlinf_core.comm import collectives as module
from joyrlinf_core.comm.collectives import Collectives
from tests.core.comm.two_ranks import WORLD, gradients, observe


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(module, "BUCKET_BYTES", module.BUCKET_BYTES)
    return observe(Collectives())


def test_ranks_know_their_place(ranks: list[dict[str, Any]]) -> None:
    assert [seen["rank"] for seen in ranks] == [0, 1]
    assert [seen["is_main"] for seen in ranks] == [True, False]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("any_last", True),
        ("any_none", False),
        ("max", -1.0),
        # In float64: float32 would lose the one.
        ("sum", [pytest.approx(1.2), 2.0**41 + 1, 2.0]),
        ("gathered", [{"rank": r, "text": "ä" * (10 * r)} for r in range(WORLD)]),
        ("gathered_nothing", [[], []]),
        ("broadcast", [[1.0, 1.0], 1]),
    ],
)
def test_every_rank_gets_the_same_answer(
    ranks: list[dict[str, Any]], name: str, expected: Any
) -> None:
    assert [seen[name] for seen in ranks] == [expected] * WORLD


@pytest.mark.parametrize("name", ["one_bucket", "buckets"])
def test_gradients_add_up_and_missing_ones_are_zeros(
    ranks: list[dict[str, Any]], name: str
) -> None:
    totals = [10.0, 2.0, 11.0 * 3, 11.0 * 4, 0.0]
    for seen in ranks:
        for parameter, total, got in zip(gradients(0), totals, seen[name], strict=True):
            expected = torch.full(parameter.shape, total, dtype=parameter.dtype)
            assert got == expected.tolist()


def test_one_rank_needs_no_group(alone: dict[str, Any]) -> None:
    assert alone["is_main"]
    assert alone["any_last"]
    assert not alone["any_none"]
    assert alone["max"] == -1.0
    assert alone["sum"] == [0.1, 2.0**40, 1.0]
    assert alone["gathered"] == [{"rank": 0, "text": ""}]
    assert alone["broadcast"] == [[0.0, 0.0], 0]


def test_a_missing_gradient_is_zero_on_one_rank_too(alone: dict[str, Any]) -> None:
    assert alone["one_bucket"][0] == torch.zeros(3, 4).tolist()
    assert alone["one_bucket"][1] == [2.0] * 5
