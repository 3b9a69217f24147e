"""`LocalVecEnv`: the protocol in one process."""

from __future__ import annotations

import pytest
import torch

from joyrlinf_core.envs.factory import build_vec_env
from joyrlinf_core.envs.local import LocalVecEnv
from joyrlinf_core.errors import SimulatorCrashError
from tests.core.envs.fake_env import FakeConfig


def test_no_workers_means_this_process():
    config = FakeConfig(total_num_envs=2, num_workers=0)
    env = build_vec_env(config, 2)
    assert isinstance(env, LocalVecEnv)
    frame = env.reset(torch.arange(2), [config.train_episode(0, g, 0) for g in range(2)])
    assert frame.state[:, 0].tolist() == [0, 10]
    actions = torch.ones(1, 3, 2)
    env.send(torch.tensor([1]), actions)
    actions.zero_()
    result = env.recv()
    assert result.rewards.tolist() == [[2.0, 2.0, 2.0]]
    assert result.observation.prompts == ("count",)
    with pytest.raises(RuntimeError, match="without send"):
        env.recv()
    env.close()
    env.close()


def test_a_failure_is_raised_as_in_a_simulator_process():
    config = FakeConfig(total_num_envs=1, num_workers=0, fault="raise")
    env = build_vec_env(config, 1)
    env.reset(torch.arange(1), [config.train_episode(0, 0, 0)])
    with pytest.raises(SimulatorCrashError, match="ZeroDivisionError: fault on demand"):
        env.chunk_step(torch.arange(1), torch.zeros(1, 4, 2))
