"""Policy: a small network that reads the state and outputs a Gaussian over actions."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from joyrlinf_core.config.schema import EnvConfig, ModelConfig
from joyrlinf_core.errors import CheckpointError
from joyrlinf_core.policies.base import (
    ActionScores,
    Inputs,
    Mode,
    NormStats,
    PolicyOutput,
    Sharding,
)

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

    from joyrlinf_core.batch.observation import Observation

FILES = ("config.json", "model.safetensors")


class Config(ModelConfig):
    """Gaussian policy on the state."""

    width: int = 32
    """Hidden units."""

    std: float = 0.5
    """Standard deviation of the actions."""

    def create(self, env: EnvConfig, stats: NormStats, *, seed: int) -> GaussianPolicy:
        import torch

        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return GaussianPolicy(self, env.state_dim, env.action_dim)

    def load(self, directory: Path) -> GaussianPolicy:
        from safetensors.torch import load_file

        if lacking := self.check_directory(directory):
            raise CheckpointError(f"{directory} lacks {', '.join(lacking)}")
        policy = GaussianPolicy(self, **json.loads((directory / FILES[0]).read_text()))
        policy.module.load_state_dict(load_file(directory / FILES[1]))
        return policy

    def check_directory(self, directory: Path) -> list[str]:
        return [name for name in FILES if not (directory / name).is_file()]


class GaussianPolicy:
    """actions ~ N(network(state), std), C actions at once."""

    ratio_tolerance = 1e-4

    def __init__(self, config: Config, state_dim: int, action_dim: int) -> None:
        from torch import nn

        self.config = config
        self._sizes = {"state_dim": state_dim, "action_dim": action_dim}
        self._shape = (config.num_action_chunks, action_dim)
        self._network = nn.Sequential(
            nn.Linear(state_dim, config.width),
            nn.Tanh(),
            nn.Linear(config.width, math.prod(self._shape)),
        )

    @property
    def module(self) -> nn.Module:
        return self._network

    @property
    def horizon(self) -> int:
        return self.config.num_action_chunks

    def prepare(self, observation: Observation) -> dict[str, Tensor]:
        return {"state": observation.state}

    def draw(self, generator: Generator, n: int) -> dict[str, Tensor]:
        import torch

        return {"noise": torch.randn(n, *self._shape, generator=generator)}

    def predict(self, inputs: Inputs, draws: Mapping[str, Tensor], mode: Mode) -> PolicyOutput:
        mean = self._mean(inputs)
        if mode == "eval":
            return PolicyOutput(mean, mean.new_zeros(mean.shape), None)
        actions = mean + self.config.std * draws["noise"]
        return PolicyOutput(actions, self._logprobs(mean, actions), None, {"actions": actions})

    def evaluate_actions(self, inputs: Inputs, replay: Mapping[str, Tensor]) -> ActionScores:
        return ActionScores(self._logprobs(self._mean(inputs), replay["actions"]), None, None)

    def sft_loss(
        self, inputs: Inputs, actions: Tensor, valid: Tensor, generator: Generator
    ) -> Tensor:
        error = (self._mean(inputs) - actions) ** 2
        return (error.mean(-1) * valid).sum() / valid.sum()

    def set_precision(self, precision: Literal["fp32", "bf16"]) -> None:
        pass  # the network is too small to gain from bf16

    def set_gradient_checkpointing(self, *, enabled: bool) -> None:
        pass  # nor from recomputing activations

    def trainable_parameters(self) -> Iterable[tuple[str, nn.Parameter]]:
        return self._network.named_parameters()

    def sharding(self) -> Sharding:
        return Sharding(units=[], root=self._network, forward_methods=[])

    def save(self, directory: Path) -> None:
        from safetensors.torch import save_file

        directory.mkdir(parents=True)
        (directory / FILES[0]).write_text(json.dumps(self._sizes))
        save_file(self._network.state_dict(), directory / FILES[1])

    def _mean(self, inputs: Inputs) -> Tensor:
        return self._network(inputs["state"]).unflatten(-1, self._shape)

    def _logprobs(self, mean: Tensor, actions: Tensor) -> Tensor:
        scaled = (actions - mean) / self.config.std
        return -0.5 * scaled**2 - math.log(self.config.std * math.sqrt(2 * math.pi))
