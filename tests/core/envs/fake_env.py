"""A simulator of plain arithmetic whose processes fail on demand."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Literal

import numpy as np

from joyrlinf_core.batch.demonstration import Demonstration
from joyrlinf_core.config.schema import EnvConfig, EpisodeId
from joyrlinf_core.envs.base import ChunkResult, Frame


class FakeConfig(EnvConfig):
    """Counts steps; `fault` happens in slot `fault_slot` at its third step."""

    type: str = "fake"
    max_episode_steps: int = 6
    fault: Literal["none", "build", "raise", "kill", "sleep"] = "none"
    fault_slot: int = 0

    @property
    def task_prompts(self):
        return ("count",)

    @property
    def action_dim(self):
        return 2

    @property
    def state_dim(self):
        return 4

    @property
    def image_shape(self):
        return (1, 4, 4, 3)

    def train_episode(self, seed, group, k):
        return EpisodeId(0, 100 * seed + 10 * group + k)

    def eval_episode(self, index):
        return EpisodeId(0, -1 - index)

    def demo_episode(self, seed, index):
        return EpisodeId(0, 1_000_000 + index)

    def check_ready(self):
        return "fake"

    def build(self, num_slots):
        if self.fault == "build":
            raise RuntimeError("no such thing as a free lunch")
        return FakeSimulator(self, num_slots)


class FakeSimulator:
    """State: variation, steps so far, process id, whether torch is loaded in this process."""

    def __init__(self, config, num_slots):
        self.config = config
        self.variation = np.zeros(num_slots)
        self.steps = np.zeros(num_slots, int)

    def _frame(self, slots):
        state = np.zeros((len(slots), 4), np.float32)
        state[:, 0] = self.variation[slots]
        state[:, 1] = self.steps[slots]
        state[:, 2] = os.getpid()
        state[:, 3] = "torch" in sys.modules
        images = np.zeros((len(slots), 1, 4, 4, 3), np.uint8)
        images[:] = (self.steps[slots] % 256)[:, None, None, None, None]
        return Frame(images, state, np.zeros(len(slots), np.int64))

    def reset(self, slots, episodes):
        for slot, episode in zip(slots, episodes, strict=True):
            self.variation[slot] = episode.variation
            self.steps[slot] = 0
        return self._frame(list(slots))

    def chunk_step(self, slots, actions, *, final_frames):
        n, chunk = actions.shape[:2]
        rewards = actions.sum(-1).astype(np.float32)
        truncations = np.zeros((n, chunk), bool)
        for row, slot in enumerate(slots):
            for column in range(chunk):
                self.steps[slot] += 1
                truncations[row, column] = self.steps[slot] == self.config.max_episode_steps
                if self.steps[slot] == 3 and slot == self.config.fault_slot:
                    self._fail()
        return ChunkResult(
            rewards=rewards,
            terminations=np.zeros((n, chunk), bool),
            truncations=truncations,
            success=np.zeros(n, bool),
            steps=np.full(n, chunk),
            frame=self._frame(list(slots)),
        )

    def _fail(self):
        if self.config.fault == "raise":
            raise ZeroDivisionError("fault on demand")
        if self.config.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.config.fault == "sleep":
            time.sleep(60)

    def demonstrate(self, episode, *, noise, noise_seed, frame_stride, steps_after_success):
        # Later episodes finish first.
        time.sleep(0.02 if episode.variation % 2 == 0 else 0.0)
        zeros = np.zeros((1, 2), np.float32)
        return Demonstration(
            episode=episode,
            prompt="count",
            state=np.full((1, 4), noise_seed % 1000, np.float32),
            actions=zeros,
            executed=zeros + noise,
            frame_steps=np.zeros(1, np.int64),
            images=np.zeros((1, 1, 4, 4, 3), np.uint8),
            success=True,
        )

    def close(self):
        pass
