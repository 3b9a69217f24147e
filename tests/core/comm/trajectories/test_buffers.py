from __future__ import annotations

import torch

from joyrlinf_core.comm.trajectories.buffers import BufferPool


def place(buffer: torch.Tensor) -> int:
    return buffer.untyped_storage().data_ptr()


def test_only_what_came_back_is_handed_out_again() -> None:
    pool = BufferPool(pinned=False)
    first, second = pool.take(100), pool.take(100)
    assert place(first) != place(second)
    pool.give_back(first)
    again = pool.take(100)
    assert place(again) == place(first)
    assert place(pool.take(100)) not in (place(first), place(second))


def test_the_smallest_that_fits_is_taken_and_a_useless_one_dropped() -> None:
    pool = BufferPool(pinned=False)
    sizes = {size: pool.take(size) for size in (50, 100, 1000)}
    for buffer in sizes.values():
        pool.give_back(buffer)
    shorter = pool.take(60)
    assert len(shorter) == 60
    assert place(shorter) == place(sizes[100])
    pool.give_back(shorter)
    # All of its memory is there again, not only what was asked for last.
    assert place(pool.take(100)) == place(sizes[100])
    assert len(pool.take(5000)) == 5000  # instead of the 50 bytes that are free
    assert place(pool.take(20)) == place(sizes[1000])
    assert pool.take(0).numel() == 0
