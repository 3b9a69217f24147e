"""Meta-World as its own package steps it: what joyrl's runtime is compared with."""

from __future__ import annotations

import warnings

import mujoco
import numpy as np
from metaworld.env_dict import ALL_V3_ENVIRONMENTS
from metaworld.policies import ENV_POLICY_MAP

ROWS = np.r_[0:7, 11:14, 36:39]
"""Hand, gripper, two objects and goal in Meta-World's observation."""


def start(name: str, seed: int):
    """Return a fresh env with a visible goal, reset to a seed, and its observation."""
    env = ALL_V3_ENVIRONMENTS[name]()
    env._partially_observable = False
    del env.sawyer_observation_space
    env._freeze_rand_vec = False
    env.seeded_rand_vec = True
    env._set_task_called = True
    env.seed(seed)
    observation, _ = env.reset()
    # Seven tasks move a body after their last forward pass: their first observation is stale.
    mujoco.mj_kinematics(env.model, env.data)
    observation[:18] = env._get_curr_obs_combined_no_goal()
    observation[18:36] = observation[:18]
    env._prev_obs = observation[:18].copy()
    return env, observation


def expert_action(expert, observation) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.clip(expert.get_action(observation), -1, 1).astype(np.float32)


def expert(name: str):
    return ENV_POLICY_MAP[name]()
