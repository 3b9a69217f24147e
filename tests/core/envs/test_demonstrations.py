"""Demonstrations come in the order of their numbers, whoever played them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from joyrlinf_core.envs.demonstrations import Recipe, collect
from joyrlinf_core.errors import SimulatorCrashError
from tests.core.envs.fake_env import FakeConfig

RECIPE = Recipe(noise=0.5, frame_stride=2, steps_after_success=3)


def gather(num_workers: int, indices=range(7)):
    config = FakeConfig(total_num_envs=1)
    return list(collect(config, RECIPE, seed=3, indices=indices, num_workers=num_workers))


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_order_and_content_do_not_depend_on_the_number_of_processes(num_workers):
    expected = gather(0)
    found = gather(num_workers)
    assert [d.episode.variation for d in found] == [1_000_000 + i for i in range(7)]
    for one, other in zip(expected, found, strict=True):
        assert np.array_equal(one.state, other.state)
        assert np.array_equal(one.executed, other.executed)


def test_any_numbers_can_be_asked_for():
    assert [d.episode.variation for d in gather(2, [5, 1])] == [1_000_005, 1_000_001]
    assert gather(2, []) == []


def test_noise_differs_between_episodes_and_seeds():
    options = [RECIPE.options(0, 0), RECIPE.options(0, 1), RECIPE.options(1, 0)]
    assert len({o["noise_seed"] for o in options}) == 3
    assert RECIPE.options(0, 0) == options[0]


def test_stopping_early_ends_the_processes():
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    before = children.read_text().split()
    config = FakeConfig(total_num_envs=1)
    iterator = collect(config, RECIPE, seed=0, indices=range(1000), num_workers=2)
    next(iterator)
    assert len(children.read_text().split()) == len(before) + 2
    iterator.close()
    assert children.read_text().split() == before


def test_a_failure_is_raised():
    config = FakeConfig(total_num_envs=1, fault="build")
    with pytest.raises(SimulatorCrashError, match="free lunch"):
        list(collect(config, RECIPE, seed=0, indices=range(3), num_workers=1))
