"""What rollout ranks and env ranks say to each other about one part; see `comm/messages.py`.

| request | payload                           | answer      | payload                      |
|---------|-----------------------------------|-------------|------------------------------|
| RESET   | episodes, slots                   | OBSERVATION | task, state, images          |
| CHUNK   | slots, actions; flag: last frames | STEP        | `ChunkStep`, its observation |
| CLOSE   |                                   | none        |                              |

Shapes: m rows of the request, C actions of the chunk, as everywhere in `envs/base.py`.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import torch

from joyrlinf_core.batch.observation import Observation
from joyrlinf_core.comm.messages import Field
from joyrlinf_core.config.schema import EpisodeId
from joyrlinf_core.envs.base import ChunkStep
from joyrlinf_core.errors import ExitCode, JoyrlError

if TYPE_CHECKING:
    from torch import Tensor

    from joyrlinf_core.config.schema import EnvConfig


class Kind(IntEnum):
    """Kinds of messages; 0 is an error."""

    RESET = 1
    CHUNK = 2
    CLOSE = 3
    OBSERVATION = 4
    STEP = 5


@dataclass(frozen=True)
class Layouts:
    """Layouts of the payloads for one env config; items get smaller from field to field."""

    action_dim: int
    state_dim: int
    image_shape: tuple[int, int, int, int]

    @classmethod
    def of(cls, config: EnvConfig) -> Layouts:
        """Return those of a config."""
        return cls(config.action_dim, config.state_dim, config.image_shape)

    def reset(self, rows: int) -> list[Field]:
        """Fields of RESET."""
        return [Field(torch.int64, (rows, 2)), Field(torch.int64, (rows,))]

    def chunk(self, rows: int, chunk: int) -> list[Field]:
        """Fields of CHUNK."""
        actions = (rows, chunk, self.action_dim)
        return [Field(torch.int64, (rows,)), Field(torch.float32, actions)]

    def observation(self, rows: int) -> list[Field]:
        """Fields of OBSERVATION."""
        return [
            Field(torch.int64, (rows,)),
            Field(torch.float32, (rows, self.state_dim)),
            Field(torch.uint8, (rows, *self.image_shape)),
        ]

    def step(self, rows: int, chunk: int) -> list[Field]:
        """Fields of STEP."""
        task, state, images = self.observation(rows)
        return [
            task,
            Field(torch.int64, (rows,)),
            state,
            Field(torch.float32, (rows, chunk)),
            images,
            Field(torch.bool, (rows, chunk)),
            Field(torch.bool, (rows, chunk)),
            Field(torch.bool, (rows,)),
        ]


@dataclass(frozen=True)
class Trouble:
    """An exception of an env rank, as its clients hear of it."""

    message: str
    fix: str
    exit_code: ExitCode

    @classmethod
    def of(cls, error: Exception) -> Trouble:
        """Describe an exception that is being handled."""
        if isinstance(error, JoyrlError):
            return cls(error.message, error.fix, error.exit_code)
        return cls(f"an exception:\n{traceback.format_exc()}", "", ExitCode.RUN_FAILED)

    def text(self) -> str:
        """Return what `read` reads."""
        return json.dumps([self.message, self.fix, self.exit_code])

    @classmethod
    def read(cls, text: str) -> Trouble:
        """Read what `text` wrote."""
        message, fix, exit_code = json.loads(text)
        return cls(message, fix, ExitCode(exit_code))


def as_numbers(episodes: Sequence[EpisodeId]) -> Tensor:
    """Return episodes as int64 [m, 2]."""
    return torch.tensor(episodes, dtype=torch.int64).reshape(len(episodes), 2)


def as_episodes(numbers: Tensor) -> list[EpisodeId]:
    """Return what `as_numbers` wrote."""
    return [EpisodeId(*row) for row in numbers.tolist()]


def from_observation(observation: Observation) -> list[Tensor]:
    """Return the tensors of OBSERVATION."""
    return [observation.task, observation.state, observation.images]


def to_observation(tensors: Sequence[Tensor], prompts: tuple[str, ...]) -> Observation:
    """Return the observation of these tensors."""
    task, state, images = tensors
    return Observation(images, state, task, prompts)


def from_step(step: ChunkStep) -> list[Tensor]:
    """Return the tensors of STEP."""
    seen = step.observation
    flags = [step.terminations, step.truncations, step.success]
    return [seen.task, step.steps, seen.state, step.rewards, seen.images, *flags]


def to_step(tensors: Sequence[Tensor], prompts: tuple[str, ...]) -> ChunkStep:
    """Return the step of these tensors."""
    task, steps, state, rewards, images, terminations, truncations, success = tensors
    observation = Observation(images, state, task, prompts)
    return ChunkStep(rewards, terminations, truncations, success, steps, observation)
