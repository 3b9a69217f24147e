"""What two configs differ in, key by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return (key, old value, new value) of every key that two configs, as JSON, differ in."""
    before, after = dict(_flat(old, "")), dict(_flat(new, ""))
    keys = [*before, *(key for key in after if key not in before)]
    return [
        (key, before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)
    ]


def _flat(value: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for key, item in value.items():
        path = f"{prefix}{key}"
        nested = isinstance(item, dict) and item
        rows += _flat(item, f"{path}.") if nested else [(path, item)]
    return rows
