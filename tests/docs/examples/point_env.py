"""Env: a point on a plane moves to a goal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from joyrlinf_core.batch.demonstration import Demonstration
from joyrlinf_core.config.schema import EnvConfig, EpisodeId
from joyrlinf_core.envs.base import ChunkResult, Frame
from joyrlinf_core.seeding import stream

PIXELS = 16


class Config(EnvConfig):
    """A point that moves to a goal."""

    radius: float = 0.2
    """Distance at which the goal counts as reached; the plane is [-1, 1] x [-1, 1]."""

    speed: float = 0.2
    """Distance of one step along an axis at action 1."""

    @property
    def task_prompts(self) -> tuple[str, ...]:
        return ("move to the goal",)

    @property
    def action_dim(self) -> int:
        return 2

    @property
    def state_dim(self) -> int:
        return 4

    @property
    def image_shape(self) -> tuple[int, int, int, int]:
        return (1, PIXELS, PIXELS, 3)

    # Three kinds of episodes, whose initial states must not overlap.
    def train_episode(self, seed: int, group: int, k: int) -> EpisodeId:
        return EpisodeId(0, 2_000_000 + stream(seed, "train", group, k) % 10**9)

    def eval_episode(self, index: int) -> EpisodeId:
        return EpisodeId(0, index)

    def demo_episode(self, seed: int, index: int) -> EpisodeId:
        return EpisodeId(0, 1_000_000 + (seed * 10_000 + index) % 1_000_000)

    def check_ready(self) -> str:
        return "numpy"

    def build(self, num_slots: int) -> PointSimulator:
        return PointSimulator(self, num_slots)


class PointSimulator:
    """`num_slots` points in one process."""

    def __init__(self, config: Config, num_slots: int) -> None:
        self._config = config
        self._point = np.zeros((num_slots, 2), np.float32)
        self._goal = np.zeros((num_slots, 2), np.float32)
        self._steps = np.zeros(num_slots, np.int64)
        self._success = np.zeros(num_slots, bool)

    def reset(self, slots: Sequence[int], episodes: Sequence[EpisodeId]) -> Frame:
        for slot, episode in zip(slots, episodes, strict=True):
            random = np.random.default_rng(episode.variation)
            self._point[slot], self._goal[slot] = random.uniform(-1, 1, (2, 2))
            self._steps[slot], self._success[slot] = 0, False
        return self._frame(slots)

    def chunk_step(
        self, slots: Sequence[int], actions: np.ndarray, *, final_frames: bool
    ) -> ChunkResult:
        shape = actions.shape[:2]
        rewards = np.zeros(shape, np.float32)
        terminations, truncations = np.zeros(shape, bool), np.zeros(shape, bool)
        before = self._steps[slots].copy()
        for row, slot in enumerate(slots):
            for c, action in enumerate(actions[row]):
                solved = self._step(slot, action)
                rewards[row, c] = self._config.reward_coef * solved
                terminations[row, c] = solved and not self._config.ignore_terminations
                late = self._steps[slot] >= self._config.max_episode_steps
                truncations[row, c] = late and not terminations[row, c]
                if terminations[row, c] or truncations[row, c]:
                    break
        frame = self._frame(slots)
        hidden = terminations.any(1) | (truncations.any(1) & (not final_frames))
        frame.images[hidden], frame.state[hidden] = 0, 0
        return ChunkResult(
            rewards=rewards,
            terminations=terminations,
            truncations=truncations,
            success=self._success[slots].copy(),
            steps=self._steps[slots] - before,
            frame=frame,
        )

    def demonstrate(
        self,
        episode: EpisodeId,
        *,
        noise: float,
        noise_seed: int,
        frame_stride: int,
        steps_after_success: int,
    ) -> Demonstration:
        random = np.random.default_rng(noise_seed)
        frames, states, actions, executed, left = [self.reset([0], [episode])], [], [], [], None
        while len(states) < self._config.max_episode_steps and left != 0:
            states.append(frames[-1].state[0])
            expert = np.clip((self._goal[0] - self._point[0]) / self._config.speed, -1, 1)
            actions.append(expert)
            noisy = expert + random.normal(0, noise, 2)
            executed.append(np.clip(noisy, -1, 1).astype(np.float32))
            if self._step(0, executed[-1]):
                left = steps_after_success
            elif left is not None:
                left -= 1
            frames.append(self._frame([0]))
        steps = np.arange(0, len(states), frame_stride)
        return Demonstration(
            episode=episode,
            prompt=self._config.task_prompts[0],
            state=np.array(states),
            actions=np.array(actions),
            executed=np.array(executed),
            frame_steps=steps,
            images=np.concatenate([frames[step].images for step in steps]),
            success=bool(self._success[0]),
        )

    def close(self) -> None:
        pass

    def _step(self, slot: int, action: np.ndarray) -> bool:
        """Move a point; return whether it is at its goal for the first time."""
        self._point[slot] += self._config.speed * np.clip(action, -1, 1)
        self._steps[slot] += 1
        distance = np.linalg.norm(self._goal[slot] - self._point[slot])
        solved = bool(distance < self._config.radius and not self._success[slot])
        self._success[slot] |= solved
        return solved

    def _frame(self, slots: Sequence[int]) -> Frame:
        images = np.zeros((len(slots), 1, PIXELS, PIXELS, 3), np.uint8)
        for colour, place in enumerate((self._point[slots], self._goal[slots])):
            pixel = np.clip((place + 1) / 2 * PIXELS, 0, PIXELS - 1).astype(int)
            images[np.arange(len(slots)), 0, pixel[:, 1], pixel[:, 0], colour] = 255
        state = np.concatenate([self._point[slots], self._goal[slots]], axis=1)
        return Frame(images, state, np.zeros(len(slots), np.int64))
