"""Files that a reader never sees half-written. Standard library alone."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` in one move; an error leaves the old file as it was."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Replace `path` by a JSON document; non-finite numbers become text, see `plain`."""
    write_text(path, json.dumps(plain(value), indent=2, allow_nan=False) + "\n")


def plain(value: Any) -> Any:
    """Return `value` as strict JSON can hold it.

    NaN and infinities become the strings that `float()` reads back, since JSON has no such
    numbers; numpy and torch scalars become Python ones; anything unknown becomes its text.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if hasattr(value, "item"):
        return plain(value.item())
    return str(value)


def restore(value: Any) -> Any:
    """Undo what `plain` did to non-finite numbers of a mapping from names to numbers."""
    if isinstance(value, dict):
        return {key: restore(item) for key, item in value.items()}
    return float(value) if value in ("nan", "inf", "-inf") else value
