"""A stand-in simulator for `pipeline.py`: a chunk takes a set time, in which the processor is free.

It moves the points of the reach double. Episodes never end early and every one has another return,
so that all rollouts and updates do equally much.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from joyrlinf_core.envs.base import ChunkResult
from tests.doubles.reach import ReachEnv, ReachSimulator


class SleepingEnv(ReachEnv):
    """Section of the stand-in."""

    type: Literal["tests.benchmarks.gpu.sleeping:SleepingEnv"] = (
        "tests.benchmarks.gpu.sleeping:SleepingEnv"
    )

    chunk_seconds: float = 0.0
    """Wall time of a chunk of all envs of a rank, beside the microseconds of the double."""

    def build(self, num_slots: int) -> SleepingSimulator:
        return SleepingSimulator(self, num_slots)


class SleepingSimulator(ReachSimulator):
    """Points that take their time."""

    def __init__(self, config: SleepingEnv, num_slots: int) -> None:
        super().__init__(config, num_slots)
        self._chunk_seconds = config.chunk_seconds

    def chunk_step(
        self, slots: Sequence[int], actions: np.ndarray, *, final_frames: bool
    ) -> ChunkResult:
        time.sleep(self._chunk_seconds)
        result = super().chunk_step(slots, actions, final_frames=final_frames)
        return replace(result, rewards=actions[:, :, 0].astype(np.float32))
