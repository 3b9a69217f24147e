"""Env steps per second: joyrl's vector env against gymnasium's, and against no vector env at all.

    python tests/benchmarks/vecenv.py --workers 2 --seconds 4 --repeats 3

Both sides play the same tasks with the same random actions on the same number of processes, in
turn, so that other load on the machine hits both. Printed are the medians and the medians of the
ratios of neighbouring runs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial

import gymnasium
import numpy as np
import plain_loop
import torch

from joyrlinf_core.config.schema import EpisodeId
from joyrlinf_core.envs.factory import build_vec_env
from joyrlinf_core.envs.metaworld import Config

HORIZON = 10_000
"""Time limit far away, so that resets do not count."""


class PlainMetaWorld(gymnasium.Env):
    """Meta-World stepped and rendered as its package does; state and picture after every step.

    Args:
        task: Name of the task.
        size: Picture height and width; 0 takes none.
        quality: `as shipped`; or `no multisampling`, which also drops shadows; or `light`, joyrl's
            reduced scene and renderer, which leaves only the vector env as the difference.
    """

    def __init__(self, task: str, size: int, quality: str) -> None:
        from metaworld.env_dict import ALL_V3_ENVIRONMENTS

        shape = (size or 1, size or 1, 3)
        self.observation_space = gymnasium.spaces.Dict(
            {
                "image": gymnasium.spaces.Box(0, 255, shape, np.uint8),
                "state": gymnasium.spaces.Box(-np.inf, np.inf, (39,), np.float64),
            }
        )
        self.action_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
        self._env = ALL_V3_ENVIRONMENTS[task](
            render_mode="rgb_array" if size else None,
            camera_name="corner2",
            width=size or 480,
            height=size or 480,
        )
        self._env._partially_observable = False
        del self._env.sawyer_observation_space
        self._env._freeze_rand_vec = False
        self._env._set_task_called = True
        self._env.max_path_length = HORIZON
        self._size = size
        self._camera = self._view = None
        if quality == "light" and size:
            from joyrlinf_core.envs import opengl
            from joyrlinf_core.envs.metaworld_sim.picture import Camera

            self._env.reset()
            library = opengl.choose().library
            self._camera = Camera(library, size, "corner2", fovy=None, light=True)
            self._view = self._camera.add(self._env.model, self._env.data)
        elif quality == "no multisampling":
            self._env.model.vis.quality.offsamples = 0
            self._env.model.vis.quality.shadowsize = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        state, info = self._env.reset()
        return self._observation(state), info

    def step(self, action: np.ndarray):
        state, reward, terminated, truncated, _ = self._env.step(action)
        return self._observation(state), reward, terminated, truncated, {}

    def close(self) -> None:
        if self._camera is not None:
            self._camera.close()
        self._env.close()

    def _observation(self, state: np.ndarray) -> dict[str, np.ndarray]:
        if not self._size:
            image = np.zeros((1, 1, 3), np.uint8)
        elif self._camera is not None and self._view is not None:
            image = self._camera.take(self._view, self._env.data)
        else:
            image = self._env.render()[::-1, ::-1]
        return {"image": image, "state": state}


def measure(step: Callable[[], int], seconds: float) -> float:
    """Return env steps per second over at least `seconds` of wall time."""
    step()
    began, steps = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - began) < seconds:
        steps += step()
    return steps / elapsed


def joyrl_rate(
    tasks: list[str], *, workers: int, envs: int, size: int, chunk: int, seconds: float
) -> float:
    """Return the rate of joyrl's vector env; `workers` 0 steps in this process."""
    config = Config(
        type="metaworld",
        total_num_envs=envs,
        max_episode_steps=HORIZON,
        ignore_terminations=True,
        tasks=tuple(tasks),
        image_size=size,
        num_workers=workers,
    )
    env = build_vec_env(config, envs)
    slots = torch.arange(envs)
    generator = torch.Generator().manual_seed(0)
    try:
        env.reset(slots, [EpisodeId(s % len(tasks), 1000 + s) for s in range(envs)])

        def step() -> int:
            actions = torch.rand((envs, chunk, 4), generator=generator) * 2 - 1
            return int(env.chunk_step(slots, actions).steps.sum())

        return measure(step, seconds)
    finally:
        env.close()


def gymnasium_rate(
    tasks: list[str], *, workers: int, size: int, quality: str, seconds: float
) -> float:
    """Return the rate of gymnasium's AsyncVectorEnv with one env a process."""
    makers = [partial(PlainMetaWorld, tasks[i % len(tasks)], size, quality) for i in range(workers)]
    env = gymnasium.vector.AsyncVectorEnv(makers, shared_memory=True, context="spawn")
    rng = np.random.default_rng(0)
    try:
        env.reset(seed=0)

        def step() -> int:
            env.step(rng.uniform(-1, 1, (workers, 4)).astype(np.float32))
            return workers

        return measure(step, seconds)
    finally:
        env.close()


def print_row(name: str, pairs: list[tuple[float, float]]) -> None:
    """Print the medians of ours and theirs, and of the ratio of neighbouring runs."""
    ratios = sorted(a / b for a, b in pairs)
    first, second = (statistics.median(column) for column in zip(*pairs, strict=True))
    spread = f"{ratios[0]:.2f}-{ratios[-1]:.2f}"
    ratio = statistics.median(ratios)
    print(f"| {name} | {first:,.0f} | {second:,.0f} | {ratio:.2f} | {spread} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=["push-v3"])
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--envs", type=int, default=48, help="slots per process on joyrl's side")
    parser.add_argument("--size", type=int, default=64, help="picture height and width")
    parser.add_argument("--chunk", type=int, default=5, help="actions per chunk")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of one measurement")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only-stepping", action="store_true", help="skip what renders")
    arguments = parser.parse_args()
    tasks, workers, seconds = arguments.tasks, arguments.workers, arguments.seconds
    envs, chunk, size = arguments.envs * workers, arguments.chunk, arguments.size

    def ours() -> float:
        return joyrl_rate(
            tasks, workers=workers, envs=envs, size=size, chunk=chunk, seconds=seconds
        )

    print(f"{', '.join(tasks)}; {workers} processes, {envs} slots, {size} px, chunk {chunk}")
    print("| compared with | joyrl, steps/s | other, steps/s | ratio | range |")
    print("| --- | --- | --- | --- | --- |")
    qualities = () if arguments.only_stepping else ("as shipped", "no multisampling", "light")
    for quality in qualities:

        def theirs(quality: str = quality) -> float:
            return gymnasium_rate(
                tasks, workers=workers, size=size, quality=quality, seconds=seconds
            )

        pairs = [(ours(), theirs()) for _ in range(arguments.repeats)]
        print_row(f"AsyncVectorEnv, {quality}", pairs)
    for count in sorted({1, workers}):
        rows = plain_loop.compare(
            tasks[0],
            workers=count,
            envs=arguments.envs,
            chunk=chunk,
            seconds=seconds / 2,
            repeats=2 * arguments.repeats,
        )
        for column, unit in enumerate(("CPU second", "second and process")):
            pairs = [(row[column], row[column + 2]) for row in rows]
            print_row(f"plain loop, no pictures, {count} process(es), a {unit}", pairs)


if __name__ == "__main__":
    main()
