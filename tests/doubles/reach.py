"""A small simulator that needs no package: move a point to a target, in microseconds a step.

State: point xy, target xy. Action: xy displacement in [-1, 1], a tenth of it a step. Success:
closer than `close`. The picture shows both. The expert walks straight to the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from joyrlinf_core.batch.demonstration import Demonstration
from joyrlinf_core.config.schema import EnvConfig, EpisodeId
from joyrlinf_core.envs.base import ChunkResult, Frame
from joyrlinf_core.seeding import stream

SIZE = 16
STEP = 0.1


class ReachEnv(EnvConfig):
    """Section of the double."""

    type: Literal["tests.doubles.reach:ReachEnv"] = "tests.doubles.reach:ReachEnv"

    tasks: tuple[str, ...] = ("reach",)

    close: float = 0.15
    """Distance that counts as success."""

    distance: float = 1.0
    """Largest distance of the target in x and in y."""

    crash_at_reset: int = -1
    """Raise at this reset, to test failures."""

    @property
    def task_prompts(self) -> tuple[str, ...]:
        return tuple(f"{task} the target" for task in self.tasks)

    @property
    def action_dim(self) -> int:
        return 2

    @property
    def state_dim(self) -> int:
        return 4

    @property
    def image_shape(self) -> tuple[int, int, int, int]:
        return (1, SIZE, SIZE, 3)

    def train_episode(self, seed: int, group: int, k: int) -> EpisodeId:
        return EpisodeId((group + k) % len(self.tasks), stream(seed, "train", group, k) % 2**31)

    def eval_episode(self, index: int) -> EpisodeId:
        return EpisodeId(index % len(self.tasks), 2**40 + index)

    def demo_episode(self, seed: int, index: int) -> EpisodeId:
        return EpisodeId(index % len(self.tasks), 2**41 + stream(seed, "demo", index) % 2**31)

    def build(self, num_slots: int) -> ReachSimulator:
        return ReachSimulator(self, num_slots)

    def check_ready(self) -> str:
        return "numpy"


class ReachSimulator:
    """n points in one process."""

    def __init__(self, config: ReachEnv, num_slots: int) -> None:
        self._config = config
        self._point = np.zeros((num_slots, 2))
        self._target = np.zeros((num_slots, 2))
        self._task = np.zeros(num_slots, dtype=np.int64)
        self._age = np.zeros(num_slots, dtype=np.int64)
        self._success = np.zeros(num_slots, dtype=bool)
        self._resets = 0

    def reset(self, slots: Sequence[int], episodes: Sequence[EpisodeId]) -> Frame:
        if self._resets == self._config.crash_at_reset:
            raise RuntimeError("the double was told to crash")
        self._resets += 1
        for slot, episode in zip(slots, episodes, strict=True):
            rng = np.random.default_rng(episode.variation)
            self._point[slot] = rng.uniform(-1, 1, 2)
            offset = rng.uniform(-1, 1, 2) * self._config.distance
            self._target[slot] = self._point[slot] + offset
            self._task[slot], self._age[slot], self._success[slot] = episode.task, 0, False
        return self._frame(slots)

    def chunk_step(
        self, slots: Sequence[int], actions: np.ndarray, *, final_frames: bool
    ) -> ChunkResult:
        count, chunk, _ = actions.shape
        rewards = np.zeros((count, chunk), dtype=np.float32)
        terminations = np.zeros((count, chunk), dtype=bool)
        truncations = np.zeros((count, chunk), dtype=bool)
        steps = np.zeros(count, dtype=np.int64)
        for row, slot in enumerate(slots):
            for column in range(chunk):
                self._point[slot] += STEP * np.clip(actions[row, column], -1, 1)
                self._age[slot] += 1
                steps[row] += 1
                fresh = self._is_close(slot) and not self._success[slot]
                self._success[slot] |= fresh
                rewards[row, column] = self._config.reward_coef * fresh
                terminations[row, column] = fresh and not self._config.ignore_terminations
                if terminations[row, column]:
                    break
                if self._age[slot] >= self._config.max_episode_steps:
                    truncations[row, column] = True
                    break
        frame = self._frame(slots)
        dead = terminations.any(1) | (truncations.any(1) & (not final_frames))
        frame.images[dead] = 0
        frame.state[dead] = 0
        success = self._success[list(slots)].copy()
        return ChunkResult(rewards, terminations, truncations, success, steps, frame)

    def demonstrate(
        self,
        episode: EpisodeId,
        *,
        noise: float,
        noise_seed: int,
        frame_stride: int,
        steps_after_success: int,
    ) -> Demonstration:
        rng = np.random.default_rng(noise_seed)
        self.reset([0], [episode])
        states, labels, executed, images, left = [], [], [], [], steps_after_success
        for step in range(self._config.max_episode_steps):
            frame = self._frame([0])
            label = np.clip((self._target[0] - self._point[0]) / STEP, -1, 1)
            action = np.clip(label + noise * rng.standard_normal(2), -1, 1)
            states.append(frame.state[0])
            labels.append(label)
            executed.append(action)
            if step % frame_stride == 0:
                images.append(frame.images[0])
            self._point[0] += STEP * action
            self._success[0] |= self._is_close(0)
            left -= bool(self._success[0])
            if left < 0:
                break
        return Demonstration(
            episode=episode,
            prompt=self._config.task_prompts[episode.task],
            state=np.asarray(states, dtype=np.float32),
            actions=np.asarray(labels, dtype=np.float32),
            executed=np.asarray(executed, dtype=np.float32),
            frame_steps=np.arange(0, len(states), frame_stride, dtype=np.int64),
            images=np.stack(images),
            success=bool(self._success[0]),
        )

    def close(self) -> None:
        pass

    def _is_close(self, slot: int) -> bool:
        return bool(np.linalg.norm(self._point[slot] - self._target[slot]) < self._config.close)

    def _frame(self, slots: Sequence[int]) -> Frame:
        index = list(slots)
        images = np.zeros((len(index), 1, SIZE, SIZE, 3), dtype=np.uint8)
        for row, slot in enumerate(index):
            for channel, place in enumerate((self._point[slot], self._target[slot])):
                y, x = np.clip((place + 1) / 2 * (SIZE - 1), 0, SIZE - 1).round().astype(int)
                images[row, 0, y, x, channel] = 255
        state = np.concatenate([self._point[index], self._target[index]], axis=1)
        return Frame(images, state.astype(np.float32), self._task[index].copy())
