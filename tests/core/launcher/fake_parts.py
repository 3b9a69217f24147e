"""Env and model sections of the smallest valid config; nothing in them can be built."""

from typing import Literal

from joyrlinf_core.config.schema import EnvConfig, EpisodeId, ModelConfig


class FakeEnv(EnvConfig):
    type: Literal["fake_parts:FakeEnv"] = "fake_parts:FakeEnv"
    total_num_envs: int = 8
    max_episode_steps: int = 10
    task: str = "push"

    task_prompts = property(lambda self: (self.task,))
    action_dim = property(lambda self: 4)
    state_dim = property(lambda self: 4)
    image_shape = property(lambda self: (1, 8, 8, 3))

    def train_episode(self, seed, group, k):
        return EpisodeId(0, seed + group + k)

    def eval_episode(self, index):
        return EpisodeId(0, index)

    def demo_episode(self, seed, index):
        return EpisodeId(0, seed + index)

    def build(self, num_slots):
        raise NotImplementedError

    def check_ready(self):
        return "fake"


class FakeModel(ModelConfig):
    model_type: Literal["fake_parts:FakeModel"] = "fake_parts:FakeModel"
    width: int = 8

    def create(self, env, stats, *, seed):
        raise NotImplementedError

    def load(self, directory):
        raise NotImplementedError

    def check_directory(self, directory):
        return [] if (directory / "config.json").is_file() else ["config.json"]
