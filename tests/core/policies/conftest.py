"""Builders of tiny policies and their inputs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from joyrlinf_core.batch.observation import Observation
from joyrlinf_core.policies.base import FieldStats, NormStats
from joyrlinf_core.policies.openpi import OpenPiConfig

PROMPTS = ("push the puck to the goal", "reach it")
STATE_DIM, ACTION_DIM = 5, 3


@pytest.fixture
def env():
    return SimpleNamespace(
        task_prompts=PROMPTS,
        action_dim=ACTION_DIM,
        state_dim=STATE_DIM,
        image_shape=(2, 32, 32, 3),
    )


@pytest.fixture
def stats():
    def field(size):
        steps = [0.1 * (index + 1) for index in range(size)]
        return FieldStats(
            mean=tuple(steps),
            std=tuple(1.0 + step for step in steps),
            q01=tuple(-1.0 - step for step in steps),
            q99=tuple(2.0 + step for step in steps),
        )

    return NormStats(state=field(STATE_DIM), actions=field(ACTION_DIM))


@pytest.fixture
def build(env, stats):
    """Return a function that makes a tiny policy whose every weight is off its initial zero."""

    def make(variant="tiny-pi0", *, seed=0, sizes=None, **keys):
        architecture = {"horizon": 4, "patch_size": 8, "action_dim": 6, "state_dim": 7}
        config = OpenPiConfig(
            variant=variant,
            num_action_chunks=keys.pop("num_action_chunks", 2),
            architecture=architecture | (sizes or {}),
            **keys,
        )
        policy = config.create(env, stats, seed=seed)
        generator = torch.Generator().manual_seed(seed + 1)
        with torch.no_grad():
            for parameter in policy.module.parameters():
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
        policy.module.eval()
        return policy

    return make


@pytest.fixture
def observe():
    """Return a function that makes n observations, by default of one task."""

    def make(n=6, *, tasks=1, seed=0):
        generator = torch.Generator().manual_seed(seed)
        return Observation(
            images=torch.randint(0, 256, (n, 2, 32, 32, 3), generator=generator, dtype=torch.uint8),
            state=torch.randn((n, STATE_DIM), generator=generator),
            task=torch.arange(n) % tasks,
            prompts=PROMPTS,
        )

    return make


@pytest.fixture
def rng():
    """Return a function that makes a seeded CPU generator."""
    return lambda seed=0: torch.Generator().manual_seed(seed)
