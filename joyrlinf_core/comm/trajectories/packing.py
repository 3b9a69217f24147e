"""Batches as flat bytes: a fixed header, a layout table, and the fields one after the other.

A batch is a mapping of names to tensors with a row axis and a column axis, [T, B, ...], or with the
column axis alone, [B]. A message holds some neighbouring columns of it:

    [table, padded] [field, padded] [field, padded] ...

Every part starts at a multiple of 16 bytes. Fields are sorted by name. The table, JSON, is there
only in messages of kind `LAYOUT`; the header travels apart from it. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

import torch
from torch import Tensor

from joyrlinf_core.errors import RunFailedError

MAGIC = b"JRLTRAJ\0"
FORMAT_VERSION = 1
HEADER_BYTES = 64
ALIGNMENT = 16

_HEADER = struct.Struct("<8sHHIqqqQQII")

DTYPES: dict[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
    )
}
"""What can be sent, by its name in the table."""


class Kind(IntEnum):
    """What follows a header."""

    BATCH = 1
    """Columns of a batch, laid out as the last table of this source says."""
    LAYOUT = 2
    """The same, behind a new table."""
    END = 3
    """Nothing; this source sends no more batches."""


@dataclass(frozen=True)
class Header:
    """The 64 bytes that announce a message.

    Attributes:
        kind: What follows.
        source: Global rank of the sender.
        index: Number of the batch.
        oldest: Lowest weight version that acted in it.
        newest: Highest.
        payload: Bytes that follow.
        longest: Bytes of the longest message that this source sends to any rank this time.
        table: Bytes of the table at the start of the payload.
        checksum: crc32 of the payload; 0 if it was not computed.
    """

    kind: Kind
    source: int
    index: int = 0
    oldest: int = 0
    newest: int = 0
    payload: int = 0
    longest: int = 0
    table: int = 0
    checksum: int = 0

    def pack(self) -> bytes:
        """Return the bytes, little-endian."""
        return _HEADER.pack(
            MAGIC,
            FORMAT_VERSION,
            self.kind,
            self.source,
            self.index,
            self.oldest,
            self.newest,
            self.payload,
            self.longest,
            self.table,
            self.checksum,
        )

    @classmethod
    def unpack(cls, data: bytes) -> Header:
        """Read the bytes of a header.

        Raises:
            ValueError: They are none, or of another version.
        """
        magic, version, kind, *numbers = _HEADER.unpack(data)
        if magic != MAGIC:
            raise ValueError(f"its header starts with {magic!r}, not {MAGIC!r}")
        if version != FORMAT_VERSION:
            raise ValueError(f"its format is version {version}, this rank reads {FORMAT_VERSION}")
        return cls(Kind(kind), *numbers)

    def sealed(self, payload: Tensor) -> Header:
        """Return this header with the checksum of a payload uint8 [payload]."""
        return replace(self, checksum=zlib.crc32(payload.numpy().data))

    def check(self, payload: Tensor) -> None:
        """Compare a payload uint8 [payload] with the checksum, if there is one.

        Raises:
            ValueError: They differ.
        """
        if self.checksum and (found := zlib.crc32(payload.numpy().data)) != self.checksum:
            raise ValueError(f"its crc32 is {found:08x}, the header says {self.checksum:08x}")


@dataclass(frozen=True)
class Field:
    """One tensor of a batch, whatever its number of columns.

    Attributes:
        name: Its name.
        dtype: A key of `DTYPES`.
        rows: T; None for a tensor [B].
        shape: Axes behind the column axis.
    """

    name: str
    dtype: str
    rows: int | None
    shape: tuple[int, ...]

    def full_shape(self, columns: int) -> tuple[int, ...]:
        """Return the shape with a number of columns."""
        return (columns,) if self.rows is None else (self.rows, columns, *self.shape)

    def nbytes(self, columns: int) -> int:
        """Return the bytes of a number of columns, without padding."""
        return math.prod(self.full_shape(columns)) * DTYPES[self.dtype].itemsize


@dataclass(frozen=True)
class Layout:
    """Which fields a batch has.

    Attributes:
        fields: Sorted by name.
    """

    fields: tuple[Field, ...]

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Layout:
        """Return the layout of a batch.

        Raises:
            RunFailedError: A tensor can't be sent.
        """
        fields: list[Field] = []
        for name in sorted(tensors):
            tensor = tensors[name]
            dtype = str(tensor.dtype).removeprefix("torch.")
            if dtype not in DTYPES or not tensor.dim():
                raise RunFailedError(
                    f"`{name}` of the rollout, {dtype} {list(tensor.shape)}, can't be sent to an "
                    "actor",
                    fix=f"store a tensor with a column axis, of one of {', '.join(DTYPES)}",
                )
            rows = tensor.shape[0] if tensor.dim() > 1 else None
            fields.append(Field(name, dtype, rows, tuple(tensor.shape[2:])))
        return cls(tuple(fields))

    def to_json(self) -> bytes:
        """Return the table, filled up with blanks."""
        table = json.dumps([[f.name, f.dtype, f.rows, f.shape] for f in self.fields]).encode()
        return table.ljust(align(len(table)))

    @classmethod
    def from_json(cls, table: bytes) -> Layout:
        """Read a table.

        Raises:
            ValueError: It is none.
        """
        try:
            entries = json.loads(table)
            layout = cls(tuple(Field(n, d, rows, tuple(shape)) for n, d, rows, shape in entries))
        except (ValueError, TypeError) as error:
            raise ValueError(f"its layout table can't be read: {error}") from error
        for field in layout.fields:
            if field.dtype not in DTYPES:
                raise ValueError(f"its field `{field.name}` has the unknown type {field.dtype}")
        return layout

    def nbytes(self, columns: int) -> int:
        """Return the bytes of a number of columns, padding included."""
        return sum(align(field.nbytes(columns)) for field in self.fields)

    def views(self, buffer: Tensor, columns: int) -> dict[str, Tensor]:
        """Return the fields inside a flat buffer: a batch that shares its memory.

        Args:
            buffer: uint8 [nbytes(columns)], contiguous, starts at a multiple of 16 bytes.
            columns: Columns that it holds.
        """
        views: dict[str, Tensor] = {}
        offset = 0
        for field in self.fields:
            end = offset + field.nbytes(columns)
            data = buffer[offset:end].view(DTYPES[field.dtype])
            views[field.name] = data.view(field.full_shape(columns))
            offset = align(end)
        return views

    def pack(self, tensors: Mapping[str, Tensor], first: int, columns: int, buffer: Tensor) -> None:
        """Copy neighbouring columns of a batch into a flat buffer, each field once.

        Args:
            tensors: The batch; this is its layout.
            first: First of the columns.
            columns: Columns to copy.
            buffer: As in `views`; padding becomes zero, so that equal columns are equal bytes.
        """
        offset = 0
        for field, view in zip(self.fields, self.views(buffer, columns).values(), strict=True):
            view.copy_(take_columns(tensors[field.name], first, columns))
            end = offset + field.nbytes(columns)
            offset = align(end)
            buffer[end:offset].zero_()


def align(nbytes: int) -> int:
    """Round up to the next place where a part may start."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def take_columns(tensor: Tensor, first: int, columns: int) -> Tensor:
    """Return neighbouring columns of one tensor of a batch, as a view."""
    return tensor.narrow(min(1, tensor.dim() - 1), first, columns)


def put_columns(target: Mapping[str, Tensor], first: int, part: Mapping[str, Tensor]) -> None:
    """Copy a batch with fewer columns into another, from column `first` on."""
    for name, tensor in part.items():
        columns = tensor.shape[min(1, tensor.dim() - 1)]
        take_columns(target[name], first, columns).copy_(tensor)
