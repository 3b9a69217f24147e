"""Messages between two ranks over a CPU Gloo group: a fixed header, then a flat payload.

What Gloo does (torch 2.13), and what follows from it here:

- Messages of one pair of ranks and one tag arrive in the order in which they were sent, and tags do
  not see each other. So a conversation, a `Line`, has tags of its own, and one thread at each end.
- `Work.is_completed` of a message stays False until somebody waits, a wait that times out breaks
  every connection of the group, and nothing wakes a thread that waits. So nothing polls and
  nothing is cancelled: whoever serves several lines has a thread for each.
- Receives must know the size. So the header comes first, as a message of its own, and tells it.
- Bytes move once the other side has asked for them. So a client asks for the answer when it sends
  its request: the answer then arrives while the client does something else.
- A peer that ends makes every wait for it raise: `PeerLostError`.

No pickle: headers are eight integers, payloads are tensors back to back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.distributed as dist

from joyrlinf_core.errors import RunFailedError
from joyrlinf_core.observability.activity import waiting

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup, Work

MAGIC = 0x4A4F59524C_0001
"""First number of every header; the last four hex digits are the version of the format."""

REFUSED = 0
"""Kind of an answer that is an error; every other kind is the caller's."""

_FOR_EVER = timedelta(days=365)


class PeerLostError(RunFailedError):
    """The other side of a line ended or fell silent; its own error says why."""


class RefusedError(RuntimeError):
    """The peer answered with an error; the message is its text."""


