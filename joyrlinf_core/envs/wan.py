"""`type: wan`: LIBERO in a learned video world model (Wan 2.2) with a learned reward.

The config is here; the world model itself comes with a later version. It imagines the next chunk of
pictures from the last ones and the actions; there is no state and no wrist camera. Actions: as in
LIBERO.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from joyrlinf_core.config.schema import EnvConfig, EpisodeId
from joyrlinf_core.config.schema.base import MAX_COUNT
from joyrlinf_core.envs import reset_states
from joyrlinf_core.envs.libero_sim.tasks import SUITES, instruction
from joyrlinf_core.errors import EnvironmentNotReadyError
from joyrlinf_core.seeding import stream

if TYPE_CHECKING:
    from joyrlinf_core.envs.base import Simulator

_VAE_STRIDE = 4
"""Frames that become one latent frame, after the first."""

_FEWEST_STATES = 4
"""Reset states of a task from which every use has one."""


class WanConfig(EnvConfig):
    """Wan world model."""

    type: Literal["wan"]
    """Simulator."""

    max_episode_steps: int = Field(default=256, ge=1, le=MAX_COUNT)
    """Time limit of an episode in env steps."""

    suite: Literal["libero_spatial", "libero_object", "libero_goal"] = "libero_spatial"
    """LIBERO suite that the world model was trained on."""

    world_model_path: str | None = None
    """Directory of the world model: `model-00001.safetensors` and `Wan2.2_VAE.pth`."""

    dataset_path: str | None = None
    """Directory of the trajectories (`.npy`) whose first frames episodes start from."""

    num_reset_states: int = Field(default=1500, ge=1, le=MAX_COUNT)
    """Trajectories in `dataset_path`, over all tasks."""

    reward_model: Literal["resnet", "task_resnet"] = "resnet"
    """Success classifier of a frame: one for all tasks, or one that is told the task."""

    reward_model_path: str | None = None
    """Weights of the success classifier."""

    success_reward_threshold: float = Field(default=0.9, gt=0, le=1)
    """An episode ends in success where the classifier's output reaches this."""

    use_rel_reward: bool = True
    """Give the change of the classifier's output, not the output."""

    chunk: int = Field(default=8, ge=1, le=MAX_COUNT)
    """Frames that one call imagines, one an action; the policy's `num_action_chunks`."""

    condition_frame_length: int = Field(default=5, ge=1, le=MAX_COUNT)
    """Frames that one call is given: the reference frame and the last ones."""

    num_frames: int = Field(default=13, ge=1, le=MAX_COUNT, validate_default=True)
    """Frames of one call of the world model: `condition_frame_length` + `chunk`."""

    image_size: int = Field(default=256, ge=16, le=1024)
    """Height and width of a frame in pixels."""

    num_inference_steps: int = Field(default=5, ge=1, le=MAX_COUNT)
    """Denoise steps of the world model; 3 or 1 are faster and less sharp."""

    cfg_scale: float = Field(default=1.0, ge=0)
    """Classifier-free guidance; 1 has none."""

    retain_action: bool = True
    """Also tell the world model the actions of the frames it is given."""

    enable_kir: bool = False
    """Start some episodes near a decisive moment (`*_kir` files of the data set)."""

    reset_gripper_open: bool = True
    """The remembered actions of a fresh episode open the gripper."""

    enable_offload: bool = True
    """Move the world model to host memory while the policy learns."""

    infer_micro_batch_size: int = Field(default=0, ge=0, le=MAX_COUNT)
    """Rows per call of the world model and of the policy; 0 takes all envs of a stage at once."""

    missing_runtime: ClassVar[str] = "env type 'wan' can be planned in this version, but not run"
    """See `EnvConfig`."""

    @field_validator("num_frames")
    @classmethod
    def _frames_add_up(cls, frames: int, info: ValidationInfo) -> int:
        chunk, condition = info.data.get("chunk"), info.data.get("condition_frame_length")
        if chunk is None or condition is None:
            return frames  # their own findings come first
        total = chunk + condition
        if (total - 1) % _VAE_STRIDE:
            near = _chunk_that_fits(chunk, condition)
            raise ValueError(
                f"must be `chunk` + `condition_frame_length`, and 1 + a multiple of {_VAE_STRIDE}, "
                f"which the video autoencoder takes; {chunk} + {condition} = {total} is not; use "
                f"chunk {near} and num_frames {near + condition}"
            )
        if frames != total:
            raise ValueError(
                f"must be `chunk` + `condition_frame_length` = {chunk} + {condition} = {total}; "
                f"use num_frames {total}"
            )
        return frames

    @field_validator("num_reset_states")
    @classmethod
    def _every_use_has_states(cls, count: int, info: ValidationInfo) -> int:
        suite = info.data.get("suite")
        if suite is None:
            return count  # its own finding comes first
        tasks = len(SUITES[suite])
        if count // tasks < _FEWEST_STATES:
            raise ValueError(
                f"over the {tasks} tasks of `suite: {suite}` is {count // tasks} a task; training, "
                f"evaluation and demonstrations share them and need {_FEWEST_STATES}; use "
                f"{_FEWEST_STATES * tasks} or more"
            )
        return count

    @property
    def task_prompts(self) -> tuple[str, ...]:
        """Language instruction of each task."""
        return tuple(instruction(name) for name in SUITES[self.suite])

    @property
    def action_dim(self) -> int:
        """Hand x, y, z, rotation and gripper."""
        return 7

    @property
    def state_dim(self) -> int:
        """As many zeros: a world model has no state."""
        return 16

    @property
    def image_shape(self) -> tuple[int, int, int, int]:
        """(1, image_size, image_size, 3)."""
        return (1, self.image_size, self.image_size, 3)

    @property
    def largest_return(self) -> float:
        """`reward_coef`, once or at every step."""
        steps = 1 if self.use_rel_reward else self.max_episode_steps
        return self.reward_coef * steps

    @property
    def states_per_task(self) -> int:
        """Trajectories of each task."""
        return self.num_reset_states // self._tasks

    @property
    def num_eval_episodes_available(self) -> int:
        """Held-out trajectories of all tasks."""
        return reset_states.size("heldout", self.states_per_task) * self._tasks

    def train_episode(self, seed: int, group: int, k: int) -> EpisodeId:
        """Return the k-th episode of a group; consecutive groups play the tasks in turn."""
        index = stream(seed, "train", group, k)
        return self._episode(group + k, "train", index)

    def eval_episode(self, index: int) -> EpisodeId:
        """Return the `index`-th held-out episode; episode i plays task i mod tasks."""
        return self._episode(index, "heldout", index // self._tasks)

    def demo_episode(self, seed: int, index: int) -> EpisodeId:
        """Return the `index`-th demonstration."""
        nth = stream(seed, "demo") % self.states_per_task + index // self._tasks
        return self._episode(index, "demo", nth)

    def build(self, num_slots: int) -> Simulator:
        """See `EnvConfig.build`; refuses in this version."""
        del num_slots
        raise self._not_there_yet()

    def check_ready(self) -> str:
        """See `EnvConfig.check_ready`; refuses in this version."""
        raise self._not_there_yet()

    @property
    def _tasks(self) -> int:
        return len(SUITES[self.suite])

    def _episode(self, turn: int, use: reset_states.Use, nth: int) -> EpisodeId:
        task = turn % self._tasks
        return EpisodeId(task, reset_states.state(use, nth, self.states_per_task))

    def _not_there_yet(self) -> EnvironmentNotReadyError:
        return EnvironmentNotReadyError(
            self.missing_runtime, fix="joyrl presets list shows what runs"
        )


def _chunk_that_fits(chunk: int, condition: int) -> int:
    """Return the nearest chunk whose frames the video autoencoder takes, the longer of two."""
    over = (chunk + condition - 1) % _VAE_STRIDE
    down, up = chunk - over, chunk + _VAE_STRIDE - over
    return down if down >= 1 and over < _VAE_STRIDE - over else up


Config = WanConfig
