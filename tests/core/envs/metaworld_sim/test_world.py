"""`TaskWorld` against Meta-World itself, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("metaworld")

from metaworld.env_dict import ALL_V3_ENVIRONMENTS

from joyrlinf_core.envs.metaworld_sim.success import RULES
from joyrlinf_core.envs.metaworld_sim.world import STATE_DIM, TaskWorld
from tests.core.envs.metaworld_sim import plain

pytestmark = pytest.mark.sim


def play(name: str, seed: int, steps: int, *, dense: bool = False) -> int:
    """Play noisy expert actions in both; compares everything, returns successful steps.

    Between chunks of ten steps another episode is played in the same world.
    """
    env, observation = plain.start(name, seed)
    world = TaskWorld(name, dense=dense)
    snapshot = world.start(seed)
    other = world.start(seed + 1)
    world.load(snapshot)
    world.refresh()
    theirs, ours = plain.expert(name), world.expert()
    rng = np.random.default_rng(seed)
    solved_steps = 0
    assert np.array_equal(world.state(), observation[plain.ROWS].astype(np.float32))
    for step in range(steps):
        action = plain.expert_action(theirs, observation)
        assert np.array_equal(action, world.act(ours)), f"expert differs at step {step}"
        action = np.clip(action + rng.normal(0, 0.1, 4), -1, 1).astype(np.float32)
        observation, reward, _, _, info = env.step(action)
        got_reward, solved = world.step(action)
        assert solved == bool(info["success"]), f"flag differs at step {step}"
        assert got_reward == (reward if dense else 0.0)
        assert np.array_equal(world.state(), observation[plain.ROWS].astype(np.float32))
        assert np.array_equal(world.data.qpos, env.data.qpos)
        assert np.array_equal(world.data.qvel, env.data.qvel)
        solved_steps += solved
        if step % 10 == 9:
            snapshot = world.save()
            world.load(other)
            world.step(-action)
            other = world.save()
            world.load(snapshot)
            world.refresh()
    env.close()
    world.close()
    return solved_steps


@pytest.mark.parametrize(
    "name", ["push-v3", "reach-v3", "button-press-v3", "drawer-close-v3", "stick-push-v3"]
)
def test_states_flags_and_expert_equal_metaworlds(name):
    assert play(name, 7, 90) > 0


def test_dense_rewards_equal_metaworlds():
    assert play("push-v3", 7, 70, dense=True) > 0
    assert play("bin-picking-v3", 7, 20, dense=True) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ALL_V3_ENVIRONMENTS))
def test_every_task_equals_metaworlds(name):
    solved = sum(play(name, seed, 120) for seed in (11, 12, 13))
    assert solved > 0, "no successful step: the flag was not tested"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ALL_V3_ENVIRONMENTS))
def test_every_dense_reward_equals_metaworlds(name):
    play(name, 21, 60, dense=True)


def test_rules_exist_for_tasks_that_exist():
    assert set(RULES) <= set(ALL_V3_ENVIRONMENTS)
    assert len(RULES) == 46


def test_equal_numbers_give_equal_states_whatever_was_played_before():
    world = TaskWorld("door-open-v3", dense=False)
    first = world.start(5)
    for _ in range(3):
        world.step(np.ones(4, np.float32))
    world.start(6)
    world.step(np.ones(4, np.float32))
    again = world.start(5)
    assert np.array_equal(first.physics, again.physics)
    for one, other in zip(first.model_arrays, again.model_arrays, strict=True):
        assert np.array_equal(one, other)
    # This task moves the door, which is part of the model, not of the physics.
    assert not np.array_equal(world.start(6).model_arrays[0], again.model_arrays[0])


def test_the_goal_is_visible_at_the_reset_and_after_steps():
    world = TaskWorld("reach-v3", dense=True)
    world.start(3)
    world.refresh()
    goal = world.state()[10:]
    assert np.abs(goal).max() > 0.1
    assert np.array_equal(goal, world.model.site("goal").pos.astype(np.float32))
    # The trap: step() clips the goal of the observation to cached bounds of zero.
    observation, *_ = world._env.step(np.zeros(4, np.float32))
    assert np.array_equal(observation[36:].astype(np.float32), goal)
    assert np.array_equal(world.state()[10:], goal)


def test_the_layout_fits_one_and_two_objects():
    one, two = TaskWorld("push-v3", dense=False), TaskWorld("stick-push-v3", dense=False)
    for world in (one, two):
        world.start(1)
        world.refresh()
        assert world.state().shape == (STATE_DIM,)
        assert world.state().dtype == np.float32
    assert np.array_equal(one.state()[7:10], np.zeros(3))
    assert np.abs(two.state()[7:10]).max() > 0.1


def test_resets_move_no_model_array_but_the_saved_ones():
    for name in ("push-v3", "lever-pull-v3", "peg-insert-side-v3"):
        world = TaskWorld(name, dense=False)
        names = [n for n in dir(world.model) if n[:4] in ("geom", "body", "jnt_", "site", "eq_d")]
        before = {
            n: np.array(getattr(world.model, n), copy=True)
            for n in names
            if isinstance(getattr(world.model, n), np.ndarray)
        }
        world.start(1)
        changed = {n for n, value in before.items() if (getattr(world.model, n) != value).any()}
        assert changed <= {"body_pos", "body_quat", "site_pos"}
        world.close()
