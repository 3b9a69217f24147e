"""Memory for messages: host buffers that are used again, and the way through a device."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from joyrlinf_core.observability.activity import waiting

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

Exchange = Callable[["Tensor", Sequence[int], "Tensor", Sequence[int], "ProcessGroup"], None]
"""`p2p.exchange` or `all_to_all.exchange`."""

PIECE_BYTES = 64 * 2**20
"""Bytes of a message that are on a device at a time: far more than a link needs to be busy, far
less than a batch with its prefix caches."""


class BufferPool:
    """Flat host buffers for one thread that takes them and any that gives them back.

    New memory costs a page fault every 4 KiB, about as much as sending it, and pinning costs more.
    A buffer that nobody gives back is freed like any tensor.

    Args:
        pinned: Whether devices copy from and to them.
    """

    def __init__(self, *, pinned: bool) -> None:
        self._pinned = pinned
        self._free: list[torch.UntypedStorage] = []
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> Tensor:
        """Return a buffer uint8 [nbytes], not initialised, in the smallest memory that fits."""
        if not nbytes:
            return torch.empty(0, dtype=torch.uint8)
        with self._lock:
            self._free.sort(key=len)
            for place, memory in enumerate(self._free):
                if len(memory) >= nbytes:
                    del self._free[place]
                    return torch.empty(0, dtype=torch.uint8).set_(memory, 0, (nbytes,), (1,))
            if self._free:
                del self._free[0]  # a larger one takes its place
        return torch.empty(nbytes, dtype=torch.uint8, pin_memory=self._pinned)

    def give_back(self, buffer: Tensor) -> None:
        """Allow a buffer from `take` to be written over."""
        if len(buffer):
            with self._lock:
                self._free.append(buffer.untyped_storage())


class Link:
    """Exchanges host buffers within a group, where wanted through device buffers of bounded size.

    Args:
        exchange: The comm mode.
        group: The group; all its ranks make their links at the same time. Beside the backend of the
            device, it has one for the CPU.
        device: Device through which large messages go, or None for straight from host to host.
        piece_bytes: See `PIECE_BYTES`; the same on all ranks.
    """

    def __init__(
        self,
        exchange: Exchange,
        group: ProcessGroup,
        device: torch.device | None,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        self._exchange = exchange
        self._group = group
        self._device = device
        self._stream = torch.cuda.Stream(device) if device and device.type == "cuda" else None
        self._piece_bytes = piece_bytes
        self._on_device: dict[str, Tensor] = {}
        # NCCL needs a collective of all ranks before some of them exchange messages.
        dist.all_reduce(torch.zeros(1, device=device or "cpu"), group=group)

    @waiting("a batch")
    def small(
        self, send: Tensor, send_counts: Sequence[int], recv: Tensor, recv_counts: Sequence[int]
    ) -> None:
        """Exchange a few bytes over the CPU's backend; arguments as in `p2p.exchange`.

        Waiting for a peer costs nothing here; on a device it would keep a kernel busy.
        """
        self._exchange(send, send_counts, recv, recv_counts, self._group)

    @waiting("a batch")
    def large(
        self,
        send: Tensor,
        send_counts: Sequence[int],
        recv: Tensor,
        recv_counts: Sequence[int],
        longest: int,
    ) -> None:
        """Exchange host buffers, pinned ones if they go through a device.

        Args:
            send: As in `p2p.exchange`, but on the host.
            send_counts: Likewise.
            recv: Likewise.
            recv_counts: Likewise.
            longest: Bytes of the longest message between any two ranks, or for v1 between this one
                and any other; says how many pieces there are.
        """
        if self._device is None:
            self._exchange(send, send_counts, recv, recv_counts, self._group)
            return
        with torch.cuda.stream(self._stream):
            for start in range(0, longest, self._piece_bytes):
                self._piece(
                    _pieces(send, send_counts, start, self._piece_bytes),
                    _pieces(recv, recv_counts, start, self._piece_bytes),
                )
        if self._stream is not None:
            # It has waited for the messages, and holds the copies in their order.
            self._stream.synchronize()

    def _piece(self, outgoing: list[Tensor], incoming: list[Tensor]) -> None:
        """Exchange one piece per rank, all in the order of the current stream."""
        send_counts, recv_counts = [len(p) for p in outgoing], [len(p) for p in incoming]
        send = self._reserve("send", sum(send_counts))
        recv = self._reserve("recv", sum(recv_counts))
        for piece, place in zip(outgoing, send.split(send_counts), strict=True):
            place.copy_(piece, non_blocking=True)
        self._exchange(send, send_counts, recv, recv_counts, self._group)
        for piece, place in zip(incoming, recv.split(recv_counts), strict=True):
            piece.copy_(place, non_blocking=True)

    def _reserve(self, name: str, nbytes: int) -> Tensor:
        buffer = self._on_device.get(name)
        if buffer is None or len(buffer) < nbytes:
            buffer = torch.empty(nbytes, dtype=torch.uint8, device=self._device)
            self._on_device[name] = buffer
        return buffer[:nbytes]


def _pieces(buffer: Tensor, counts: Sequence[int], start: int, length: int) -> list[Tensor]:
    """Return of each part of a buffer the bytes from `start` on, at most `length`."""
    return [part[start : start + length] for part in buffer.split(list(counts))]
