"""How a check of `shape-check` ends. No torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from torch import Tensor

    from joyrlinf_core.diagnostics.shapes.run import ShapeRun

CheckFunction = Callable[["ShapeRun"], str]
"""Returns the numbers that it saw.

Raises:
    Mismatch: The check failed.
    NotApplicableError: It says nothing about this config.
"""

TOLERANCE = 1e-4
"""Relative error of float32 sums that are taken in another order."""


class Mismatch(Exception):  # noqa: N818 - it is no error of joyrl, it is what a check found
    """A check failed; the text says what was found and what was expected."""


class NotApplicableError(Exception):
    """A check says nothing about this config; the text says why."""


def fail(text: str) -> NoReturn:
    """End a check.

    Raises:
        Mismatch: Always.
    """
    raise Mismatch(text)


def close(found: float, expected: float, absolute: float = TOLERANCE) -> bool:
    """Say whether two numbers are equal but for rounding."""
    return abs(found - expected) <= absolute + TOLERANCE * abs(expected)


def shape_text(value: Tensor) -> str:
    """Return for example `[6, 64, 10]`."""
    return str(list(value.shape))


def counted(count: int, thing: str) -> str:
    """Return for example `1 step` or `3 steps`."""
    return f"{count} {thing}{'' if count == 1 else 's'}"
