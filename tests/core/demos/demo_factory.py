"""Small random demonstrations and the env that they fit, for the tests of this folder."""

from __future__ import annotations

import dataclasses

import numpy as np

from joyrlinf_core.batch.demonstration import Demonstration
from joyrlinf_core.config.schema import EnvConfig, EpisodeId


class TinyEnv(EnvConfig):
    """An env that can't be built; its sizes are those of `demonstration`."""

    type: str = "tiny"
    total_num_envs: int = 1
    max_episode_steps: int = 10
    tasks: int = 2
    sizes: tuple[int, int, tuple[int, int, int, int]] = (5, 4, (1, 6, 8, 3))

    @property
    def task_prompts(self):
        return tuple(f"task {index}" for index in range(self.tasks))

    @property
    def state_dim(self):
        return self.sizes[0]

    @property
    def action_dim(self):
        return self.sizes[1]

    @property
    def image_shape(self):
        return self.sizes[2]

    def train_episode(self, seed, group, k):
        return EpisodeId(0, k)

    def eval_episode(self, index):
        return EpisodeId(0, index)

    def demo_episode(self, seed, index):
        return EpisodeId(index % self.tasks, index)

    def build(self, num_slots):
        raise NotImplementedError

    def check_ready(self):
        raise NotImplementedError


def demonstration(steps: int = 7, stride: int = 3, task: int = 0, seed: int = 0, **changes):
    """Return a valid demonstration; `changes` replace fields."""
    random = np.random.default_rng(seed)
    frame_steps = np.arange(0, steps, stride, dtype=np.int64)
    actions = random.uniform(-1, 1, (steps, 4)).astype(np.float32)
    demo = Demonstration(
        episode=EpisodeId(task, 100_000 + seed),
        prompt=f"task {task}",
        state=random.normal(size=(steps, 5)).astype(np.float32),
        actions=actions,
        executed=actions + np.float32(0.1),
        frame_steps=frame_steps,
        images=random.integers(0, 256, (len(frame_steps), 1, 6, 8, 3), dtype=np.uint8),
        success=True,
    )
    return dataclasses.replace(demo, **changes)


def assert_equal(a: Demonstration, b: Demonstration) -> None:
    """Fail unless two demonstrations are equal to the bit, dtypes included."""
    assert (a.episode, a.prompt, a.success) == (b.episode, b.prompt, b.success)
    for name in ("state", "actions", "executed", "frame_steps", "images"):
        left, right = getattr(a, name), getattr(b, name)
        assert left.dtype == right.dtype, name
        np.testing.assert_array_equal(left, right, err_msg=name)
