"""Splits numbered reset states into parts that no two uses share."""

from __future__ import annotations

from math import gcd
from typing import Literal

Use = Literal["train", "heldout", "selection", "demo"]

_PARTS = 17
"""States are dealt by their number modulo this. A prime: where a number counts several things at
once (object, table, position, orientation), each part still holds every value of each."""

_RESIDUE: dict[Use, int] = {"heldout": 0, "selection": 1, "demo": 2}


def size(use: Use, count: int) -> int:
    """Return how many of the states 0 to count - 1 a use has."""
    if use == "train":
        return count - sum(size(other, count) for other in _RESIDUE)
    return len(range(_RESIDUE[use], count, _PARTS))


def state(use: Use, index: int, count: int) -> int:
    """Return the `index`-th state of a use; after the last one it starts again.

    Neighbours lie far apart in the numbering, so that few of them already vary everything.

    Args:
        use: What the state is for.
        index: 0, 1, ...
        count: States in all, numbered from 0.
    """
    available = size(use, count)
    if available == 0:
        raise ValueError(f"{count} reset states leave none for {use}")
    place = index * _stride(available) % available
    if use != "train":
        return _RESIDUE[use] + place * _PARTS
    rest = _PARTS - len(_RESIDUE)
    return place // rest * _PARTS + len(_RESIDUE) + place % rest


def _stride(available: int) -> int:
    """Return a step near the golden section that visits every place."""
    step = max(round(available * 0.618034), 1)
    while gcd(step, available) != 1:
        step += 1
    return step
