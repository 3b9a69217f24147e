"""`SharedArrays`: what a simulator process reads and writes, in memory shared with its parent.

The memory is a file without a name: nothing to clean up after a crash, and no size limit of
/dev/shm, which containers set to 64 MiB. Pages that nobody touches cost nothing, so arrays are made
for the longest possible chunk.

Shapes: n slots, C longest chunk, D action dims, V cameras, S state length.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Sizes:
    """Sizes of the arrays of one vector env."""

    num_slots: int
    chunk: int
    action_dim: int
    image_shape: tuple[int, int, int, int]
    state_dim: int

    def layout(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Return shape and dtype of each array."""
        n, c = self.num_slots, self.chunk
        return {
            "actions": ((n, c, self.action_dim), np.dtype(np.float32)),
            "rewards": ((n, c), np.dtype(np.float32)),
            "terminations": ((n, c), np.dtype(bool)),
            "truncations": ((n, c), np.dtype(bool)),
            "success": ((n,), np.dtype(bool)),
            "steps": ((n,), np.dtype(np.int64)),
            "task": ((n,), np.dtype(np.int64)),
            "state": ((n, self.state_dim), np.dtype(np.float32)),
            "images": ((n, *self.image_shape), np.dtype(np.uint8)),
        }


class SharedArrays:
    """The arrays, each indexed by slot.

    Attributes:
        actions: float32 [n, C, D], written by the parent; all others by simulator processes.
        rewards: float32 [n, C].
        terminations: bool [n, C].
        truncations: bool [n, C].
        success: bool [n].
        steps: int64 [n].
        task: int64 [n].
        state: float32 [n, S].
        images: uint8 [n, V, H, W, 3].

    Args:
        sizes: Sizes of the arrays.
        fd: File descriptor of memory made by another process; None makes new memory.
    """

    actions: np.ndarray
    rewards: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray
    success: np.ndarray
    steps: np.ndarray
    task: np.ndarray
    state: np.ndarray
    images: np.ndarray

    def __init__(self, sizes: Sizes, fd: int | None = None) -> None:
        layout = sizes.layout()
        offsets: dict[str, int] = {}
        total = 0
        for name, (shape, dtype) in layout.items():
            offsets[name] = total
            total += -(-math.prod(shape) * dtype.itemsize // 64) * 64
        self.fd = _nameless_file(total) if fd is None else fd
        memory = mmap.mmap(self.fd, total)
        for name, (shape, dtype) in layout.items():
            setattr(self, name, np.ndarray(shape, dtype, memory, offsets[name]))

    def close(self) -> None:
        """Close the file descriptor; the memory goes when the last array does."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _nameless_file(size: int) -> int:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("joyrl-envs")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size)
    return fd
