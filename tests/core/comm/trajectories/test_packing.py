from __future__ import annotations

import json
import zlib

import pytest
import torch

from joyrlinf_core.comm.trajectories.packing import (
    ALIGNMENT,
    DTYPES,
    HEADER_BYTES,
    Field,
    Header,
    Kind,
    Layout,
    put_columns,
)
from joyrlinf_core.errors import RunFailedError
from tests.core.comm.trajectories.exchange_ranks import SIZE, plan_of, same, share, whole

HEADER = Header(Kind.LAYOUT, 3, 7, 5, 6, payload=1024, longest=2048, table=64, checksum=0xDEADBEEF)


def test_the_header_is_64_fixed_bytes() -> None:
    expected = (
        "4a524c5452414a00" "0100" "0200" "03000000" "0700000000000000" "0500000000000000"
        "0600000000000000" "0004000000000000" "0008000000000000" "40000000" "efbeadde"
    )  # fmt: skip
    assert HEADER.pack().hex() == expected
    assert len(HEADER.pack()) == HEADER_BYTES == 64
    assert Header.unpack(HEADER.pack()) == HEADER


@pytest.mark.parametrize(
    ("place", "value", "why"),
    [(0, b"X", "starts with"), (8, b"\x02", "version 2"), (10, b"\x09", "9 is not a valid Kind")],
)
def test_foreign_headers_are_refused(place: int, value: bytes, why: str) -> None:
    data = bytearray(HEADER.pack())
    data[place : place + 1] = value
    with pytest.raises(ValueError, match=why):
        Header.unpack(bytes(data))


def test_the_checksum_covers_every_byte() -> None:
    payload = torch.arange(200, dtype=torch.uint8)
    header = Header(Kind.BATCH, 0).sealed(payload)
    assert header.checksum == zlib.crc32(bytes(range(200)))
    header.check(payload)
    for place in range(200):
        damaged = payload.clone()
        damaged[place] ^= 1
        with pytest.raises(ValueError, match="crc32"):
            header.check(damaged)
        Header(Kind.BATCH, 0).check(damaged)  # nothing was asked for


@pytest.mark.parametrize("name", DTYPES)
def test_every_type_survives(name: str) -> None:
    values = torch.tensor([[0, 1, 1], [1, 0, 100]]).to(DTYPES[name])
    batch = {"one": values[0], "some": values, "many": values[:, :, None].expand(2, 3, 5)}
    layout = Layout.of(batch)
    buffer = torch.empty(layout.nbytes(2), dtype=torch.uint8)
    layout.pack(batch, 1, 2, buffer)
    expected = {"one": values[0, 1:], "some": values[:, 1:], "many": batch["many"][:, 1:]}
    assert same(layout.views(buffer, 2), expected)


def test_views_share_the_buffer_and_are_aligned() -> None:
    batch = whole(3, 0, values=True)
    layout = Layout.of(batch)
    buffer = torch.zeros(layout.nbytes(2 * SIZE), dtype=torch.uint8)
    views = layout.views(buffer, 2 * SIZE)
    assert [*views] == sorted(batch)
    places = [v.data_ptr() - buffer.data_ptr() for v in views.values() if v.numel()]
    assert places == sorted(places)
    assert not any(place % ALIGNMENT for place in places)
    assert all(view.is_contiguous() for view in views.values())
    views["dones"].fill_(True)
    assert buffer.sum() == views["dones"].numel()


def test_equal_columns_are_equal_bytes_whatever_was_in_the_buffer() -> None:
    batch = whole(2, 0)
    layout = Layout.of(batch)
    buffers = [torch.full((layout.nbytes(3),), fill, dtype=torch.uint8) for fill in (0, 255)]
    for buffer in buffers:
        layout.pack(batch, 1, 3, buffer)
    assert torch.equal(*buffers)
    raw = sum(field.nbytes(3) for field in layout.fields)
    assert raw < layout.nbytes(3) < raw + ALIGNMENT * len(layout.fields)


def test_the_table_is_json() -> None:
    layout = Layout.of({"b": torch.zeros(4, 2, 5, dtype=torch.bfloat16), "a": torch.zeros(2) > 0})
    table = layout.to_json()
    assert not len(table) % ALIGNMENT
    assert json.loads(table) == [["a", "bool", None, []], ["b", "bfloat16", 4, [5]]]
    assert Layout.from_json(table) == layout
    assert layout.fields[1] == Field("b", "bfloat16", 4, (5,))


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (b"\xff", "can't be read"),
        (b"{}x", "can't be read"),
        (b'[["a", "bool"]]', "can't be read"),
        (b"[1]", "can't be read"),
        (b'[["a", "object", null, []]]', "`a` has the unknown type object"),
    ],
)
def test_broken_tables_are_refused(table: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Layout.from_json(table)


@pytest.mark.parametrize("tensor", [torch.zeros(2, 3, dtype=torch.complex64), torch.tensor(1.0)])
def test_what_cannot_be_sent_is_named(tensor: torch.Tensor) -> None:
    with pytest.raises(RunFailedError, match="`replay/x`"):
        Layout.of({"replay/x": tensor})


@pytest.mark.parametrize("rollouts", range(1, 7))
@pytest.mark.parametrize("actors", range(1, 7))
def test_messages_of_every_shard_add_up_to_the_actors_columns(rollouts: int, actors: int) -> None:
    rollout, actor = tuple(range(rollouts)), tuple(range(100, 100 + actors))
    groups = 7
    batch = whole(groups, 0)
    layout = Layout.of(batch)
    got = {
        rank: {n: torch.zeros_like(v) for n, v in part.items()}
        for rank in actor
        if (part := share(batch, actor, rank, groups)) is not None
    }
    for shard in plan_of(rollout, actor, groups).shards:
        own = share(batch, rollout, shard.source, groups)
        assert own is not None
        message = torch.empty(layout.nbytes(shard.columns), dtype=torch.uint8)
        layout.pack(own, shard.source_column, shard.columns, message)
        columns = layout.views(message, shard.columns)
        put_columns(got[shard.destination], shard.destination_column, columns)
    for rank in actor:
        assert same(got[rank], share(batch, actor, rank, groups) or {})
