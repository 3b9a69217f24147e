"""Stepping without pictures: the vector env against simulators in plain loops, per core.

Both sides are built once and then run in turn in short windows, each window of the vector env
between two of the loops, so that what else the machine does hits both.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch
from frame_free import FrameFree

from joyrlinf_core.config.schema import EpisodeId
from joyrlinf_core.envs.subproc import SubprocVecEnv

HORIZON = 200_000
"""Time limit that no window reaches: an episode that is over costs nothing and counts nothing."""


def _config(task: str, envs: int, workers: int) -> FrameFree:
    return FrameFree(
        type="metaworld",
        total_num_envs=envs,
        max_episode_steps=HORIZON,
        ignore_terminations=True,
        tasks=(task,),
        image_size=16,
        num_workers=workers,
    )


def _episodes(first: int, envs: int) -> list[EpisodeId]:
    return [EpisodeId(0, 1000 + first + slot) for slot in range(envs)]


def _actions(rng: np.random.Generator, envs: int, chunk: int) -> np.ndarray:
    return rng.uniform(-1, 1, (envs, chunk, 4)).astype(np.float32)


def _loop(connection: Connection, task: str, first: int, envs: int, chunk: int) -> None:
    simulator = _config(task, envs, 0).build(envs)
    rng = np.random.default_rng(first)
    simulator.reset(range(envs), _episodes(first, envs))
    connection.send(None)
    while seconds := connection.recv():
        steps, cpu, began = 0, time.process_time(), time.perf_counter()
        while time.perf_counter() - began < seconds:
            actions = _actions(rng, envs, chunk)
            steps += int(simulator.chunk_step(range(envs), actions, final_frames=False).steps.sum())
        connection.send((steps, time.process_time() - cpu, time.perf_counter() - began))
    simulator.close()


class PlainLoops:
    """`workers` processes at once, each with `envs` slots in a loop of its own.

    At once, because cores share caches and memory: one alone would be faster than one of several.
    """

    def __init__(self, task: str, *, workers: int, envs: int, chunk: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._connections, self._processes = [], []
        for worker in range(workers):
            ours, theirs = context.Pipe()
            arguments = (theirs, task, worker * envs, envs, chunk)
            process = context.Process(target=_loop, args=arguments, daemon=True)
            process.start()
            self._connections.append(ours)
            self._processes.append(process)
        for connection in self._connections:
            connection.recv()

    def rates(self, seconds: float) -> tuple[float, float]:
        """Return env steps per CPU second and per second of wall time and process."""
        for connection in self._connections:
            connection.send(seconds)
        results = [connection.recv() for connection in self._connections]
        return (
            statistics.mean(steps / cpu for steps, cpu, _ in results),
            statistics.mean(steps / wall for steps, _, wall in results),
        )

    def close(self) -> None:
        for connection in self._connections:
            connection.send(0)
        for process in self._processes:
            process.join()


class Stages:
    """One vector env a process, stepped in turn as the pipeline stages of a rollout are."""

    def __init__(self, task: str, *, workers: int, envs: int, chunk: int) -> None:
        self._slots, self._chunk = torch.arange(envs), chunk
        self._workers = workers
        self._rng = np.random.default_rng(0)
        self._envs = []
        for stage in range(workers):
            env = SubprocVecEnv(_config(task, envs, 1), envs, num_workers=1)
            env.reset(self._slots, _episodes(stage * envs, envs))
            self._envs.append(env)
        self._pids = [pid for env in self._envs for pid in env.pids]

    def rates(self, seconds: float) -> tuple[float, float]:
        """Return env steps per CPU second and per second of wall time and simulator process.

        CPU time includes that of this process, which sends the actions.
        """
        for env in self._envs:
            self._send(env)
        steps, cpu, began = 0, self._cpu_seconds(), time.perf_counter()
        while (wall := time.perf_counter() - began) < seconds:
            for env in self._envs:
                steps += int(env.recv().steps.sum())
                self._send(env)
        cpu = self._cpu_seconds() - cpu
        for env in self._envs:
            env.recv()
        return steps / cpu, steps / wall / self._workers

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _send(self, env: SubprocVecEnv) -> None:
        actions = _actions(self._rng, len(self._slots), self._chunk)
        env.send(self._slots, torch.from_numpy(actions))

    def _cpu_seconds(self) -> float:
        ticks = 0
        for pid in self._pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def compare(
    task: str, *, workers: int, envs: int, chunk: int, seconds: float, repeats: int
) -> list[tuple[float, float, float, float]]:
    """Return, per repeat, both rates of the vector env, then of the loops around its window."""
    stages = Stages(task, workers=workers, envs=envs, chunk=chunk)
    loops = PlainLoops(task, workers=workers, envs=envs, chunk=chunk)
    rows = []
    try:
        before = loops.rates(seconds)
        for _ in range(repeats):
            ours = stages.rates(seconds)
            after = loops.rates(seconds)
            around = [(a + b) / 2 for a, b in zip(before, after, strict=True)]
            rows.append((*ours, *around))
            before = after
    finally:
        stages.close()
        loops.close()
    return rows
