"""Trajectories through two GPUs; not part of the CPU run."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from joyrlinf_core.comm.trajectories.buffers import Link
from joyrlinf_core.comm.trajectories.exchange import TrajectoryExchange
from tests.core.comm.trajectories.exchange_ranks import MODES, plan_of, same, share, whole

pytestmark = pytest.mark.multigpu

PIECES = (1000, 64 * 2**20)


def large(index: int) -> dict[str, torch.Tensor]:
    """Columns of 300 MB, more than a piece holds, beside small ones."""
    pictures = torch.full((8, 4, 9_400_000), index, dtype=torch.uint8)
    pictures[:, :, ::4096] = torch.randint(256, (8, 4, 2295), dtype=torch.uint8)
    return {**whole(2, index), "inputs/pictures": pictures}


def stream(rank: int, mode: str, piece_bytes: int) -> list[bool]:
    """Rank 0 sends from one thread while others run, rank 1 receives in another."""
    torch.manual_seed(0)
    device, group = torch.device("cuda", rank), dist.new_group([0, 1])
    exchange = TrajectoryExchange(plan_of((0,), (1,), 2, mode), rank, group, device)
    exchange._link = Link(MODES[mode], group, device, piece_bytes)
    batches = [large(i) if piece_bytes > 10**6 else whole(2, i) for i in range(3)]
    kept: list[Any] = []

    def work() -> None:
        if rank == 0:
            for index, batch in enumerate(batches):
                exchange.send(batch, index, 0, 0)
            exchange.send_end()
        else:
            kept.extend(iter(exchange.receive, None))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return [same(received.tensors, batches[received.index]) for received in kept]


def lockstep(rank: int, mode: str) -> list[bool]:
    """One rank plays both roles and sends half of its columns to the other."""
    device, group = torch.device("cuda", rank), dist.new_group([0, 1])
    plan = plan_of((0,), (0, 1), 4, mode)
    exchange = TrajectoryExchange(plan, rank, group, device, checksum=True)
    right = []
    for index in range(2):
        batch = whole(4, index)
        got = exchange.exchange(share(batch, (0,), rank, 4), index, 0, 0)
        assert got is not None
        right.append(same(got.tensors, share(batch, (0, 1), rank, 4) or {}))
        got.release()
    return right


def rank_main(rank: int, directory: str) -> None:
    torch.cuda.set_device(rank)
    store = f"file://{directory}/store"
    backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, init_method=store, rank=rank, world_size=2)
    seen = {mode: [[stream(rank, mode, p) for p in PIECES], lockstep(rank, mode)] for mode in MODES}
    Path(directory, f"{rank}.json").write_text(json.dumps(seen))
    dist.destroy_process_group()


def test_batches_go_through_the_devices(tmp_path: Path) -> None:
    spawn(rank_main, args=(str(tmp_path),), nprocs=2)
    seen = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    for mode in MODES:
        assert seen[1][mode][0] == [[True] * 3] * len(PIECES)
        assert [told[mode][1] for told in seen] == [[True, True]] * 2
