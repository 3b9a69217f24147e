"""`type: libero`: 130 household tasks of a Panda arm (robosuite, MuJoCo).

The config is here; the simulator itself comes with a later version. Actions: hand xyz and rotation
displacement, gripper closing, each in [-1, 1]. State: hand position 3, axis-angle 3, fingers 2.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from joyrlinf_core.config.schema import EnvConfig, EpisodeId
from joyrlinf_core.config.schema.base import MAX_COUNT
from joyrlinf_core.envs import opengl
from joyrlinf_core.envs.libero_sim.tasks import SUITES, TRIALS, instruction
from joyrlinf_core.errors import EnvironmentNotReadyError
from joyrlinf_core.seeding import stream

if TYPE_CHECKING:
    from joyrlinf_core.envs.base import Simulator

_TRAINING = range(40)
_EVAL_TRIALS = {"heldout": range(40, TRIALS), "all": range(TRIALS)}
_FIRST_SEED = 1000
_SEEDS = 2**31 - 1 - _FIRST_SEED
"""Variations from `_FIRST_SEED` on are simulator seeds, not stored initial states."""


class LiberoConfig(EnvConfig):
    """LIBERO."""

    type: Literal["libero"]
    """Simulator."""

    max_episode_steps: int = Field(default=512, ge=1, le=MAX_COUNT)
    """Time limit of an episode in env steps. Usual: spatial and object 240, goal 320, libero_10
    480, libero_90 and libero_130 512."""

    suite: Literal[
        "libero_spatial",
        "libero_object",
        "libero_goal",
        "libero_10",
        "libero_90",
        "libero_130",
    ] = "libero_spatial"
    """Task suite; libero_10 is LIBERO-Long, libero_130 all of them together."""

    task_id_filter: tuple[int, ...] | None = Field(default=None, min_length=1)
    """Tasks of the suite to play, by number from 0. None: all."""

    image_size: int = Field(default=256, ge=16, le=1024)
    """Height and width of a picture in pixels; pictures are upright."""

    wrist_camera: bool = True
    """Also look through the wrist camera."""

    use_step_penalty: bool = False
    """Take 1 off the reward of every step."""

    use_rel_reward: bool = True
    """Give the change of the reward: a success counts once, not at every step that it lasts."""

    reset_gripper_open: bool = True
    """Open the gripper while the scene settles after a reset."""

    settle_steps: int = Field(default=15, ge=0, le=MAX_COUNT)
    """Steps without motion after a reset, until things lie still."""

    use_ordered_reset_state_ids: bool = False
    """Each group plays all training states of a task before one comes again."""

    eval_split: Literal["heldout", "all"] = "heldout"
    """Stored states that evaluation plays: the last 10 of each task, which training never sees, or
    all 50, as most published results do; training plays 40 of these."""

    renderer: opengl.Renderer = "auto"
    """OpenGL library. `auto` takes `MUJOCO_GL` where set, else what works."""

    render_quality: Literal["full", "light"] = "full"
    """`light` draws no shadows and no smooth edges, twice as fast on a CPU; policies were trained
    on `full`."""

    missing_runtime: ClassVar[str] = "env type 'libero' can be planned in this version, but not run"
    """See `EnvConfig`."""

    schedule_keys: ClassVar[frozenset[str]] = EnvConfig.schedule_keys | {
        "eval_split",
        "use_ordered_reset_state_ids",
    }
    """See `EnvConfig`."""

    @field_validator("task_id_filter")
    @classmethod
    def _tasks_exist(
        cls, tasks: tuple[int, ...] | None, info: ValidationInfo
    ) -> tuple[int, ...] | None:
        suite = info.data.get("suite")
        if tasks is None or suite is None:
            return tasks
        last = len(SUITES[suite]) - 1
        for task in tasks:
            if not 0 <= task <= last:
                raise ValueError(f"names task {task}, but `suite: {suite}` has tasks 0-{last}")
        if len(set(tasks)) < len(tasks):
            raise ValueError("names a task twice")
        return tasks

    @property
    def task_names(self) -> tuple[str, ...]:
        """Tasks in order, as LIBERO names their files."""
        names = SUITES[self.suite]
        if self.task_id_filter is None:
            return names
        return tuple(names[task] for task in self.task_id_filter)

    @property
    def task_prompts(self) -> tuple[str, ...]:
        """Language instruction of each task."""
        return tuple(instruction(name) for name in self.task_names)

    @property
    def action_dim(self) -> int:
        """Hand x, y, z, rotation and gripper."""
        return 7

    @property
    def state_dim(self) -> int:
        """Hand position, axis-angle, fingers."""
        return 8

    @property
    def image_shape(self) -> tuple[int, int, int, int]:
        """One camera, or two with the wrist's."""
        return (2 if self.wrist_camera else 1, self.image_size, self.image_size, 3)

    @property
    def largest_return(self) -> float:
        """`reward_coef`, once or at every step."""
        steps = 1 if self.use_rel_reward else self.max_episode_steps
        return self.reward_coef * steps

    @property
    def num_eval_episodes_available(self) -> int:
        """States of `eval_split` over all tasks."""
        return len(_EVAL_TRIALS[self.eval_split]) * len(self.task_names)

    def train_episode(self, seed: int, group: int, k: int) -> EpisodeId:
        """Return the k-th episode of a group; consecutive groups play the tasks in turn."""
        count = len(self.task_names)
        task = (group + k) % count
        if not self.use_ordered_reset_state_ids:
            trial = _TRAINING[stream(seed, "train", group, k) % len(_TRAINING)]
            return EpisodeId(task, trial)
        visit = k // count
        around, nth = divmod(visit, len(_TRAINING))
        chosen = stream(seed, "order", group, task, around)
        step = _coprime(chosen % len(_TRAINING), len(_TRAINING))
        return EpisodeId(task, _TRAINING[(chosen + nth * step) % len(_TRAINING)])

    def eval_episode(self, index: int) -> EpisodeId:
        """Return the `index`-th episode of `eval_split`; episode i plays task i mod tasks."""
        nth, task = divmod(index, len(self.task_names))
        trials = _EVAL_TRIALS[self.eval_split]
        return EpisodeId(task, trials[nth % len(trials)])

    def demo_episode(self, seed: int, index: int) -> EpisodeId:
        """Return the `index`-th demonstration: a state drawn by the simulator, none of the 50."""
        start = stream(seed, "demo") % _SEEDS
        return EpisodeId(index % len(self.task_names), _FIRST_SEED + (start + index) % _SEEDS)

    def build(self, num_slots: int) -> Simulator:
        """See `EnvConfig.build`; refuses in this version."""
        del num_slots
        raise self._not_there_yet()

    def check_ready(self) -> str:
        """See `EnvConfig.check_ready`; refuses in this version."""
        raise self._not_there_yet()

    def _not_there_yet(self) -> EnvironmentNotReadyError:
        return EnvironmentNotReadyError(
            self.missing_runtime, fix="joyrl presets list shows what runs"
        )


def _coprime(start: int, count: int) -> int:
    """Return the first number from `start` on that shares no factor with `count`."""
    return next(n for n in range(max(start, 1), start + count + 1) if gcd(n, count) == 1)


Config = LiberoConfig
