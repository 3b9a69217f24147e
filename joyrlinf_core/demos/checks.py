"""What every demonstration must fulfil, wherever it came from."""

from __future__ import annotations

import numpy as np

from joyrlinf_core.batch.demonstration import Demonstration
from joyrlinf_core.errors import DemonstrationError

ARRAYS: dict[str, tuple[np.dtype, int]] = {
    "state": (np.dtype(np.float32), 2),
    "actions": (np.dtype(np.float32), 2),
    "executed": (np.dtype(np.float32), 2),
    "frame_steps": (np.dtype(np.int64), 1),
    "images": (np.dtype(np.uint8), 5),
}
"""Array field of `Demonstration` -> (dtype, number of axes)."""

Sizes = tuple[int, int, tuple[int, ...]]
"""S, D and (V, H, W, 3)."""


def check(demo: Demonstration, name: str) -> None:
    """Check dtypes, shapes and finiteness.

    Args:
        demo: What to check.
        name: How messages call it, for example its file.

    Raises:
        DemonstrationError: A field breaks the contract of `Demonstration`; names every such field.
    """
    for field, (dtype, axes) in ARRAYS.items():
        array = getattr(demo, field)
        if array.dtype != dtype or array.ndim != axes:
            raise DemonstrationError(
                f"{name}: {field} is {array.dtype} with {array.ndim} axes, not {dtype} with {axes}"
            )
    steps, frames = len(demo.state), len(demo.images)
    vectors = (demo.state, demo.actions, demo.executed)
    problems = {
        "holds no step": steps == 0,
        f"actions {demo.actions.shape} do not fit {steps} states": len(demo.actions) != steps,
        f"executed {demo.executed.shape} differ from actions {demo.actions.shape}": (
            demo.executed.shape != demo.actions.shape
        ),
        f"{frames} images for {len(demo.frame_steps)} frame_steps": (
            frames != len(demo.frame_steps)
        ),
        "images are not RGB": demo.images.shape[-1] != 3,
        f"frame_steps must rise within [0, {steps})": not _rise_within(demo.frame_steps, steps),
        "state or actions hold NaN or infinity": not all(
            bool(np.isfinite(array).all()) for array in vectors
        ),
    }
    broken = [text for text, is_broken in problems.items() if is_broken]
    if broken:
        raise DemonstrationError(f"{name}: {'; '.join(broken)}")


def sizes(demo: Demonstration) -> Sizes:
    """Return S, D and (V, H, W, 3) of a demonstration."""
    return demo.state.shape[1], demo.actions.shape[1], tuple(demo.images.shape[1:])


def check_sizes(demo: Demonstration, name: str, expected: Sizes, source: str) -> None:
    """Check the sizes of a demonstration.

    Args:
        demo: What to check.
        name: How messages call it.
        expected: What its sizes must be.
        source: What says so.

    Raises:
        DemonstrationError: They differ.
    """
    if sizes(demo) != expected:
        raise DemonstrationError(
            f"{name}: sizes (state, action, image) are {sizes(demo)}, {source} has {expected}"
        )


def _rise_within(frame_steps: np.ndarray, steps: int) -> bool:
    """Return whether frame_steps int64 [F] rise and stay in [0, steps)."""
    inside = (frame_steps >= 0) & (frame_steps < steps)
    return bool(inside.all()) and bool((np.diff(frame_steps) > 0).all())
