"""`TaskWorld`: one Meta-World task in this process, shared by all slots that play it.

There is one model and one physics state per task. A slot is a `Snapshot`: MuJoCo's integration
state, the model arrays that a reset moves, and the Python attributes of the Meta-World env. It is
loaded before and saved after a chunk, which takes microseconds. Snapshots of the Python objects
alone would not do: some attributes are views into the physics state and must stay alive.
"""
# ruff: noqa: SLF001 - Meta-World has no public way to set seeds, see the goal or place objects
# mujoco ships no stubs for its C functions:
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import mujoco
import numpy as np
from metaworld.env_dict import ALL_V3_ENVIRONMENTS
from metaworld.policies import ENV_POLICY_MAP

from joyrlinf_core.envs.metaworld_sim.success import RULES

STATE_DIM = 13
"""Hand xyz, gripper opening in [0, 1], first object xyz, second object xyz (zeros when there is
none), goal xyz; metres."""

_STATE = int(mujoco.mjtState.mjSTATE_INTEGRATION)
_MOVED_BY_RESET = ("body_pos", "body_quat", "site_pos")
_NOT_ATTRIBUTES = ("model", "data", "mujoco_renderer", "action_space", "observation_space")


@dataclass(frozen=True)
class Snapshot:
    """Where one episode stands between two chunks.

    Attributes:
        physics: float64, MuJoCo's integration state.
        model_arrays: Model arrays that differ between episodes, in the order `_MOVED_BY_RESET`.
        attributes: Python attributes of the Meta-World env.
    """

    physics: np.ndarray
    model_arrays: tuple[np.ndarray, ...]
    attributes: dict[str, Any]

    def twin(self) -> Snapshot:
        """Return a snapshot that shares nothing which stepping could change in place."""
        return replace(self, attributes=_copy_attributes(self.attributes))


def _copy_attributes(attributes: dict[str, Any]) -> dict[str, Any]:
    """Copy attributes; arrays that are views (into the physics state) stay views."""
    return {
        name: value.copy() if isinstance(value, np.ndarray) and value.base is None else value
        for name, value in attributes.items()
    }


def _lean(cls: type) -> type:
    """Return a subclass whose reset settles the hand once, not twice.

    Meta-World's `reset` runs `reset_model`, throws the physics away and runs it again; the first
    pass counts only for its random draws. Settling the hand is nearly all of a reset's time.
    """

    def settle(self: Any, steps: int = 50) -> None:
        if self._skip_settling:
            self._skip_settling = False
            self.init_tcp = self.tcp_center
        else:
            cls._reset_hand(self, steps)

    return type(cls.__name__, (cls,), {"_reset_hand": settle, "_skip_settling": False})