class Field(NamedTuple):
    """One tensor of a payload."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Header:
    """64 bytes in front of every payload.

    Attributes:
        kind: What the payload is; positive.
        sequence: Number of the request on its line; its answer has the same.
        rows: Rows of the payload's tensors.
        chunk: Actions of a chunk; 0 where there is none.
        flag: A bit for the kind to use.
        nbytes: Bytes of the payload.
    """

    kind: int
    sequence: int
    rows: int = 0
    chunk: int = 0
    flag: bool = False
    nbytes: int = 0

    def pack(self, line: int) -> Tensor:
        """Return int64 [8]."""
        return torch.tensor([MAGIC, line, *map(int, astuple(self))], dtype=torch.int64)

    @classmethod
    def unpack(cls, packed: Tensor, line: int) -> Header:
        """Read what `pack` wrote for this line.

        Raises:
            RunFailedError: It is no header, or one of another line.
        """
        magic, told, *values = packed.tolist()
        if (magic, told) != (MAGIC, line):
            raise RunFailedError(
                f"a message on line {line} starts with {magic:#x} and names line {told}, not "
                f"{MAGIC:#x} and {line}: the two ranks disagree on who talks to whom",
                fix="run one version of joyrl with one plan on all nodes",
            )
        kind, sequence, rows, chunk, flag, nbytes = values
        return cls(kind, sequence, rows, chunk, bool(flag), nbytes)


_HEADER_NUMBERS = 2 + len(fields(Header))


def payload_bytes(layout: Iterable[Field]) -> int:
    """Return the bytes of a payload."""
    return sum(field.nbytes for field in layout)


def pack(tensors: Sequence[Tensor], layout: Sequence[Field]) -> Tensor:
    """Return tensors as one payload, uint8 [n] on CPU; one copy each, converted where needed.

    Args:
        tensors: One a field, of its shape.
        layout: Fields in the order of falling item sizes, so that each lies aligned.
    """
    payload = torch.empty(payload_bytes(layout), dtype=torch.uint8)
    for view, tensor in zip(unpack(payload, layout), tensors, strict=True):
        if view.shape != tensor.shape:
            raise ValueError(f"a tensor of shape {tuple(tensor.shape)}, not {tuple(view.shape)}")
        view.copy_(tensor)
    return payload


def unpack(payload: Tensor, layout: Sequence[Field]) -> list[Tensor]:
    """Return the tensors of a payload, as views.

    Raises:
        RunFailedError: The payload has another size.
    """
    if payload.numel() != payload_bytes(layout):
        raise RunFailedError(
            f"a payload of {payload.numel()} bytes came where {payload_bytes(layout)} were due",
            fix="run one version of joyrl with one plan on all nodes",
        )
    tensors, start = [], 0
    for field in layout:
        stop = start + field.nbytes
        tensors.append(payload[start:stop].view(field.dtype).view(field.shape))
        start = stop
    return tensors


class _Expected(NamedTuple):
    numbers: Tensor
    payload: Tensor
    works: list[Work]


class Line:
    """One end of a conversation of two ranks; used by one thread at a time.

    Args:
        group: A Gloo group that both are in.
        peer: Global rank of the other end.
        number: Number of the line; the same at both ends, and unique among those of the pair.
        role: What the peer does, for messages.
    """

    def __init__(self, group: ProcessGroup, peer: int, number: int, *, role: str) -> None:
        self.peer = peer
        self._group = group
        self._number = number
        self._tag, self._error_tag = 2 * number, 2 * number + 1
        self._role = role
        self._sends: list[tuple[Work, Tensor]] = []
        self._expected: _Expected | None = None

    def __str__(self) -> str:
        return f"rank {self.peer} ({self._role})"

    def send(self, header: Header, payload: Tensor | None = None) -> None:
        """Start to send; `header.nbytes` is set from the payload. `flush` waits."""
        size = payload.numel() if payload is not None else 0
        self._start_send(replace(header, nbytes=size).pack(self._number), self._tag)
        if payload is not None and size:
            self._start_send(payload, self._tag)

    def refuse(self, sequence: int, text: str) -> None:
        """Answer with an error and wait until it was read. Nothing can follow on this line.

        The text has a tag of its own: the peer may have asked for a payload of another size.
        """
        data = torch.frombuffer(bytearray(text.encode() or b" "), dtype=torch.uint8)
        header = Header(REFUSED, sequence, nbytes=data.numel())
        self._start_send(header.pack(self._number), self._tag)
        self._start_send(data, self._error_tag)
        self.flush()

    def flush(self, timeout: timedelta | None = None) -> None:
        """Wait until everything that was sent has left.

        Args:
            timeout: How long; None takes that of the group. Once over, the group is broken.
        """
        sends, self._sends = self._sends, []
        for work, _ in sends:
            self._wait(work, timeout)

    def receive(self) -> tuple[Header, Tensor]:
        """Wait for the next message, however long; return its header and payload uint8 [n]."""
        numbers = torch.empty(_HEADER_NUMBERS, dtype=torch.int64)
        self._wait(self._start_receive(numbers, self._tag), _FOR_EVER)
        header = Header.unpack(numbers, self._number)
        payload = torch.empty(header.nbytes, dtype=torch.uint8)
        if header.nbytes:
            self._wait(self._start_receive(payload, self._tag), None)
        return header, payload

    def expect(self, nbytes: int) -> None:
        """Ask for an answer with a payload of this size; `answer` waits for it.

        Called before the request is sent, so that the answer finds its place at once.
        """
        numbers = torch.empty(_HEADER_NUMBERS, dtype=torch.int64)
        payload = torch.empty(nbytes, dtype=torch.uint8)
        works = [self._start_receive(numbers, self._tag)]
        if nbytes:
            works.append(self._start_receive(payload, self._tag))
        self._expected = _Expected(numbers, payload, works)

    def answer(self, timeout: timedelta | None = None) -> tuple[Header, Tensor]:
        """Wait for what `expect` asked for: header and payload uint8 [n], a tensor of its own.

        Args:
            timeout: How long; None takes that of the group. Once over, the group is broken.

        Raises:
            RefusedError: The answer is an error, and this line has ended.
            PeerLostError: The peer is gone or silent.
        """
        assert self._expected is not None, "expect comes first"
        numbers, payload, works = self._expected
        self._wait(works[0], timeout)
        header = Header.unpack(numbers, self._number)
        if header.kind == REFUSED:
            # The payload stays asked for and comes never: its memory is kept as long as the line.
            text = torch.empty(header.nbytes, dtype=torch.uint8)
            self._wait(self._start_receive(text, self._error_tag), timeout)
            raise RefusedError(text.numpy().tobytes().decode(errors="replace"))
        if header.nbytes != payload.numel():
            raise RunFailedError(
                f"{self} answers with {header.nbytes} bytes, not {payload.numel()}",
                fix="run one version of joyrl with one plan on all nodes",
            )
        for work in works[1:]:
            self._wait(work, timeout)
        self._expected = None
        return header, payload

    def _start_send(self, tensor: Tensor, tag: int) -> None:
        try:
            work = dist.isend(tensor, self.peer, group=self._group, tag=tag)
        except RuntimeError as error:
            raise self._lost(error) from error
        assert work is not None, "this rank is in the group"
        self._sends.append((work, tensor))

    def _start_receive(self, tensor: Tensor, tag: int) -> Work:
        try:
            work = dist.irecv(tensor, self.peer, group=self._group, tag=tag)
        except RuntimeError as error:
            raise self._lost(error) from error
        assert work is not None, "this rank is in the group"
        return work

    def _wait(self, work: Work, timeout: timedelta | None) -> None:
        try:
            with waiting(f"rank {self.peer} ({self._role})"):
                if timeout is None:
                    work.wait()
                else:
                    work.wait(timeout)
        except RuntimeError as error:
            raise self._lost(error) from error

    def _lost(self, error: RuntimeError) -> PeerLostError:
        silent = "timed out" in str(error).lower()
        what = "did not answer in time" if silent else "is gone"
        reason = str(error).splitlines()[0]
        fix = f"look at the log of rank {self.peer}"
        return PeerLostError(f"{self} {what}: {reason}", fix=fix)
