"""Contracts of the simulator side.

`Simulator` is what one file of this package implements: n environments in one process, numpy in and
out. `VecEnv` is what the engine drives: the environments of one rank and pipeline stage, torch in
and out, with `send` and `recv` apart so that the policy can infer for another stage meanwhile.
`local.py` and `subproc.py` make the second from the first. No torch at module level: simulator
processes never import it.

Shapes: n slots, C actions per chunk, D action dims, V cameras, S state length.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from joyrlinf_core.batch.demonstration import Demonstration
    from joyrlinf_core.batch.observation import Observation
    from joyrlinf_core.config.schema import EpisodeId


@dataclass(frozen=True)
class Frame:
    """Observation of n slots inside a simulator process.

    Attributes:
        images: uint8 [n, V, H, W, 3], RGB, upright.
        state: float32 [n, S], unnormalised.
        task: int64 [n], index into the env config's `task_prompts`.
    """

    images: np.ndarray
    state: np.ndarray
    task: np.ndarray


@dataclass(frozen=True)
class ChunkResult:
    """What n slots did with a chunk, inside a simulator process.

    Attributes:
        rewards: float32 [n, C]; zero after the episode's end.
        terminations: bool [n, C]; True at the one action that ended the episode by success or
            failure.
        truncations: bool [n, C]; True at the one action at which the time limit ended the episode.
        success: bool [n]; the episode has been successful at some step so far (success_once).
        steps: int64 [n]; env steps really executed in this chunk.
        frame: Observation after the chunk. Rows whose episode ended hold zeros, unless
            `final_frames` was asked for.
    """

    rewards: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray
    success: np.ndarray
    steps: np.ndarray
    frame: Frame


class Simulator(Protocol):
    """n environments in one process. All slot arguments are indices in [0, n)."""

    def reset(self, slots: Sequence[int], episodes: Sequence[EpisodeId]) -> Frame:
        """Start `episodes[i]` in `slots[i]` and return the frames of these slots.

        Equal ids give equal initial states.
        """
        ...

    def chunk_step(
        self, slots: Sequence[int], actions: np.ndarray, *, final_frames: bool
    ) -> ChunkResult:
        """Execute a chunk in these slots; a slot stops at its episode's end.

        Args:
            slots: Slots whose episode is running.
            actions: float32 [len(slots), C, D].
            final_frames: Also render slots whose episode was truncated by this chunk (value
                bootstrap).
        """
        ...

    def demonstrate(
        self,
        episode: EpisodeId,
        *,
        noise: float,
        noise_seed: int,
        frame_stride: int,
        steps_after_success: int,
    ) -> Demonstration:
        """Play one episode with the scripted expert."""
        ...

    def close(self) -> None:
        """Free the renderer and the physics."""
        ...


@dataclass(frozen=True)
class ChunkStep:
    """`ChunkResult` of the slots of a send, as torch tensors on CPU; same fields and shapes."""

    rewards: Tensor
    terminations: Tensor
    truncations: Tensor
    success: Tensor
    steps: Tensor
    observation: Observation


class VecEnv(ABC):
    """The environments of one rank and stage.

    Tensors that `reset` and `recv` return are the caller's own: a later call does not change them.
    """

    num_envs: int
    """Slots of this vector env."""

    @abstractmethod
    def reset(self, slots: Tensor, episodes: Sequence[EpisodeId]) -> Observation:
        """Start `episodes[i]` in slot `slots[i]`, int64 [m]; return these m observations."""

    @abstractmethod
    def send(self, slots: Tensor, actions: Tensor, *, final_frames: bool = False) -> None:
        """Start a chunk without waiting: `actions` float32 [m, C, D] for ascending slots [m]."""

    @abstractmethod
    def recv(self) -> ChunkStep:
        """Wait for the chunk sent last; rows are in the order of its slots.

        Raises:
            SimulatorCrashError: A simulator process raised or died; holds its traceback.
        """

    @abstractmethod
    def close(self) -> None:
        """End every simulator process. Safe to call twice and after a crash."""

    def chunk_step(
        self, slots: Tensor, actions: Tensor, *, final_frames: bool = False
    ) -> ChunkStep:
        """`send` then `recv`."""
        self.send(slots, actions, final_frames=final_frames)
        return self.recv()
