"""`env`: base class of every simulator's section; the simulator's own file adds its keys."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from pydantic import Field

from joyrlinf_core.config.schema.base import MAX_COUNT, Section

if TYPE_CHECKING:
    from joyrlinf_core.envs.base import Simulator


class EpisodeId(NamedTuple):
    """What an episode starts from: which task, and which initial state of it."""

    task: int
    """Index into the env's task list."""

    variation: int
    """Initial state: a simulator seed (Meta-World), a trial (LIBERO), a reset id (ManiSkill)."""


class EnvConfig(Section):
    """Keys that every simulator has.

    A subclass lives in the simulator's file, narrows `type` to a `Literal` of the file's name and
    implements the abstract methods. Its module imports neither torch nor the simulator at module
    level.
    """

    type: str
    """Simulator: a file of `envs/`, an entry point, or `pkg.module:Attr`."""

    total_num_envs: int = Field(ge=1, le=MAX_COUNT)
    """E: environments of all ranks together."""

    max_episode_steps: int = Field(ge=1, le=MAX_COUNT)
    """Time limit of an episode in env steps."""

    max_steps_per_rollout_epoch: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Env steps of one rollout epoch; T = this / C. None: `max_episode_steps`."""

    rollout_epoch: int = Field(default=1, ge=1, le=MAX_COUNT)
    """R: rollout epochs per training step."""

    num_episodes: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Evaluation only: fixed held-out episodes, each played once. None: total_num_envs *
    rollout_epoch."""

    auto_reset: bool = False
    """Reset finished envs at the chunk boundary and let the simulation go on across training
    steps."""

    ignore_terminations: bool = False
    """Success does not end an episode; only the time limit does."""

    num_workers: int = Field(default=1, ge=0, le=MAX_COUNT)
    """Simulator processes per rank and pipeline stage; 0 steps in the rank's own process."""

    infer_micro_batch_size: int = Field(default=0, ge=0, le=MAX_COUNT)
    """Rows per policy call in rollout; 0 takes all envs of a stage at once."""

    reward_coef: float = Field(default=1.0, gt=0)
    """Factor on the reward; a success then returns this much."""

    missing_runtime: ClassVar[str] = ""
    """Why this simulator can be planned but not run in this version; empty: it runs."""

    schedule_keys: ClassVar[frozenset[str]] = frozenset(
        {
            "total_num_envs",
            "max_steps_per_rollout_epoch",
            "rollout_epoch",
            "num_episodes",
            "auto_reset",
            "num_workers",
            "infer_micro_batch_size",
        }
    )
    """Keys that say which episodes are played and where, not how one goes. A subclass that has more
    of them adds their names."""

    @property
    def simulator_settings(self) -> dict[str, Any]:
        """Every key that changes an episode; equal settings need no simulators of their own."""
        return self.model_dump(exclude=set(self.schedule_keys))

    @property
    def steps_per_epoch(self) -> int:
        """Env steps of one rollout epoch."""
        return self.max_steps_per_rollout_epoch or self.max_episode_steps

    @property
    @abstractmethod
    def task_prompts(self) -> tuple[str, ...]:
        """Language instruction of each task, in task order; its length is the number of tasks."""

    @property
    @abstractmethod
    def action_dim(self) -> int:
        """D: dimensions of one action."""

    @property
    @abstractmethod
    def state_dim(self) -> int:
        """Length of the proprioceptive state vector."""

    @property
    @abstractmethod
    def image_shape(self) -> tuple[int, int, int, int]:
        """(V, H, W, 3): cameras, height, width, channels of one observation."""

    @property
    def largest_return(self) -> float | None:
        """Largest return of an episode, `reward_coef` included; None where nothing bounds it."""
        return None

    @property
    def num_eval_episodes_available(self) -> int | None:
        """Held-out episodes that `eval_episode` can tell apart; None where nothing bounds them."""
        return None

    @abstractmethod
    def train_episode(self, seed: int, group: int, k: int) -> EpisodeId:
        """Return what the k-th episode of a group starts from.

        A pure function; disjoint from evaluation.
        """

    @abstractmethod
    def eval_episode(self, index: int) -> EpisodeId:
        """Return what the `index`-th held-out episode starts from."""

    @abstractmethod
    def demo_episode(self, seed: int, index: int) -> EpisodeId:
        """Return what the `index`-th demonstration starts from.

        Disjoint from training and evaluation.
        """

    @abstractmethod
    def build(self, num_slots: int) -> Simulator:
        """Build `num_slots` environments in this process.

        Raises:
            MissingExtraError: The simulator's package is not installed.
            EnvironmentNotReadyError: It is, but can't run here (no OpenGL, missing asset).
        """

    @abstractmethod
    def check_ready(self) -> str:
        """Check quickly that the simulator can run here; return what was chosen (renderer).

        Raises:
            MissingExtraError: The simulator's package is not installed.
            EnvironmentNotReadyError: Something else is missing; the error names it and its fix.
        """
