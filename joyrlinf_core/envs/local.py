"""`LocalVecEnv`: a simulator stepped in the rank's own process."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

from joyrlinf_core.batch.observation import Observation
from joyrlinf_core.envs.base import ChunkResult, ChunkStep, Frame, VecEnv
from joyrlinf_core.errors import JoyrlError, SimulatorCrashError

if TYPE_CHECKING:
    from torch import Tensor

    from joyrlinf_core.config.schema import EnvConfig, EpisodeId


def observation(frame: Frame, prompts: tuple[str, ...]) -> Observation:
    """Wrap a frame's arrays as tensors, without a copy."""
    import torch

    return Observation(
        images=torch.from_numpy(frame.images),
        state=torch.from_numpy(frame.state),
        task=torch.from_numpy(frame.task),
        prompts=prompts,
    )


def chunk_step(result: ChunkResult, prompts: tuple[str, ...]) -> ChunkStep:
    """Wrap a chunk result's arrays as tensors, without a copy."""
    import torch

    return ChunkStep(
        rewards=torch.from_numpy(result.rewards),
        terminations=torch.from_numpy(result.terminations),
        truncations=torch.from_numpy(result.truncations),
        success=torch.from_numpy(result.success),
        steps=torch.from_numpy(result.steps),
        observation=observation(result.frame, prompts),
    )


class LocalVecEnv(VecEnv):
    """Steps inside `recv`; nothing runs at the same time.

    Args:
        config: Env section.
        num_envs: Number of slots.
    """

    def __init__(self, config: EnvConfig, num_envs: int) -> None:
        self.num_envs = num_envs
        self._prompts = config.task_prompts
        self._simulator = config.build(num_envs)
        self._sent: tuple[list[int], Tensor, bool] | None = None

    def reset(self, slots: Tensor, episodes: Sequence[EpisodeId]) -> Observation:
        """See `VecEnv.reset`."""
        try:
            frame = self._simulator.reset(slots.tolist(), episodes)
        except Exception as error:
            raise _crash(error) from error
        return observation(frame, self._prompts)

    def send(self, slots: Tensor, actions: Tensor, *, final_frames: bool = False) -> None:
        """See `VecEnv.send`."""
        if self._sent is not None:
            raise RuntimeError("send() before recv() of the chunk sent last")
        self._sent = (slots.tolist(), actions.detach().clone(), final_frames)

    def recv(self) -> ChunkStep:
        """See `VecEnv.recv`."""
        if self._sent is None:
            raise RuntimeError("recv() without send()")
        slots, actions, final_frames = self._sent
        self._sent = None
        try:
            result = self._simulator.chunk_step(slots, actions.numpy(), final_frames=final_frames)
        except Exception as error:
            raise _crash(error) from error
        return chunk_step(result, self._prompts)

    def close(self) -> None:
        """See `VecEnv.close`."""
        self._simulator.close()


def _crash(error: Exception) -> JoyrlError:
    if isinstance(error, JoyrlError):
        return error
    return SimulatorCrashError(f"the simulator raised an exception:\n{traceback.format_exc()}")
