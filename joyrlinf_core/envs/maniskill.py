"""`type: maniskill`: GPU or CPU simulated manipulation (PyPI `mani_skill`, SAPIEN).

The config is here; the simulator itself comes with a later version. State: joint positions. Actions
of WidowX tasks: hand xyz and rotation displacement, gripper; of Panda tasks: see `policy_setup`.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from joyrlinf_core.config.schema import EnvConfig, EpisodeId
from joyrlinf_core.config.schema.base import MAX_COUNT
from joyrlinf_core.envs import reset_states
from joyrlinf_core.envs.maniskill_sim.tasks import (
    ACTION_DIMS,
    CONTROL_MODES,
    OBJECT_SETS,
    OBJECTS,
    PLACES,
    PUT_ON_PLATE,
    STATE_DIMS,
    TASKS,
    ObjectSet,
    PolicySetup,
    Robot,
)
from joyrlinf_core.errors import EnvironmentNotReadyError
from joyrlinf_core.seeding import stream

if TYPE_CHECKING:
    from joyrlinf_core.envs.base import Simulator

_SEEDS = 2**31 - 1
"""Simulator seeds, where a task has no numbered reset states."""

_STAGED_RETURN = 0.1 + 0.1 + 1.0
"""First grasp, held grasp, success."""


class ManiSkillConfig(EnvConfig):
    """ManiSkill."""

    type: Literal["maniskill"]
    """Simulator."""

    max_episode_steps: int = Field(default=80, ge=1, le=MAX_COUNT)
    """Time limit of an episode in env steps."""

    instruction: str | None = None
    """Language instruction. None: the task's own."""

    policy_setup: PolicySetup | None = None
    """Robot and meaning of an action; chooses control mode and gripper mapping. None:
    `widowx_bridge` for WidowX tasks, `panda-ee-dpose` for Panda tasks."""

    task_id: str = Field(default=PUT_ON_PLATE, validate_default=True)
    """A registered ManiSkill task, for example `PickCube-v1`. One that joyrl does not know needs
    `instruction` and `policy_setup`."""

    obj_set: Literal["train", "test", "all"] | None = None
    """Objects and table pictures of `PutOnPlateInScene25Main-v3`: 16 and 16 for training, 9 and 5
    that training never shows, or all 25 and 21. None: train."""

    control_mode: str | None = None
    """Control mode of the simulator. None: that of `policy_setup`."""

    image_height: int | None = Field(default=None, ge=16, le=2048)
    """Height of a picture in pixels. None: 480 in bridge scenes (WidowX), else 128."""

    image_width: int | None = Field(default=None, ge=16, le=2048)
    """Width of a picture in pixels. None: 640 in bridge scenes (WidowX), else 128."""

    wrist_camera: bool = False
    """Also look through the robot's wrist camera, where the task has one."""

    reward_mode: Literal["staged", "success", "dense"] | None = None
    """`staged`: 0.1 for the first grasp, 0.1 for holding it 5 steps, 1 for success, each once.
    `success`: `reward_coef` at the first step that solves the task. `dense`: the task's own shaped
    reward at each step, normalised to at most 1. None: staged for WidowX tasks, else success."""

    use_fixed_reset_state_ids: bool = True
    """All envs of a group start from one state, as GRPO needs. False makes sense for groups of
    1 only."""

    eval_split: Literal["heldout", "selection"] = "heldout"
    """Initial states of evaluation: `heldout` for results to report, `selection` for choosing
    settings. No state is in both, and none of either is trained on."""

    sim_backend: Literal["auto", "physx_cpu", "physx_cuda"] = "auto"
    """Physics: `physx_cuda` steps all envs of a rank in one batch on its GPU, `physx_cpu` runs one
    env after the other in `num_workers` processes. `auto` takes the GPU where it can be used."""

    render_backend: Literal["auto", "sapien_cpu", "sapien_cuda"] = "auto"
    """Renderer. `auto` takes the GPU where there is one."""

    assets_dir: str | None = None
    """Folder of downloaded assets. None: `MS_ASSET_DIR` where set, else ManiSkill's own."""

    enable_offload: bool = False
    """Give the simulator's GPU memory back while the policy learns; for co-located runs."""

    missing_runtime: ClassVar[str] = (
        "env type 'maniskill' can be planned in this version, but not run"
    )
    """See `EnvConfig`."""

    schedule_keys: ClassVar[frozenset[str]] = EnvConfig.schedule_keys | {"eval_split"}
    """See `EnvConfig`."""

    @field_validator("task_id")
    @classmethod
    def _task_is_described(cls, task_id: str, info: ValidationInfo) -> str:
        task, setup = TASKS.get(task_id), info.data.get("policy_setup")
        if task is None:
            keys = ("instruction", "policy_setup")
            lacking = " and ".join(f"`{key}`" for key in keys if info.data.get(key) is None)
            if lacking:
                near = difflib.get_close_matches(task_id, TASKS, n=1)
                hint = f"did you mean '{near[0]}'? Else " if near else ""
                raise ValueError(f"is no task that joyrl knows; {hint}set {lacking} as well")
        elif setup is not None and _robot_of(setup) != task.robot:
            fits = ", ".join(name for name in CONTROL_MODES if _robot_of(name) == task.robot)
            raise ValueError(f"has a {task.robot}, and `policy_setup: {setup}` has not; use {fits}")
        return task_id

    @field_validator("control_mode")
    @classmethod
    def _control_mode_is_known(cls, mode: str | None) -> str | None:
        if mode is not None and mode not in ACTION_DIMS:
            near = difflib.get_close_matches(mode, ACTION_DIMS, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(ACTION_DIMS)}"
            raise ValueError(f"is no control mode; {hint}")
        return mode

    @field_validator("wrist_camera")
    @classmethod
    def _wrist_camera_exists(cls, wanted: bool, info: ValidationInfo) -> bool:  # noqa: FBT001
        task = TASKS.get(info.data.get("task_id", ""))
        if wanted and task is not None and not task.wrist_camera:
            have = ", ".join(name for name, other in TASKS.items() if other.wrist_camera)
            raise ValueError(f"needs a `task_id` whose robot has a wrist camera: {have}")
        return wanted

    @field_validator("reward_mode")
    @classmethod
    def _stages_exist(cls, mode: str | None, info: ValidationInfo) -> str | None:
        task = TASKS.get(info.data.get("task_id", ""))
        if mode == "staged" and task is not None and task.robot != "widowx":
            raise ValueError(
                "is for the put-on tasks of the WidowX, not for `task_id: "
                f"{info.data['task_id']}`; use success or dense"
            )
        return mode

    @property
    def robot(self) -> Robot:
        """Robot of the task."""
        if self.policy_setup is not None:
            return _robot_of(self.policy_setup)
        return TASKS[self.task_id].robot

    @property
    def setup(self) -> PolicySetup:
        """`policy_setup`, chosen."""
        if self.policy_setup is not None:
            return self.policy_setup
        return "widowx_bridge" if self.robot == "widowx" else "panda-ee-dpose"

    @property
    def objects(self) -> ObjectSet:
        """Objects and table pictures of `PutOnPlateInScene25Main-v3`."""
        return OBJECT_SETS[self.obj_set or "train"]

    @property
    def task_prompts(self) -> tuple[str, ...]:
        """One instruction, or one an object of `PutOnPlateInScene25Main-v3`."""
        if self.instruction is not None:
            return (self.instruction,)
        if self.task_id == PUT_ON_PLATE:
            return tuple(f"put {OBJECTS[index]} on plate" for index in self.objects.objects)
        return (TASKS[self.task_id].prompt,)

    @property
    def action_dim(self) -> int:
        """Dimensions of the control mode, the gripper last."""
        return ACTION_DIMS[self.control_mode or CONTROL_MODES[self.setup]]

    @property
    def state_dim(self) -> int:
        """Joint positions, fingers included."""
        return STATE_DIMS[self.robot]

    @property
    def image_shape(self) -> tuple[int, int, int, int]:
        """One camera, or two with the wrist's."""
        height, width = (480, 640) if self.robot == "widowx" else (128, 128)
        return (
            2 if self.wrist_camera else 1,
            self.image_height or height,
            self.image_width or width,
            3,
        )

    @property
    def largest_return(self) -> float:
        """`reward_coef` times 1 for success, 1.2 for all stages, or 1 a step."""
        most = {
            "success": 1.0,
            "staged": _STAGED_RETURN,
            "dense": float(self.max_episode_steps),
        }
        default = "staged" if self.robot == "widowx" else "success"
        return self.reward_coef * most[self.reward_mode or default]

    @property
    def states_per_task(self) -> int:
        """Reset states of each task: table picture x positions x orientation, or a seed."""
        if self.task_id == PUT_ON_PLATE:
            return len(self.objects.overlays) * PLACES
        return _SEEDS

    @property
    def num_eval_episodes_available(self) -> int:
        """States of `eval_split` over all tasks."""
        return reset_states.size(self.eval_split, self.states_per_task) * len(self.task_prompts)

    def train_episode(self, seed: int, group: int, k: int) -> EpisodeId:
        """Return the k-th episode of a group; consecutive groups play the tasks in turn."""
        index = stream(seed, "train", group, k)
        return self._episode(group + k, reset_states.state("train", index, self.states_per_task))

    def eval_episode(self, index: int) -> EpisodeId:
        """Return the `index`-th episode of `eval_split`; episode i plays task i mod tasks."""
        nth = index // len(self.task_prompts)
        return self._episode(index, reset_states.state(self.eval_split, nth, self.states_per_task))

    def demo_episode(self, seed: int, index: int) -> EpisodeId:
        """Return the `index`-th demonstration."""
        nth = stream(seed, "demo") % self.states_per_task + index // len(self.task_prompts)
        return self._episode(index, reset_states.state("demo", nth, self.states_per_task))

    def build(self, num_slots: int) -> Simulator:
        """See `EnvConfig.build`; refuses in this version."""
        del num_slots
        raise self._not_there_yet()

    def check_ready(self) -> str:
        """See `EnvConfig.check_ready`; refuses in this version."""
        raise self._not_there_yet()

    def _episode(self, turn: int, variation: int) -> EpisodeId:
        return EpisodeId(turn % len(self.task_prompts), variation)

    def _not_there_yet(self) -> EnvironmentNotReadyError:
        return EnvironmentNotReadyError(
            self.missing_runtime, fix="joyrl presets list shows what runs"
        )


def _robot_of(setup: PolicySetup) -> Robot:
    return "widowx" if setup == "widowx_bridge" else "panda"


Config = ManiSkillConfig