class TaskWorld:
    """One task.

    Args:
        name: Meta-World's name of the task.
        dense: Whether `step` must return the dense reward.
    """

    def __init__(self, name: str, *, dense: bool) -> None:
        self.name = name
        self._env: Any = _lean(ALL_V3_ENVIRONMENTS[name])()
        self._show_goal()
        self.model: mujoco.MjModel = self._env.model
        self.data: mujoco.MjData = self._env.data
        self._dense = dense
        self._rule = None if dense else RULES.get(name)
        self._arrays = tuple(getattr(self.model, field) for field in _MOVED_BY_RESET)
        self._pristine_arrays = tuple(array.copy() for array in self._arrays)
        self._pristine_attributes = _copy_attributes(self._attributes())
        self._loaded_arrays: tuple[np.ndarray, ...] = ()
        self._loaded_attributes: dict[str, Any] = {}
        self._state_size = mujoco.mj_stateSize(self.model, _STATE)
        self._mocap_pos = self.data.mocap_pos[0]
        self._ctrl = self.data.ctrl
        self._hand, self._right_claw, self._left_claw = (
            self.data.xpos[self.model.body(body).id] for body in ("hand", "rightclaw", "leftclaw")
        )

    def start(self, variation: int) -> Snapshot:
        """Reset to the initial state that `variation` stands for; equal numbers, equal states."""
        mujoco.mj_resetData(self.model, self.data)
        self._load_arrays(self._pristine_arrays)
        self._env.__dict__.update(_copy_attributes(self._pristine_attributes))
        mujoco.mj_forward(self.model, self.data)
        self._env.seed(variation)
        self._env._skip_settling = True
        self._env.reset()
        self._loaded_arrays = tuple(array.copy() for array in self._arrays)
        self._loaded_attributes = self._attributes()
        return self.save()

    def load(self, snapshot: Snapshot) -> None:
        """Make a snapshot the current state; `step` may follow."""
        self._load_arrays(snapshot.model_arrays)
        self._env.__dict__.update(snapshot.attributes)
        self._loaded_attributes = snapshot.attributes
        mujoco.mj_setState(self.model, self.data, snapshot.physics, _STATE)

    def save(self) -> Snapshot:
        """Return the current state."""
        physics = np.empty(self._state_size)
        mujoco.mj_getState(self.model, self.data, physics, _STATE)
        # Steps under a success rule change no attribute.
        attributes = self._attributes() if self._rule is None else self._loaded_attributes
        return Snapshot(physics, self._loaded_arrays, attributes)

    def refresh(self) -> None:
        """Recompute positions, so that `state` and a picture show what `load` or `start` set."""
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_comPos(self.model, self.data)
        mujoco.mj_camlight(self.model, self.data)

    def step(self, action: np.ndarray) -> tuple[float, bool]:
        """Execute `action` float32 [4]; returns (dense reward, solved at this step).

        The reward is 0 unless the world was made with `dense`.
        """
        if self._rule is None:
            _, reward, _, _, info = self._env.step(action)
            return float(reward) if self._dense else 0.0, bool(info["success"])
        env = self._env
        # What SawyerXYZEnv.step does, without observations and reward. The mj_forward is no waste:
        # it leaves the solver's warm start, which the next step depends on.
        target = self._mocap_pos + np.clip(action[:3], -1, 1) * env.action_scale
        np.minimum(np.maximum(target, env.mocap_low, out=target), env.mocap_high, out=target)
        self._mocap_pos[:] = target
        self._ctrl[0] = action[3]
        self._ctrl[1] = -action[3]
        mujoco.mj_step(self.model, self.data, nstep=env.frame_skip)
        mujoco.mj_forward(self.model, self.data)
        return 0.0, bool(self._rule(env))

    def state(self) -> np.ndarray:
        """Return the current state vector, float32 [STATE_DIM]."""
        state = np.zeros(STATE_DIM, np.float32)
        objects = self._env._get_pos_objects()
        state[:3] = self._hand
        state[3] = self._gripper()
        state[4 : 4 + len(objects)] = objects
        state[10:] = self._env._get_pos_goal()
        return state

    def expert(self) -> Expert:
        """Return the task's scripted expert, at the start of an episode."""
        return Expert(ENV_POLICY_MAP[self.name](), self._observation())

    def act(self, expert: Expert) -> np.ndarray:
        """Return the expert's action here, float32 [4] in [-1, 1]."""
        current = self._observation()
        goal = self._env._get_pos_goal()
        observation = np.hstack((current, expert.previous, goal))
        expert.previous = current
        with warnings.catch_warnings():
            # Experts overshoot on purpose and say so at every step.
            warnings.simplefilter("ignore")
            action = expert.policy.get_action(observation)
        return np.clip(action, -1.0, 1.0).astype(np.float32)

    def close(self) -> None:
        """Free the physics."""
        self._env.close()

    def _observation(self) -> np.ndarray:
        """Return Meta-World's observation of one moment, float64 [18]; quaternions are zero.

        No expert uses them, and they cost more than the physics of a step.
        """
        observation = np.zeros(18)
        observation[:3] = self._hand
        observation[3] = self._gripper()
        for index, position in enumerate(self._env._get_pos_objects().reshape(-1, 3)):
            observation[4 + 7 * index : 7 + 7 * index] = position
        return observation

    def _gripper(self) -> float:
        opening = np.linalg.norm(self._right_claw - self._left_claw) / 0.1
        return min(max(float(opening), 0.0), 1.0)

    def _show_goal(self) -> None:
        """Make the goal visible, seeds effective and the step limit ours.

        The observation space is cached with a goal of zero bounds, to which `step` would clip the
        goal; it has to be dropped together with the flag.
        """
        env = self._env
        env._partially_observable = False
        env.__dict__.pop("sawyer_observation_space", None)
        env._freeze_rand_vec = False
        env.seeded_rand_vec = True
        env._set_task_called = True
        env.max_path_length = np.iinfo(np.int64).max

    def _attributes(self) -> dict[str, Any]:
        return {k: v for k, v in self._env.__dict__.items() if k not in _NOT_ATTRIBUTES}

    def _load_arrays(self, arrays: tuple[np.ndarray, ...]) -> None:
        if arrays is self._loaded_arrays:
            return
        for array, saved in zip(self._arrays, arrays, strict=True):
            array[:] = saved
        self._loaded_arrays = arrays


@dataclass
class Expert:
    """A scripted policy and the observation before the current one."""

    policy: Any
    previous: np.ndarray
