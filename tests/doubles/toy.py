"""A simulator and a policy family that are only config classes, for tests of config and plan."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from joyrlinf_core.config.schema import EnvConfig, EpisodeId, ModelConfig


class ToyEnv(EnvConfig):
    """Env section of the double."""

    tasks: tuple[str, ...] = ("reach",)
    """Tasks."""

    image_size: int = 8
    """Pixels."""

    reward_mode: Literal["success", "dense"] = "success"
    """Reward."""

    @property
    def task_prompts(self) -> tuple[str, ...]:
        return self.tasks

    @property
    def action_dim(self) -> int:
        return 4

    @property
    def state_dim(self) -> int:
        return 3

    @property
    def image_shape(self) -> tuple[int, int, int, int]:
        return (1, self.image_size, self.image_size, 3)

    @property
    def largest_return(self) -> float | None:
        return self.reward_coef if self.reward_mode == "success" else None

    def train_episode(self, seed: int, group: int, k: int) -> EpisodeId:
        return EpisodeId(0, seed + group + k)

    def eval_episode(self, index: int) -> EpisodeId:
        return EpisodeId(0, index)

    def demo_episode(self, seed: int, index: int) -> EpisodeId:
        return EpisodeId(0, seed + index)

    def build(self, num_slots: int):
        raise NotImplementedError

    def check_ready(self) -> str:
        return "toy"


class ToyModel(ModelConfig):
    """Policy section of the double."""

    width: int = 16
    """Width."""

    def create(self, env, stats, *, seed: int):
        raise NotImplementedError

    def load(self, directory: Path):
        raise NotImplementedError

    def check_directory(self, directory: Path) -> list[str]:
        return [] if (directory / "weights").exists() else ["weights"]


class PlannedEnv(ToyEnv):
    """A simulator that can be planned but not run."""

    missing_runtime: ClassVar[str] = "env type 'planned' can be planned, but not run"


class PlannedModel(ToyModel):
    """A policy family that can be planned but not run."""

    missing_runtime: ClassVar[str] = "policy 'planned' can be planned, but not run"


TOY_YAML = """\
runner:
  max_steps: 4
algorithm:
  group_size: 8
env:
  train:
    type: tests.doubles.toy:ToyEnv
    total_num_envs: 80
    max_episode_steps: 80
  eval:
    total_num_envs: 40
rollout:
  pipeline_stage_num: 1
actor:
  micro_batch_size: 32
  gradient_accumulation_steps: 2
  model:
    model_type: tests.doubles.toy:ToyModel
    num_action_chunks: 10
sft:
  steps: 10
"""
