"""Finds weight files that were cut short, without torch and without reading the weights."""

from __future__ import annotations

import json
from pathlib import Path

_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 100 * 2**20
"""Limit of the safetensors format."""


def damaged(directory: Path) -> list[str]:
    """Return what is wrong with the `*.safetensors` files of a policy directory."""
    found = ((path, _problem(path)) for path in sorted(directory.glob("*.safetensors")))
    return [f"{path} is damaged: {problem}" for path, problem in found if problem]


def _problem(path: Path) -> str:
    """Compare the size of a file with what its header promises; empty when they agree."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            if size < _LENGTH_BYTES or length > min(size - _LENGTH_BYTES, _MAX_HEADER_BYTES):
                return f"{size} bytes do not hold its header"
            header = json.loads(file.read(length))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name[:2] != "__"]
    except OSError as error:
        return error.strerror or str(error)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return "its header can't be read"
    expected = _LENGTH_BYTES + length + max(ends, default=0)
    return "" if size == expected else f"{size} bytes instead of {expected}"
