"""Builders of rollouts: explicit ones, and random ones with several episodes per window."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from joyrlinf_core.batch.rollout import RolloutBatch

Build = Callable[..., RolloutBatch]


@pytest.fixture
def rollout() -> Build:
    """Build a rollout from rewards [T, B, C] and dones; everything else has a plain default."""
    return build


@pytest.fixture
def random_rollout() -> Build:
    """Draw a rollout as the engine makes it, from a seed."""
    return draw


def build(rewards: Tensor, dones: Tensor | None = None, **other: Tensor | None) -> RolloutBatch:
    t, b, c = rewards.shape
    dones = torch.zeros(t, b, c, dtype=torch.bool) if dones is None else dones.bool()
    group = other.get("group")
    fields: dict[str, Tensor | None] = {
        "actions": torch.zeros(t, b, c, 2),
        "rewards": rewards.float(),
        "dones": dones,
        "terminations": dones,
        "prev_logprobs": torch.zeros(t, b, c, 2),
        "played": torch.ones(t, b, dtype=torch.bool),
        "episode": torch.zeros(t, b, dtype=torch.int64),
        "group": torch.zeros(b, dtype=torch.int64) if group is None else group,
        "task": torch.zeros(t, b, dtype=torch.int64),
        "success": torch.zeros(t, b, dtype=torch.bool),
        "versions": torch.zeros(t, b, dtype=torch.int64),
    }
    fields.update(other)
    inputs = {"state": torch.arange(t * b * 3).reshape(t, b, 3).float()}
    return RolloutBatch(inputs=inputs, replay={}, **fields)  # type: ignore[arg-type]


def draw(
    seed: int, *, auto_reset: bool, group_size: int = 4, groups: int = 3, done_rate: float = 0.08
) -> RolloutBatch:
    """Episodes end at random actions. Rewards after a done are garbage on purpose."""
    generator = torch.Generator().manual_seed(seed)
    epochs, chunks, c = (1, 9, 3) if auto_reset else (2, 5, 3)
    t, b = epochs * chunks, groups * group_size
    played = torch.ones(t, b, dtype=torch.bool)
    episode = torch.zeros(t, b, dtype=torch.int64)
    dones = torch.rand(t, b, c, generator=generator) < done_rate
    for column in range(b):
        k, waiting = 5, False
        for row in range(t):
            if not auto_reset and row and row % chunks == 0:
                k, waiting = k + 1, False
            episode[row, column] = k
            played[row, column] = not waiting
            if waiting:
                dones[row, column] = False
            elif dones[row, column].any():
                if auto_reset:
                    k += 1
                else:
                    waiting = True
    return build(
        torch.randint(-1, 3, (t, b, c), generator=generator).float(),
        dones,
        terminations=dones & (torch.rand(t, b, c, generator=generator) < 0.5),
        played=played,
        episode=episode,
        group=torch.arange(groups).repeat_interleave(group_size) + 7,
        task=(torch.arange(groups) % 2).repeat_interleave(group_size).expand(t, b).clone(),
        success=torch.rand(t, b, generator=generator) < 0.2,
        prev_values=torch.randn(t, b, generator=generator),
        next_values=torch.randn(t, b, generator=generator),
        prev_logprobs=torch.randn(t, b, c, 2, generator=generator),
    )
