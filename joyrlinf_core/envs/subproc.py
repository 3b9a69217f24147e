"""`SubprocVecEnv`: simulators in their own processes, several slots each."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from itertools import pairwise
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from joyrlinf_core.envs.base import ChunkResult, ChunkStep, Frame, VecEnv
from joyrlinf_core.envs.local import chunk_step, observation
from joyrlinf_core.envs.simulator_process import SimulatorProcess, close_all

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from joyrlinf_core.batch.observation import Observation
    from joyrlinf_core.config.schema import EnvConfig, EpisodeId


def cut(num_envs: int, num_workers: int, group_size: int) -> list[range]:
    """Cut slots into contiguous, near-equal parts, between groups where there are enough groups.

    A group whole in one process is reset and drawn once.

    Returns:
        At most `num_workers` non-empty ranges that cover [0, num_envs).
    """
    groups, rest = divmod(num_envs, group_size)
    unit = group_size if rest == 0 and groups >= num_workers else 1
    units = num_envs // unit
    workers = min(num_workers, units)
    edges = [i * units // workers * unit for i in range(workers + 1)]
    return [range(start, stop) for start, stop in pairwise(edges)]


class SubprocVecEnv(VecEnv):
    """Actions and results go through shared memory, one small message per chunk and process.

    The constructor returns while the simulators are still being built, so that several vector envs
    start at the same time; the first `reset` waits for them.

    Args:
        config: Env section.
        num_envs: Number of slots.
        num_workers: Number of processes, at least 1.
        group_size: Consecutive slots that usually start from one state.
    """

    def __init__(
        self, config: EnvConfig, num_envs: int, *, num_workers: int, group_size: int = 1
    ) -> None:
        from joyrlinf_core.envs.shared_arrays import SharedArrays, Sizes

        self.num_envs = num_envs
        self._prompts = config.task_prompts
        sizes = Sizes(
            num_slots=num_envs,
            chunk=max(config.max_episode_steps, config.steps_per_epoch),
            action_dim=config.action_dim,
            image_shape=config.image_shape,
            state_dim=config.state_dim,
        )
        self._max_chunk = sizes.chunk
        self._arrays = SharedArrays(sizes)
        self._processes: list[SimulatorProcess] = []
        self._close = weakref.finalize(self, close_all, self._processes)
        self._sent: tuple[np.ndarray, int] | None = None
        for index, slots in enumerate(cut(num_envs, num_workers, group_size)):
            process = SimulatorProcess(
                config, index=index, slots=slots, memory=(sizes, self._arrays)
            )
            self._processes.append(process)
        self._arrays.close()
        self._starting = True

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the simulators."""
        return tuple(process.pid for process in self._processes)

    def reset(self, slots: Tensor, episodes: Sequence[EpisodeId]) -> Observation:
        """See `VecEnv.reset`. The first call also waits for the start of all processes.

        Raises:
            SimulatorCrashError: A simulator process raised or died; holds its traceback.
        """
        if self._sent is not None:
            raise RuntimeError("reset() before recv() of the chunk sent last")
        if self._starting:
            self._starting = False
            self._answers(self._processes)
        chosen = slots.tolist()
        asked = []
        for process in self._processes:
            rows = [row for row, slot in enumerate(chosen) if slot in process.slots]
            if rows:
                process.send("reset", [chosen[r] for r in rows], [episodes[r] for r in rows])
                asked.append(process)
        self._answers(asked)
        return observation(self._frame(slots.numpy()), self._prompts)

    def send(self, slots: Tensor, actions: Tensor, *, final_frames: bool = False) -> None:
        """See `VecEnv.send`."""
        if self._sent is not None:
            raise RuntimeError("send() before recv() of the chunk sent last")
        chunk = actions.shape[1]
        if chunk > self._max_chunk:
            raise ValueError(f"chunk of {chunk} actions is longer than {self._max_chunk}")
        chosen = slots.numpy().copy()
        self._arrays.actions[chosen, :chunk] = actions.detach().numpy()
        self._sent = (chosen, chunk)
        for process in self._processes:
            mine = [slot for slot in chosen.tolist() if slot in process.slots]
            if mine:
                process.send("chunk_step", mine, chunk, final_frames)

    def recv(self) -> ChunkStep:
        """See `VecEnv.recv`."""
        if self._sent is None:
            raise RuntimeError("recv() without send()")
        slots, chunk = self._sent
        self._sent = None
        self._answers([p for p in self._processes if any(s in p.slots for s in slots.tolist())])
        arrays = self._arrays
        # Indexing with an array copies, so that the next chunk can't change what was returned.
        result = ChunkResult(
            rewards=arrays.rewards[slots, :chunk],
            terminations=arrays.terminations[slots, :chunk],
            truncations=arrays.truncations[slots, :chunk],
            success=arrays.success[slots],
            steps=arrays.steps[slots],
            frame=self._frame(slots),
        )
        return chunk_step(result, self._prompts)

    def close(self) -> None:
        """See `VecEnv.close`."""
        self._close()

    def _frame(self, slots: np.ndarray) -> Frame:
        arrays = self._arrays
        return Frame(arrays.images[slots], arrays.state[slots], arrays.task[slots])

    def _answers(self, asked: list[SimulatorProcess]) -> None:
        """Wait for one answer each, in the order they come; any failure ends all processes.

        Listens to the others too: a process that has answered and then dies must not go unnoticed
        until another one is done.
        """
        waiting = {process.connection for process in asked}
        processes = {process.connection: process for process in self._processes}
        try:
            while waiting:
                for connection in wait(list(processes)):
                    processes[connection].recv()  # pyright: ignore[reportArgumentType]
                    waiting.discard(connection)  # pyright: ignore[reportArgumentType]
        except BaseException:
            self.close()
            raise
