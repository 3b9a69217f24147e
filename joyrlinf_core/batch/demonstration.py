"""`Demonstration`: one recorded episode to imitate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from joyrlinf_core.config.schema import EpisodeId


@dataclass(frozen=True)
class Demonstration:
    """One scripted episode.

    Attributes:
        episode: What it started from.
        prompt: Language instruction.
        state: float32 [L, S], state before each action.
        actions: float32 [L, D], the expert's clean actions (labels).
        executed: float32 [L, D], the actions that were executed, noise included.
        frame_steps: int64 [F], steps at which a picture was taken.
        images: uint8 [F, V, H, W, 3], the pictures.
        success: Whether the task was solved.
    """

    episode: EpisodeId
    prompt: str
    state: np.ndarray
    actions: np.ndarray
    executed: np.ndarray
    frame_steps: np.ndarray
    images: np.ndarray
    success: bool
