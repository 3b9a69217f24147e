"""`TrajectoryExchange`: hands columns of batches from rollout ranks to actors, along the shard map.

For each batch, ranks exchange headers and then what the headers announce. With v1, a header goes
along each shard between two processes; with v2, from every rollout rank to all ranks of the group,
because a collective needs them all. The rest is the same.

    rollout                                actor
    send(tensors, 7, ...)                  receive()
      pack the columns of each actor
      header: BATCH 7, n bytes ---------->   make room for n bytes
      columns --------------------------->   check, merge sources
    send_end()
      header: END ----------------------->   None, once all have ended

A batch is a mapping of names to tensors [T, B, ...] or [B]; see `packing.py` for its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from joyrlinf_core.comm.trajectories import all_to_all, p2p
from joyrlinf_core.comm.trajectories.buffers import BufferPool, Link
from joyrlinf_core.comm.trajectories.packing import (
    HEADER_BYTES,
    Header,
    Kind,
    Layout,
    put_columns,
    take_columns,
)
from joyrlinf_core.errors import RunFailedError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

    from joyrlinf_core.plan.run_plan import RunPlan


@dataclass(eq=False)
class Received:
    """A batch as an actor got it.

    It belongs to whoever received it: nothing writes to it before `release`, and without a call of
    that it is freed like any tensors. So a thread may receive the next batch while another one
    learns from this.

    Attributes:
        tensors: The batch; on the host.
        index: Its number.
        oldest: Lowest weight version of any source.
        newest: Highest.
    """

    tensors: dict[str, Tensor]
    index: int
    oldest: int
    newest: int
    _give_back: Callable[[], None] | None = field(default=None, repr=False)

    def release(self) -> None:
        """Let a later batch use this memory again, which spares new memory.

        No tensor of the batch, and no view of one, may be used afterwards.
        """
        self.tensors = {}
        if self._give_back is not None:
            self._give_back()
            self._give_back = None


@dataclass(frozen=True)
class _Part:
    """Columns of one source.

    Attributes:
        header: Their header.
        layout: Their fields.
        tensors: The columns, as views of where they arrived or were recorded.
    """

    header: Header
    layout: Layout
    tensors: Mapping[str, Tensor]


class TrajectoryExchange:
    """One rank's part. One thread at a time uses it; all ranks of the group make it together.

    Args:
        plan: The plan.
        rank: Global rank.
        group: All rollout ranks and actors; None if every shard stays in its process. It has a
            backend for the CPU. If it has NCCL too, columns go through the device.
        device: Device of this rank.
        checksum: Whether to send a crc32 with every message. What comes with one is checked anyway.
    """

    def __init__(
        self,
        plan: RunPlan,
        rank: int,
        group: ProcessGroup | None,
        device: torch.device,
        *,
        checksum: bool = False,
    ) -> None:
        place = plan.placement
        self._rank = rank
        self._checksum = checksum
        self._collective = plan.config.algorithm.comm_mode == "v2"
        self._ranks = tuple(sorted({*place.rollout_ranks, *place.actor_ranks}))
        # Neighbouring groups stay together on both sides: two ranks share one shard at most.
        self._into = {s.source: s for s in plan.shards if s.destination == rank}
        self._out_of = {s.destination: s for s in plan.shards if s.source == rank}
        tells, hears = tuple(self._out_of), tuple(self._into)
        if self._collective:
            tells = self._ranks if rank in place.rollout_ranks else ()
            hears = place.rollout_ranks
        self._tells = tuple(sorted({*tells} - {rank}))
        self._hears = tuple(sorted({*hears} - {rank}))
        self._ended: set[int] = set()
        self._layout: Layout | None = None
        self._layouts: dict[int, Layout] = {}
        self._index: int | None = None  # of the batch under way, as far as known
        self._pool = BufferPool(pinned=device.type == "cuda")
        self._link = None
        if group is not None:
            exchange = all_to_all.exchange if self._collective else p2p.exchange
            through = device if "nccl" in dist.get_backend_config(group) else None
            self._link = Link(exchange, group, through)

    def send(self, tensors: Mapping[str, Tensor], index: int, oldest: int, newest: int) -> None:
        """Send a batch from a rank that is no actor; afterwards, its memory may be written over.

        Args:
            tensors: This rank's columns, on the host.
            index: Number of the batch, one more each time.
            oldest: Lowest weight version that acted in it.
            newest: Highest.
        """
        self._index = index
        self._swap(Header(Kind.BATCH, self._rank, index, oldest, newest), tensors)
        self._index += 1

    def send_end(self) -> None:
        """Tell the actors that no batch follows. With v2, wait until all rollout ranks do so."""
        while True:
            self._swap(Header(Kind.END, self._rank, self._index or 0), None)
            if self._ended.issuperset(self._hears):
                return

    def receive(self) -> Received | None:
        """Return the next batch on an actor that is no rollout rank; None after the last.

        Once a source has ended, what others still send is no whole batch and is dropped.
        """
        while True:
            parts, buffer = self._swap(None, None)
            if self._ended.issuperset(self._hears):
                return None
            if len(parts) == len(self._into):
                return self._merge(parts, buffer)
            self._pool.give_back(buffer)

    def exchange(
        self, tensors: Mapping[str, Tensor] | None, index: int, oldest: int, newest: int
    ) -> Received | None:
        """Send and receive one batch; all ranks of the group call it in turn.

        What stays in this process is not sent. If that is all an actor gets, the result shows the
        given tensors themselves.

        Args:
            tensors: This rank's columns, on the host; None if it is no rollout rank.
            index: Number of the batch.
            oldest: Lowest weight version that acted in it on this rank.
            newest: Highest.

        Returns:
            The batch of this actor; None if it is no actor.
        """
        self._index = index
        header = Header(Kind.BATCH, self._rank, index, oldest, newest)
        parts, buffer = self._swap(header, tensors)
        if tensors is not None and (shard := self._into.get(self._rank)) is not None:
            own = {
                name: take_columns(tensor, shard.source_column, shard.columns)
                for name, tensor in tensors.items()
            }
            parts[self._rank] = _Part(header, Layout.of(tensors), own)
        if missing := set(self._into) - set(parts):
            raise self._error(min(missing), "it sends no more")
        return self._merge(parts, buffer) if self._into else None

    def _swap(
        self, header: Header | None, tensors: Mapping[str, Tensor] | None
    ) -> tuple[dict[int, _Part], Tensor]:
        """Exchange headers and messages with other ranks.

        Args:
            header: What this rank tells as a source.
            tensors: Its columns, if it sends any.

        Returns:
            What came, by source, and the buffer that it is in.
        """
        if self._link is None:
            return {}, self._pool.take(0)
        headers, outgoing = self._pack(header, tensors)
        heard = self._swap_headers(headers)
        send_counts = self._counts({rank: h.payload for rank, h in headers.items()})
        recv_counts = self._counts({rank: h.payload for rank, h in heard.items()})
        incoming = self._pool.take(sum(recv_counts))
        longest = max((h.longest for h in (*headers.values(), *heard.values())), default=0)
        if longest:
            self._link.large(outgoing, send_counts, incoming, recv_counts, longest)
        self._pool.give_back(outgoing)
        messages = dict(zip(self._ranks, incoming.split(recv_counts), strict=True))
        parts = {
            rank: self._unpack(rank, h, messages[rank]) for rank, h in heard.items() if h.payload
        }
        return parts, incoming

    def _pack(
        self, header: Header | None, tensors: Mapping[str, Tensor] | None
    ) -> tuple[dict[int, Header], Tensor]:
        """Return what to tell each rank, and the messages to them, one after the other."""
        if header is None:
            return {}, self._pool.take(0)
        if tensors is None:
            return dict.fromkeys(self._tells, header), self._pool.take(0)
        layout, table = Layout.of(tensors), b""
        if layout != self._layout:
            table = layout.to_json()
            header, self._layout = replace(header, kind=Kind.LAYOUT, table=len(table)), layout
        sizes = {
            rank: len(table) + layout.nbytes(self._out_of[rank].columns)
            for rank in self._tells
            if rank in self._out_of
        }
        header = replace(header, longest=max(sizes.values(), default=0))
        buffer = self._pool.take(sum(sizes.values()))
        headers = dict.fromkeys(self._tells, header)
        for rank, message in zip(sizes, buffer.split(list(sizes.values())), strict=True):
            shard = self._out_of[rank]
            if table:
                message[: len(table)].copy_(_from_bytes(table))
            columns = message[len(table) :]
            layout.pack(tensors, shard.source_column, shard.columns, columns)
            headers[rank] = replace(header, payload=len(message))
            if self._checksum:
                headers[rank] = headers[rank].sealed(message)
        return headers, buffer

    def _swap_headers(self, headers: Mapping[int, Header]) -> dict[int, Header]:
        """Send headers, return those of the sources that this rank hears, note who has ended."""
        assert self._link is not None
        hears = [r for r in self._hears if self._collective or r not in self._ended]
        send = torch.empty(len(headers), HEADER_BYTES, dtype=torch.uint8)
        for place, header in zip(send, headers.values(), strict=True):
            place.copy_(_from_bytes(header.pack()))
        recv = torch.empty(len(hears), HEADER_BYTES, dtype=torch.uint8)
        self._link.small(
            send.flatten(),
            self._counts(dict.fromkeys(headers, HEADER_BYTES)),
            recv.flatten(),
            self._counts(dict.fromkeys(hears, HEADER_BYTES)),
        )
        heard: dict[int, Header] = {}
        for rank, data in zip(hears, recv, strict=True):
            try:
                heard[rank] = Header.unpack(data.numpy().tobytes())
            except ValueError as error:
                raise self._error(rank, str(error)) from error
        self._ended.update(rank for rank, header in heard.items() if header.kind == Kind.END)
        return heard

    def _unpack(self, source: int, header: Header, message: Tensor) -> _Part:
        """Check a message uint8 [header.payload] and return what it holds."""
        shard = self._into[source]
        try:
            header.check(message)
            if header.kind == Kind.LAYOUT:
                table = message[: header.table].numpy().tobytes()
                self._layouts[source] = Layout.from_json(table)
            layout = self._layouts.get(source)
            if layout is None:
                raise ValueError("no layout table came before it")
            columns = message[header.table :]
            if len(columns) != (nbytes := layout.nbytes(shard.columns)):
                raise ValueError(
                    f"it holds {len(columns)} bytes, its layout table says {nbytes} for "
                    f"{shard.columns} columns"
                )
        except ValueError as error:
            raise self._error(source, str(error)) from error
        return _Part(header, layout, layout.views(columns, shard.columns))

    def _merge(self, parts: Mapping[int, _Part], buffer: Tensor) -> Received:
        """Return the batch of all sources; `buffer` holds what came from other ranks."""
        first_source, first = next(iter(parts.items()))
        for source, part in parts.items():
            if part.header.index != first.header.index:
                raise self._error(
                    source,
                    f"it is number {part.header.index}, of rank {first_source} came "
                    f"{first.header.index}",
                )
            if part.layout != first.layout:
                raise self._error(
                    source,
                    f"its fields {_told(part.layout, first.layout)} differ from those of "
                    f"rank {first_source}",
                )
        if len(parts) == 1:
            tensors = dict(first.tensors)
        else:
            columns = sum(shard.columns for shard in self._into.values())
            merged = self._pool.take(first.layout.nbytes(columns))
            tensors = first.layout.views(merged, columns)
            for source, part in parts.items():
                put_columns(tensors, self._into[source].destination_column, part.tensors)
            self._pool.give_back(buffer)
            buffer = merged
        headers = [part.header for part in parts.values()]
        self._index = first.header.index + 1
        return Received(
            tensors,
            first.header.index,
            oldest=min(header.oldest for header in headers),
            newest=max(header.newest for header in headers),
            _give_back=partial(self._pool.give_back, buffer),
        )

    def _counts(self, sizes: Mapping[int, int]) -> list[int]:
        """Return bytes by rank of the group from bytes by global rank."""
        return [sizes.get(rank, 0) for rank in self._ranks]

    def _error(self, source: int, reason: str) -> RunFailedError:
        batch = "the first batch" if self._index is None else f"batch {self._index}"
        return RunFailedError(
            f"rank {self._rank} can't use {batch} of rank {source}: {reason}",
            fix="run the same version of joyrl on all nodes; if it is, `joyrl resume` the run",
        )


def _from_bytes(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _told(layout: Layout, other: Layout) -> str:
    """Return the names of fields that only one of two layouts has as it is."""
    return ", ".join(sorted({f.name for f in {*layout.fields} ^ {*other.fields}}))
