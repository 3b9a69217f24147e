"""What `joyrl nccl-test` sends through a group, and how it sees that the right numbers arrived.

Numbers are small integers in float32, so that sums are exact on every backend.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

ELEMENT_BYTES = 4
PERIOD = 251
"""Values repeat after so many elements: a prime, so that a shift by a block size shows."""

NOTHING = -1.0
"""Stands where nothing was received yet."""


@dataclass(frozen=True)
class Channel:
    """A process group, seen from one of its ranks.

    Attributes:
        group: The group; None for all ranks.
        ranks: Its global ranks, ascending.
        rank: Global rank of this process.
        device: Where the tensors are.
    """

    group: ProcessGroup | None
    ranks: tuple[int, ...]
    rank: int
    device: torch.device

    @property
    def place(self) -> int:
        """Number of this process within the group."""
        return self.ranks.index(self.rank)

    @property
    def size(self) -> int:
        """Ranks in the group."""
        return len(self.ranks)

    def pattern(self, count: int, offset: int) -> Tensor:
        """Return [count] float32 numbers that tell their place and the offset."""
        places = torch.arange(count, dtype=torch.int32, device=self.device)
        return places.remainder_(PERIOD).add_(offset).float()


class LinkOperation(ABC):
    """One operation at one size; the same calls on every rank that takes part.

    Attributes:
        nbytes: Bytes of its buffer.

    Args:
        channel: The group.
        count: Numbers in the buffer.
    """

    in_place = True

    def __init__(self, channel: Channel, count: int) -> None:
        self._channel = channel
        self._count = count
        self.nbytes = count * ELEMENT_BYTES
        self._sent = torch.zeros(count, device=channel.device)
        self._received = self._sent if self.in_place else torch.zeros_like(self._sent)

    def fill(self) -> None:
        """Write what is sent, and forget what was received."""
        self._sent = self._data()
        self._received = self._sent if self.in_place else torch.full_like(self._sent, NOTHING)

    def mismatch(self) -> str:
        """Return what is wrong with what arrived after `fill` and `call`; empty if nothing is."""
        return _difference(self._received, self._expected())

    def clear(self) -> None:
        """Make all numbers zero, so that sums stay finite however often it is called."""
        self._sent.zero_()

    @abstractmethod
    def call(self) -> None:
        """Do it once; on a GPU, queue it."""

    @abstractmethod
    def _data(self) -> Tensor:
        """Return what this rank sends, [count]."""

    @abstractmethod
    def _expected(self) -> Tensor:
        """Return what has to arrive, [count]."""


class AllReduce(LinkOperation):
    """Every rank gets the sum of all.

    Args:
        channel: The group.
        nbytes: Size of the buffer; rounded down to whole numbers, at least one.
    """

    def __init__(self, channel: Channel, nbytes: int) -> None:
        super().__init__(channel, max(1, nbytes // ELEMENT_BYTES))

    def call(self) -> None:
        """Sum."""
        dist.all_reduce(self._sent, group=self._channel.group)

    def _data(self) -> Tensor:
        return self._channel.pattern(self._count, self._channel.place)

    def _expected(self) -> Tensor:
        size = self._channel.size
        return self._channel.pattern(self._count, 0) * size + size * (size - 1) // 2


class Broadcast(LinkOperation):
    """Every rank gets what one of them has.

    Args:
        channel: The group.
        nbytes: Size of the buffer; rounded down to whole numbers, at least one.
        root: Global rank that sends.
    """

    def __init__(self, channel: Channel, nbytes: int, root: int) -> None:
        super().__init__(channel, max(1, nbytes // ELEMENT_BYTES))
        self._root = root

    def call(self) -> None:
        """Send, or receive."""
        dist.broadcast(self._sent, src=self._root, group=self._channel.group)

    def _data(self) -> Tensor:
        if self._channel.rank == self._root:
            return self._expected()
        return torch.full((self._count,), NOTHING, device=self._channel.device)

    def _expected(self) -> Tensor:
        return self._channel.pattern(self._count, self._root)


class AllToAll(LinkOperation):
    """Every rank sends each rank, itself too, an equal part of its buffer.

    Args:
        channel: The group.
        nbytes: Size of the whole buffer; rounded down to equal parts of at least one number.
    """

    in_place = False

    def __init__(self, channel: Channel, nbytes: int) -> None:
        self._part = max(1, nbytes // ELEMENT_BYTES // channel.size)
        super().__init__(channel, self._part * channel.size)

    def call(self) -> None:
        """Send every part, receive as many."""
        dist.all_to_all_single(self._received, self._sent, group=self._channel.group)

    def _data(self) -> Tensor:
        place, size = self._channel.place, self._channel.size
        return torch.cat([self._of(place * size + to) for to in range(size)])

    def _expected(self) -> Tensor:
        place, size = self._channel.place, self._channel.size
        return torch.cat([self._of(sender * size + place) for sender in range(size)])

    def _of(self, offset: int) -> Tensor:
        return self._channel.pattern(self._part, offset)


class PingPong(LinkOperation):
    """One rank sends to another, which sends as much back: two transfers a call.

    Batched point-to-point as in comm mode v1, so that it goes through the group's own connections.

    Args:
        channel: The group.
        nbytes: Size of one message; rounded down to whole numbers, at least one.
        pair: The two global ranks; the first one begins.
    """

    in_place = False

    def __init__(self, channel: Channel, nbytes: int, pair: tuple[int, int]) -> None:
        super().__init__(channel, max(1, nbytes // ELEMENT_BYTES))
        self._begins = channel.rank == pair[0]
        self._peer = pair[1] if self._begins else pair[0]

    def call(self) -> None:
        """Send and receive, or the other way round."""
        if self._begins:
            self._send()
            self._receive()
        else:
            self._receive()
            self._send()

    def _data(self) -> Tensor:
        return self._channel.pattern(self._count, self._channel.rank)

    def _expected(self) -> Tensor:
        return self._channel.pattern(self._count, self._peer)

    def _send(self) -> None:
        self._transfer(dist.P2POp(dist.isend, self._sent, self._peer, self._channel.group))

    def _receive(self) -> None:
        self._transfer(dist.P2POp(dist.irecv, self._received, self._peer, self._channel.group))

    def _transfer(self, transfer: dist.P2POp) -> None:
        for work in dist.batch_isend_irecv([transfer]):
            work.wait()


def timed(operation: LinkOperation, calls: int, device: torch.device) -> float:
    """Return the seconds of several calls one after the other, until the last one is through."""
    finish(device)
    started = time.perf_counter()
    for _ in range(calls):
        operation.call()
    finish(device)
    return time.perf_counter() - started


def finish(device: torch.device) -> None:
    """Wait until everything that was queued on the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _difference(found: Tensor, expected: Tensor) -> str:
    """Return in words how tensors differ; empty if they are equal."""
    wrong = torch.nonzero(found != expected).flatten()
    if not wrong.numel():
        return ""
    first = int(wrong[0].item())
    return (
        f"{wrong.numel()} of {found.numel()} numbers are wrong; number {first} is "
        f"{found[first].item():g} instead of {expected[first].item():g}"
    )
