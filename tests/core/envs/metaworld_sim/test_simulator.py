"""`MetaWorldSimulator` and both vector envs over it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("metaworld")

from joyrlinf_core.config.schema import EpisodeId
from joyrlinf_core.envs.factory import build_vec_env
from joyrlinf_core.envs.metaworld import Config
from tests.core.envs.metaworld_sim import plain

pytestmark = pytest.mark.sim


def make(**keys):
    defaults = {"type": "metaworld", "total_num_envs": 8, "image_size": 32}
    return Config(**{**defaults, **keys})


@pytest.fixture(scope="module")
def expert_run():
    """Expert actions of push-v3 and the step (from 0) that solves it first."""
    env, observation = plain.start("push-v3", 42)
    expert, actions = plain.expert("push-v3"), []
    while True:
        actions.append(plain.expert_action(expert, observation))
        observation, _, _, _, info = env.step(actions[-1])
        if info["success"]:
            env.close()
            return np.stack(actions), len(actions) - 1


def test_frames_have_the_shapes_of_the_protocol():
    config = make(tasks=["push-v3", "reach-v3"])
    simulator = config.build(4)
    frame = simulator.reset([0, 2], [EpisodeId(0, 1), EpisodeId(1, 1)])
    assert frame.images.shape == (2, 1, 32, 32, 3)
    assert frame.images.dtype == np.uint8
    assert frame.state.shape == (2, 13)
    assert frame.state.dtype == np.float32
    assert frame.task.tolist() == [0, 1]
    result = simulator.chunk_step([0, 2], np.zeros((2, 3, 4), np.float32), final_frames=False)
    assert result.rewards.shape == result.terminations.shape == result.truncations.shape == (2, 3)
    assert result.rewards.dtype == np.float32
    assert result.terminations.dtype == result.truncations.dtype == result.success.dtype == bool
    assert result.steps.tolist() == [3, 3]
    assert result.frame.task.tolist() == [0, 1]
    assert result.frame.images.max() > 0
    with pytest.raises(IndexError, match="slot 1 has no episode"):
        simulator.chunk_step([1], np.zeros((1, 3, 4), np.float32), final_frames=False)
    simulator.close()
    simulator.close()


def test_a_group_starts_equal_and_goes_apart():
    simulator = make().build(4)
    frame = simulator.reset(range(4), [EpisodeId(0, 9)] * 3 + [EpisodeId(0, 10)])
    alone = simulator.reset([3], [EpisodeId(0, 9)])
    for row in (1, 2):
        assert np.array_equal(frame.state[row], frame.state[0])
        assert np.array_equal(frame.images[row], frame.images[0])
    assert not np.array_equal(frame.state[3], frame.state[0])
    assert np.array_equal(alone.state[0], frame.state[0])
    assert np.array_equal(alone.images[0], frame.images[0])
    actions = np.random.default_rng(0).uniform(-1, 1, (4, 10, 4)).astype(np.float32)
    actions[1] = actions[0]
    states = simulator.chunk_step(range(4), actions, final_frames=False).frame.state
    assert np.array_equal(states[0], states[1])
    assert not np.array_equal(states[0], states[2])
    simulator.close()


def test_success_ends_the_episode_at_its_action(expert_run):
    actions, solved_at = expert_run
    padded = np.concatenate((actions, np.zeros((5, 4), np.float32)))[None]
    config = make(max_episode_steps=100, reward_coef=2.0)
    simulator = config.build(1)
    simulator.reset([0], [EpisodeId(0, 42)])
    result = simulator.chunk_step([0], padded, final_frames=True)
    assert np.flatnonzero(result.terminations[0]).tolist() == [solved_at]
    assert not result.truncations.any()
    assert np.flatnonzero(result.rewards[0]).tolist() == [solved_at]
    assert result.rewards[0, solved_at] == 2.0
    assert result.steps.tolist() == [solved_at + 1]
    assert result.success.tolist() == [True]
    assert result.frame.images.max() == 0
    assert result.frame.state.max() == 0
    simulator.close()


def test_ignored_terminations_run_on_and_pay_once(expert_run):
    actions, solved_at = expert_run
    padded = np.concatenate((actions, np.zeros((5, 4), np.float32)))[None]
    length = padded.shape[1]
    simulator = make(max_episode_steps=length, ignore_terminations=True).build(1)
    simulator.reset([0], [EpisodeId(0, 42)])
    result = simulator.chunk_step([0], padded, final_frames=False)
    assert not result.terminations.any()
    assert np.flatnonzero(result.truncations[0]).tolist() == [length - 1]
    assert np.flatnonzero(result.rewards[0]).tolist() == [solved_at]
    assert result.success.tolist() == [True]
    assert result.steps.tolist() == [length]
    simulator.close()


def test_success_at_the_last_step_is_no_time_limit(expert_run):
    actions, solved_at = expert_run
    simulator = make(max_episode_steps=solved_at + 1).build(1)
    simulator.reset([0], [EpisodeId(0, 42)])
    result = simulator.chunk_step([0], actions[None], final_frames=False)
    assert result.terminations[0, solved_at]
    assert not result.truncations.any()
    simulator.close()


@pytest.mark.parametrize("final_frames", [False, True])
def test_the_time_limit_ends_the_episode_inside_a_chunk(final_frames):
    simulator = make(max_episode_steps=7).build(2)
    simulator.reset([0, 1], [EpisodeId(0, 1), EpisodeId(0, 2)])
    zeros = np.zeros((2, 5, 4), np.float32)
    first = simulator.chunk_step([0, 1], zeros, final_frames=final_frames)
    assert not first.truncations.any()
    assert first.frame.images.max() > 0
    last = simulator.chunk_step([0, 1], zeros, final_frames=final_frames)
    assert last.truncations.tolist() == [[False, True, False, False, False]] * 2
    assert last.steps.tolist() == [2, 2]
    assert (last.frame.images.max() > 0) == final_frames
    assert (np.abs(last.frame.state).max() > 0) == final_frames
    simulator.close()


def test_dense_rewards_are_the_simulators_own(expert_run):
    actions, solved_at = expert_run
    env, _ = plain.start("push-v3", 42)
    expected = [env.step(action)[1] for action in actions]
    env.close()
    config = make(reward_mode="dense", reward_coef=0.5)
    simulator = config.build(1)
    simulator.reset([0], [EpisodeId(0, 42)])
    padded = np.concatenate((actions, np.ones((3, 4), np.float32)))[None]
    result = simulator.chunk_step([0], padded, final_frames=False)
    assert np.array_equal(result.rewards[0, : solved_at + 1], 0.5 * np.float32(expected))
    assert not result.rewards[0, solved_at + 1 :].any()
    assert result.terminations[0, solved_at]
    simulator.close()


def roll(num_workers: int) -> list[torch.Tensor]:
    """Play three chunks of two tasks; returns every tensor that came back."""
    config = make(tasks=["push-v3", "reach-v3"], max_episode_steps=12, num_workers=num_workers)
    env = build_vec_env(config, 8, group_size=2)
    try:
        slots = torch.arange(8)
        first = env.reset(slots, [config.train_episode(5, s // 2, 0) for s in range(8)])
        out = [first.images, first.state, first.task]
        generator = torch.Generator().manual_seed(0)
        for _ in range(3):
            actions = torch.rand((len(slots), 5, 4), generator=generator) * 2 - 1
            r = env.chunk_step(slots, actions, final_frames=True)
            out += [r.rewards, r.terminations, r.truncations, r.success, r.steps]
            out += [r.observation.images, r.observation.state, r.observation.task]
            slots = slots[~(r.terminations | r.truncations).any(1)]
        return out
    finally:
        env.close()


def test_results_do_not_depend_on_the_number_of_processes():
    local = roll(0)
    for num_workers in (1, 2):
        for one, other in zip(local, roll(num_workers), strict=True):
            assert torch.equal(one, other)


def test_the_expert_solves_push_and_its_labels_are_clean():
    config = make(max_episode_steps=100)
    simulator = config.build(1)
    options = {"noise_seed": 0, "frame_stride": 10, "steps_after_success": 5}
    demos = [
        simulator.demonstrate(config.demo_episode(0, i), noise=0.0, **options) for i in range(10)
    ]
    assert sum(d.success for d in demos) >= 8
    demo = demos[0]
    length = len(demo.actions)
    assert demo.prompt == "push the puck to the goal"
    assert demo.state.shape == (length, 13)
    assert demo.actions.shape == demo.executed.shape == (length, 4)
    assert demo.frame_steps.tolist() == list(range(0, length, 10))
    assert demo.images.shape == (len(demo.frame_steps), 1, 32, 32, 3)
    assert np.array_equal(demo.actions, demo.executed)
    assert np.abs(demo.actions).max() <= 1
    simulator.close()


def test_noise_disturbs_what_is_executed_and_is_reproducible():
    config = make(max_episode_steps=20)
    simulator = config.build(1)
    options = {"noise": 0.3, "frame_stride": 10, "steps_after_success": 5}
    episode = config.demo_episode(0, 0)
    one, again, other = (
        simulator.demonstrate(episode, noise_seed=seed, **options) for seed in (1, 1, 2)
    )
    assert np.array_equal(one.executed, again.executed)
    assert np.array_equal(one.state, again.state)
    assert not np.array_equal(one.executed, other.executed)
    assert 0.1 < np.abs(one.executed - one.actions).mean() < 0.4
    assert np.abs(one.executed).max() <= 1
    assert np.array_equal(one.state[0], other.state[0])
    simulator.close()


def test_a_demonstration_runs_on_after_success():
    config = make(max_episode_steps=100)
    simulator = config.build(1)
    episode = EpisodeId(0, 42)
    lengths = [
        len(
            simulator.demonstrate(
                episode, noise=0.0, noise_seed=0, frame_stride=50, steps_after_success=more
            ).actions
        )
        for more in (0, 7)
    ]
    simulator.close()
    assert lengths[1] == lengths[0] + 7
