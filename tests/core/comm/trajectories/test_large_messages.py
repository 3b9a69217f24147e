from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from tests.core.comm.trajectories.exchange_ranks import MODES

NBYTES = 2**31 + 2**20 + 5
MARKS = (0, 2**31 - 1, 2**31, 2**31 + 1, NBYTES - 1)


def rank_main(rank: int, directory: str) -> None:
    torch.set_num_threads(1)
    store = f"file://{directory}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    nothing = torch.empty(0, dtype=torch.uint8)
    message = torch.zeros(NBYTES, dtype=torch.uint8)
    if rank == 0:
        message[list(MARKS)] = torch.arange(1, len(MARKS) + 1).byte()
    for exchange in MODES.values():
        if rank == 0:
            exchange(message, [0, NBYTES], nothing, [0, 0], dist.group.WORLD)
        else:
            message[list(MARKS)] = 0
            exchange(nothing, [0, 0], message, [NBYTES, 0], dist.group.WORLD)
            assert message[list(MARKS)].tolist() == [1, 2, 3, 4, 5]
            assert int(message.count_nonzero()) == len(MARKS)
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_message_may_have_more_than_two_gigabytes(tmp_path: Path) -> None:
    spawn(rank_main, args=(str(tmp_path),), nprocs=2)
