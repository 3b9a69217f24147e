"""From demonstrations to training samples: one per picture, with the actions that follow it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from joyrlinf_core.batch.demonstration import Demonstration
from joyrlinf_core.demos import checks
from joyrlinf_core.errors import DemonstrationError


@dataclass(frozen=True)
class Samples:
    """N samples. H is the policy's horizon.

    Attributes:
        images: uint8 [N, V, H_img, W_img, 3], RGB.
        state: float32 [N, S], unnormalised, at the picture's step.
        task: int64 [N].
        actions: float32 [N, H, D], the expert's clean actions from the picture's step on. After the
            end they repeat the last one.
        valid: bool [N, H]; False where the demonstration had ended.
    """

    images: np.ndarray
    state: np.ndarray
    task: np.ndarray
    actions: np.ndarray
    valid: np.ndarray

    def __len__(self) -> int:
        return len(self.task)


def build(demonstrations: Iterable[Demonstration], horizon: int) -> Samples:
    """Cut demonstrations into samples, in their order.

    Args:
        demonstrations: At least one with a picture; equal sizes.
        horizon: H, actions per sample.

    Raises:
        DemonstrationError: There is no picture at all, a demonstration is malformed, or its sizes
            differ from the first one's.
    """
    parts: list[Samples] = []
    for index, demo in enumerate(demonstrations):
        checks.check(demo, f"demonstration {index}")
        part = _cut(demo, horizon)
        if parts:
            _check_same_sizes(parts[0], part, index)
        parts.append(part)
    if not any(len(part) for part in parts):
        raise DemonstrationError(f"{len(parts)} demonstrations hold no picture to train on")
    return Samples(
        images=np.concatenate([part.images for part in parts]),
        state=np.concatenate([part.state for part in parts]),
        task=np.concatenate([part.task for part in parts]),
        actions=np.concatenate([part.actions for part in parts]),
        valid=np.concatenate([part.valid for part in parts]),
    )


def _cut(demo: Demonstration, horizon: int) -> Samples:
    """Return the samples of one demonstration."""
    steps = demo.frame_steps[:, None] + np.arange(horizon)
    last = len(demo.actions) - 1
    return Samples(
        images=demo.images,
        state=demo.state[demo.frame_steps],
        task=np.full(len(demo.frame_steps), demo.episode.task, dtype=np.int64),
        actions=demo.actions[np.minimum(steps, last)],
        valid=steps <= last,
    )


def _check_same_sizes(first: Samples, other: Samples, index: int) -> None:
    for name in ("images", "state", "actions"):
        expected, found = getattr(first, name).shape[1:], getattr(other, name).shape[1:]
        if expected != found:
            raise DemonstrationError(
                f"demonstration {index}: {name} of one sample are {found}, those of the first"
                f" demonstration {expected}"
            )
