"""Three Gloo ranks are started once; each writes what it saw, and the tests look at that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from joyrlinf_core.comm import collectives as module
from joyrlinf_core.comm.collectives import Collectives

WORLD = 3
CPU = torch.device("cpu")


def gradients(rank: int) -> list[nn.Parameter]:
    """Parameters of several sizes and types; each rank lacks the gradient of another one."""
    shapes = [(3, 4), (5,), (), (2, 2), (7,)]
    parameters = []
    for index, shape in enumerate(shapes):
        dtype = torch.bfloat16 if index == 3 else torch.float32
        parameter = nn.Parameter(torch.zeros(shape, dtype=dtype))
        if index not in (rank, 4):
            parameter.grad = torch.full(shape, 10.0**rank * (index + 1), dtype=dtype)
        parameters.append(parameter)
    return parameters


def summed(collectives: Collectives, bucket_bytes: int) -> list[Any]:
    module.BUCKET_BYTES = bucket_bytes
    parameters = gradients(collectives.rank)
    collectives.sum_gradients(parameters)
    return [None if p.grad is None else p.grad.tolist() for p in parameters]


def observe(collectives: Collectives) -> dict[str, Any]:
    """Call everything once; the same on every rank."""
    rank = collectives.rank
    tensors = [torch.full((2,), float(rank)), torch.tensor(rank)]
    collectives.broadcast_tensors(tensors, source=collectives.world_size - 1)
    return {
        "rank": rank,
        "is_main": collectives.is_main,
        "any_last": collectives.any(flag=rank == collectives.world_size - 1),
        "any_none": collectives.any(flag=False),
        "max": collectives.max(-1.0 - rank),
        "sum": collectives.sum([rank + 0.1, 2.0**53, 1.0]),
        "gathered": collectives.gather_json({"rank": rank, "text": "ä" * (10 * rank)}),
        "gathered_nothing": collectives.gather_json([]),
        "broadcast": [tensor.tolist() for tensor in tensors],
        "one_bucket": summed(collectives, 2**20),
        "buckets": summed(collectives, 40),
    }


def rank_main(rank: int, directory: str) -> None:
    torch.set_num_threads(1)
    store = f"file://{directory}/store"
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=WORLD)
    try:
        seen = observe(Collectives(CPU))
        Path(directory, f"{rank}.json").write_text(json.dumps(seen))
    finally:
        torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    directory = tmp_path_factory.mktemp("ranks")
    torch.multiprocessing.spawn(rank_main, args=(str(directory),), nprocs=WORLD)
    return [json.loads((directory / f"{rank}.json").read_text()) for rank in range(WORLD)]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(module, "BUCKET_BYTES", module.BUCKET_BYTES)
    return observe(Collectives(CPU))


def test_ranks_know_their_place(ranks: list[dict[str, Any]]) -> None:
    assert [seen["rank"] for seen in ranks] == [0, 1, 2]
    assert [seen["is_main"] for seen in ranks] == [True, False, False]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("any_last", True),
        ("any_none", False),
        ("max", -1.0),
        # In float64: 3 * 2^53 + 3 would lose its last digits in float32.
        ("sum", [pytest.approx(3.3), 3 * 2.0**53, 3.0]),
        ("gathered", [{"rank": r, "text": "ä" * (10 * r)} for r in range(WORLD)]),
        ("gathered_nothing", [[], [], []]),
        ("broadcast", [[2.0, 2.0], 2]),
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
    totals = [110.0, 101.0 * 2, 11.0 * 3, 111.0 * 4, 0.0]
    for seen in ranks:
        for parameter, total, got in zip(gradients(0), totals, seen[name], strict=True):
            expected = torch.full(parameter.shape, total, dtype=parameter.dtype)
            assert got == expected.tolist()


def test_one_rank_needs_no_group(alone: dict[str, Any]) -> None:
    assert alone["is_main"]
    assert alone["any_last"]
    assert not alone["any_none"]
    assert alone["max"] == -1.0
    assert alone["sum"] == [0.1, 2.0**53, 1.0]
    assert alone["gathered"] == [{"rank": 0, "text": ""}]
    assert alone["broadcast"] == [[0.0, 0.0], 0]


def test_a_missing_gradient_is_zero_on_one_rank_too(alone: dict[str, Any]) -> None:
    assert alone["one_bucket"][0] == torch.zeros(3, 4).tolist()
    assert alone["one_bucket"][1] == [2.0] * 5
