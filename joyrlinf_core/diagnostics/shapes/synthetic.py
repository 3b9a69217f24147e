"""Synthetic rollouts: a script of episodes, played into the engine's recorder.

What a policy would store carries its place (chunk step, column), and what it would compute is a
function of its actions, so that a row that lands in the wrong place shows.

Shapes: T chunk steps, B columns, C actions per chunk, D env action dims, m rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from joyrlinf_core.batch.observation import Observation
from joyrlinf_core.engine.recorder import Recorder
from joyrlinf_core.envs.base import ChunkStep
from joyrlinf_core.policies.base import ActionScores, PolicyOutput

if TYPE_CHECKING:
    from torch import Tensor

    from joyrlinf_core.batch.rollout import RolloutBatch
    from joyrlinf_core.config.schema import TensorSpec
    from joyrlinf_core.diagnostics.shapes.script import Episode
    from joyrlinf_core.diagnostics.shapes.sizes import Specs, Stored

_MODULUS = {"bool": 2, "uint8": 251, "bfloat16": 251}
"""Marks are counted modulo this where the element type holds no larger whole numbers."""


@dataclass(frozen=True)
class Script:
    """The episodes of one actor as tensors.

    Attributes:
        executed: bool [T, B, C], the action was executed.
        rewards: float32 [T, B, C].
        terminations: bool [T, B, C].
        truncations: bool [T, B, C].
        success: bool [T, B], so far.
        episode: int64 [T, B], number in the run.
        cut: bool [T, B], the chunk is an episode's last one and did not terminate it.
    """

    executed: Tensor
    rewards: Tensor
    terminations: Tensor
    truncations: Tensor
    success: Tensor
    episode: Tensor
    cut: Tensor

    @classmethod
    def of(cls, episodes: Iterable[Episode], t: int, columns: int, chunk: int) -> Script:
        """Play episodes."""
        shape = (columns, t * chunk)
        flags = [torch.zeros(shape, dtype=torch.bool) for _ in range(3)]
        executed, terminations, truncations = flags
        success, cut = (torch.zeros(t, columns, dtype=torch.bool) for _ in range(2))
        rewards = torch.zeros(shape)
        episode = torch.zeros(t, columns, dtype=torch.int64)
        for one in episodes:
            first = one.start * chunk
            last = first + one.actions - 1
            executed[one.column, first : last + 1] = True
            rewards[one.column, first] += one.score / 2
            rewards[one.column, last] += one.score / 2
            if one.ended:
                (terminations if one.terminated else truncations)[one.column, last] = True
            episode[one.start :, one.column] = one.number
            success[last // chunk, one.column] = one.success
            cut[last // chunk, one.column] = not one.terminated

        def by_chunk(values: Tensor) -> Tensor:
            return values.reshape(columns, t, chunk).transpose(0, 1)

        return cls(
            by_chunk(executed),
            by_chunk(rewards),
            by_chunk(terminations),
            by_chunk(truncations),
            success,
            episode,
            cut,
        )


@dataclass(frozen=True)
class StandIn:
    """Stands in for a policy: scores actions with a few numbers.

    Attributes:
        step: float32 [C, D], how far the policy has moved; zero is the policy that acted.
        has_values: It has a value head.
        has_entropy: Its actions have an entropy.
    """

    step: Tensor
    has_values: bool
    has_entropy: bool

    def score(self, actions: Tensor) -> ActionScores:
        """Return the result of `evaluate_actions` for actions [m, C, D]."""
        moved = self.step.sum()
        mean = actions.mean(dim=(1, 2))
        return ActionScores(
            logprobs=-0.5 * actions**2 + self.step * actions,
            entropy=mean**2 + moved if self.has_entropy else None,
            values=mean + moved if self.has_values else None,
        )


def make_rollout(
    script: Script, groups: Sequence[int], stored: Stored, policy: StandIn, *, tasks: int, seed: int
) -> RolloutBatch:
    """Record a script.

    Args:
        script: What happens.
        groups: Global group of each column.
        stored: What the policy stores of one row.
        policy: Who acts.
        tasks: Number of tasks of the env.
        seed: Of the actions.
    """
    t_eff, columns, chunk = script.executed.shape
    group = torch.tensor(groups)
    recorder = Recorder(t_eff, columns, chunk, group)
    generator = torch.Generator().manual_seed(seed)
    actions = torch.randn(t_eff * columns, *policy.step.shape, generator=generator)
    scores = policy.score(actions)
    rows = PolicyRows(stored, t_eff, columns)
    task = (group + script.episode) % tasks
    everyone = torch.arange(columns)
    played = script.executed.any(-1)
    for t in range(t_eff):
        recorder.write_episode(t, everyone, episode=script.episode[t], task=task[t])
        acting = everyone[played[t]]
        if not len(acting):
            continue
        place = t * columns + acting
        values = None if scores.values is None else scores.values[place]
        output = PolicyOutput(
            actions[place], scores.logprobs[place], values, rows.of(stored.replay, place)
        )
        inputs = rows.of(stored.inputs, place)
        recorder.write_decision(t, acting, inputs=inputs, output=output, version=t)
        result = _result(script, t, acting)
        recorder.write_result(t, acting, result, result.terminations | result.truncations)
        cut = acting[script.cut[t, acting]]
        if values is not None and len(cut):
            recorder.write_next_values(t, cut, torch.full((len(cut),), 0.5))
    return recorder.batch()


class PolicyRows:
    """Rows of policy tensors; zero but for the first element, which says where the row belongs.

    Args:
        stored: What the policy stores of one row.
        t_eff: T.
        columns: B.
    """

    def __init__(self, stored: Stored, t_eff: int, columns: int) -> None:
        specs = {*stored.inputs.values(), *stored.replay.values()}
        places = torch.arange(t_eff * columns)
        self._buffers = {
            spec: torch.zeros(columns, *spec.shape, dtype=_dtype(spec)) for spec in specs
        }
        self._firsts = {
            spec: buffer.view(columns, -1)[:, 0]
            for spec, buffer in self._buffers.items()
            if spec.nbytes
        }
        self._marks = {spec: marks(spec, places) for spec in specs}

    def of(self, specs: Specs, place: Tensor) -> dict[str, Tensor]:
        """Return the rows at `place` int64 [m]; the next call overwrites them."""
        count = len(place)
        for spec in specs.values():
            if spec.nbytes:
                self._firsts[spec][:count] = self._marks[spec][place]
        return {name: self._buffers[spec][:count] for name, spec in specs.items()}


def marks(spec: TensorSpec, place: Tensor) -> Tensor:
    """Return the first element of rows at `place` int64 [m], counted as t * B + column."""
    return (place % _MODULUS.get(spec.dtype, 1 << 24)).to(_dtype(spec))


def _result(script: Script, t: int, acting: Tensor) -> ChunkStep:
    """Return what the simulators say about chunk step t of the acting columns."""
    nothing = torch.zeros(len(acting), 0)
    return ChunkStep(
        rewards=script.rewards[t, acting],
        terminations=script.terminations[t, acting],
        truncations=script.truncations[t, acting],
        success=script.success[t, acting],
        steps=script.executed[t, acting].sum(-1),
        observation=Observation(nothing, nothing, script.episode[t, acting], ()),
    )


def _dtype(spec: TensorSpec) -> torch.dtype:
    return getattr(torch, spec.dtype)
