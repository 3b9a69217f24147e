"""`type: metaworld`: 50 table-top manipulation tasks of a Sawyer arm (PyPI `metaworld`, MuJoCo).

The config is here, what runs is in `metaworld_sim/`. Actions: hand xyz displacement and gripper
closing, each in [-1, 1]. State: see `STATE_DIM` in `metaworld_sim/world.py`; the goal is part of
it. One camera.
"""

from __future__ import annotations

import difflib
import importlib.util
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator

from joyrlinf_core.config.schema import EnvConfig, EpisodeId
from joyrlinf_core.config.schema.base import MAX_COUNT
from joyrlinf_core.envs import opengl
from joyrlinf_core.envs.metaworld_sim.tasks import PROMPTS, TASK_SETS, expand
from joyrlinf_core.errors import MissingExtraError
from joyrlinf_core.seeding import stream

if TYPE_CHECKING:
    from joyrlinf_core.envs.metaworld_sim.simulator import MetaWorldSimulator

# Simulator seeds of each use; the ranges do not touch.
_DEMONSTRATIONS = range(1_000_000, 8_000_000)
_SELECTION = range(8_000_000, 9_000_000)
_HELD_OUT = range(9_000_000, 10_000_000)
_TRAINING = range(10_000_000, 2_000_000_000)


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class MetaWorldConfig(EnvConfig):
    """Meta-World."""

    type: Literal["metaworld"]
    """Simulator."""

    max_episode_steps: int = Field(default=100, ge=1, le=MAX_COUNT)
    """Time limit of an episode in env steps; most scripted experts need 40-90."""

    tasks: Annotated[
        tuple[str, ...],
        BeforeValidator(_listed, json_schema_input_type=str | tuple[str, ...]),
        Field(min_length=1),
    ] = ("push-v3",)
    """A task such as `push-v3`, a list of tasks, or `MT10` or `MT50`."""

    image_size: int = Field(default=64, ge=16, le=1024)
    """Height and width of the picture in pixels."""

    camera: Literal[
        "corner", "corner2", "corner3", "corner4", "topview", "behindGripper", "gripperPOV"
    ] = "corner2"
    """Camera of the simulator; pictures are upright whichever way it hangs."""

    camera_fovy: float | None = Field(default=None, gt=0, lt=180)
    """Vertical field of view in degrees; 30 doubles the size of things in corner2. None: the
    camera's own (corner2: 60)."""

    render_quality: Literal["light", "full"] = "light"
    """`light` hides the robot's arm (fingers stay) and draws plain colours: a tenth of the time."""

    renderer: opengl.Renderer = "auto"
    """OpenGL library. `auto` takes `MUJOCO_GL` where set, else what works."""

    reward_mode: Literal["success", "dense"] = "success"
    """`success`: `reward_coef` at the first step that solves the task, else 0. `dense`: the
    simulator's shaped reward (0 to 10) at each step; three times slower."""

    eval_split: Literal["heldout", "selection"] = "heldout"
    """Initial states of evaluation: `heldout` for results to report, `selection` for choosing
    settings. No state is in both."""

    schedule_keys: ClassVar[frozenset[str]] = EnvConfig.schedule_keys | {"eval_split"}
    """See `EnvConfig`."""

    @field_validator("tasks")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        known = (*PROMPTS, *TASK_SETS)
        for name in names:
            parts = [part for part in name.replace(",", " ").split() if part]
            if len(parts) > 1 and all(part in known for part in parts):
                raise ValueError(f"is one text; a list is written `[{', '.join(parts)}]`")
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
                hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known)}"
                raise ValueError(f"unknown task '{name}'; {hint}")
        return names

    @property
    def task_names(self) -> tuple[str, ...]:
        """Tasks in order, sets expanded."""
        return expand(self.tasks)

    @property
    def task_prompts(self) -> tuple[str, ...]:
        """Language instruction of each task."""
        return tuple(PROMPTS[name] for name in self.task_names)

    @property
    def action_dim(self) -> int:
        """Hand x, y, z and gripper."""
        return 4

    @property
    def state_dim(self) -> int:
        """See `STATE_DIM` in `metaworld_sim/world.py`."""
        return 13

    @property
    def image_shape(self) -> tuple[int, int, int, int]:
        """(1, image_size, image_size, 3)."""
        return (1, self.image_size, self.image_size, 3)

    @property
    def largest_return(self) -> float:
        """`reward_coef` for the one rewarded step, or the dense reward's 10 at every step."""
        steps = 10.0 * self.max_episode_steps if self.reward_mode == "dense" else 1.0
        return self.reward_coef * steps

    @property
    def num_eval_episodes_available(self) -> int:
        """One per initial state of `eval_split`."""
        return len(self._eval_states)

    @property
    def _eval_states(self) -> range:
        return _HELD_OUT if self.eval_split == "heldout" else _SELECTION

    def train_episode(self, seed: int, group: int, k: int) -> EpisodeId:
        """Return the k-th episode of a group; consecutive groups play the tasks in turn."""
        variation = _TRAINING[stream(seed, "train", group, k) % len(_TRAINING)]
        return EpisodeId((group + k) % len(self.task_names), variation)

    def eval_episode(self, index: int) -> EpisodeId:
        """Return the `index`-th episode of `eval_split`; episode i plays task i mod tasks."""
        return EpisodeId(index % len(self.task_names), self._eval_states[index])

    def demo_episode(self, seed: int, index: int) -> EpisodeId:
        """Return the `index`-th demonstration; the initial states of one seed never repeat."""
        start = stream(seed, "demo") % len(_DEMONSTRATIONS)
        variation = _DEMONSTRATIONS[(start + index) % len(_DEMONSTRATIONS)]
        return EpisodeId(index % len(self.task_names), variation)

    def build(self, num_slots: int) -> MetaWorldSimulator:
        """See `EnvConfig.build`."""
        chosen = self._choose_opengl()
        from joyrlinf_core.envs.metaworld_sim.simulator import MetaWorldSimulator

        return MetaWorldSimulator(self, num_slots, chosen.library)

    def check_ready(self) -> str:
        """See `EnvConfig.check_ready`; returns for example `osmesa (software)`."""
        return str(self._choose_opengl())

    def _choose_opengl(self) -> opengl.OpenGL:
        if importlib.util.find_spec("metaworld") is None:
            raise MissingExtraError("metaworld", "env type 'metaworld'")
        return opengl.choose(self.renderer)


Config = MetaWorldConfig
