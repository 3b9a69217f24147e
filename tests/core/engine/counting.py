"""Hand-made env and policy whose numbers say where they come from.

An episode's state is (variation, env steps so far). The policy's value is the step count plus 0.5,
its log-prob the variation, its action the drawn number of its column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from joyrlinf_core.batch.observation import Observation
from joyrlinf_core.config.schema import EnvConfig, EpisodeId
from joyrlinf_core.engine.rollout import Rollout
from joyrlinf_core.envs.base import ChunkStep, VecEnv
from joyrlinf_core.observability.timers import PhaseTimer
from joyrlinf_core.policies.base import PolicyOutput


class CountingConfig(EnvConfig):
    """Episode k of group g has variation 100 g + k and task g mod 2."""

    type: Literal["counting"] = "counting"
    total_num_envs: int = 4
    max_episode_steps: int = 6

    solved_at: dict[int, int] = Field(default_factory=dict)
    """Env step at which an episode of this variation succeeds."""

    @property
    def task_prompts(self) -> tuple[str, ...]:
        return ("even", "odd")

    @property
    def action_dim(self) -> int:
        return 1

    @property
    def state_dim(self) -> int:
        return 2

    @property
    def image_shape(self) -> tuple[int, int, int, int]:
        return (1, 1, 1, 3)

    def train_episode(self, seed: int, group: int, k: int) -> EpisodeId:
        return EpisodeId(group % 2, 100 * group + k)

    def eval_episode(self, index: int) -> EpisodeId:
        return EpisodeId(index % 2, -1 - index)

    def demo_episode(self, seed: int, index: int) -> EpisodeId:
        return EpisodeId(0, 10_000 + index)

    def build(self, num_slots: int) -> Any:
        raise NotImplementedError

    def check_ready(self) -> str:
        return "counting"


class CountingVecEnv(VecEnv):
    """Counts. `spoil` may change a result before it is returned."""

    def __init__(self, config: CountingConfig, num_envs: int) -> None:
        self.num_envs = num_envs
        self.resets: list[tuple[list[int], list[EpisodeId]]] = []
        self.spoil: Callable[[ChunkStep], None] = lambda _: None
        self.reset_state: float | None = None
        self._config = config
        self._state = torch.zeros(num_envs, 2)
        self._task = torch.zeros(num_envs, dtype=torch.int64)
        self._sent: tuple[Tensor, Tensor, bool] | None = None

    def reset(self, slots: Tensor, episodes: Sequence[EpisodeId]) -> Observation:
        self.resets.append((slots.tolist(), list(episodes)))
        for slot, episode in zip(slots.tolist(), episodes, strict=True):
            self._state[slot] = torch.tensor([float(episode.variation), 0.0])
            self._task[slot] = episode.task
        if self.reset_state is not None:
            self._state[slots] = self.reset_state
        return self._observation(slots)

    def send(self, slots: Tensor, actions: Tensor, *, final_frames: bool = False) -> None:
        assert self._sent is None
        self._sent = (slots, actions, final_frames)

    def recv(self) -> ChunkStep:
        assert self._sent is not None
        (slots, actions, final_frames), self._sent = self._sent, None
        shape = actions.shape[:2]
        rewards = torch.zeros(shape)
        terminations, truncations = torch.zeros(2, *shape, dtype=torch.bool)
        steps = torch.zeros(len(slots), dtype=torch.int64)
        for row, slot in enumerate(slots.tolist()):
            for column in range(shape[1]):
                self._state[slot, 1] += 1
                steps[row] += 1
                variation, age = (int(number) for number in self._state[slot])
                if age == self._config.solved_at.get(variation):
                    rewards[row, column], terminations[row, column] = 1.0, True
                    break
                if age == self._config.max_episode_steps:
                    truncations[row, column] = True
                    break
        observation = self._observation(slots)
        dark = terminations.any(1) | (truncations.any(1) & (not final_frames))
        observation.state[dark] = 0
        success = terminations.any(1)
        result = ChunkStep(rewards, terminations, truncations, success, steps, observation)
        self.spoil(result)
        return result

    def close(self) -> None:
        pass

    def _observation(self, slots: Tensor) -> Observation:
        images = torch.zeros(len(slots), 1, 1, 1, 3, dtype=torch.uint8)
        return Observation(images, self._state[slots], self._task[slots], ("even", "odd"))


class CountingPolicy:
    """See the module."""

    def __init__(self, *, chunk: int = 2, values: bool = True) -> None:
        self.rows: list[int] = []
        self.draws: list[int] = []
        self._chunk = chunk
        self._values = values

    def prepare(self, observation: Observation) -> dict[str, Tensor]:
        return {"state": observation.state.clone()}

    def draw(self, generator: torch.Generator, n: int) -> dict[str, Tensor]:
        self.draws.append(n)
        return {"noise": torch.rand(n, generator=generator)}

    def predict(
        self, inputs: Mapping[str, Tensor], draws: Mapping[str, Tensor], mode: str
    ) -> PolicyOutput:
        state, noise = inputs["state"], draws["noise"]
        self.rows.append(len(noise))
        shape = (len(noise), self._chunk, 1)
        return PolicyOutput(
            actions=noise[:, None, None].expand(shape).clone(),
            logprobs=state[:, :1, None].expand(shape).clone(),
            values=state[:, 1] + 0.5 if self._values else None,
            replay={"noise": noise},
        )


def make_rollout(
    config: CountingConfig,
    policy: CountingPolicy,
    *,
    stages: int = 1,
    ranks: int = 1,
    rank: int = 0,
    lockstep: bool = False,
) -> Rollout:
    """Return a rollout of groups of two with chunks of two."""
    per_rank = config.total_num_envs // ranks
    chunk_steps = config.steps_per_epoch // 2
    batch = SimpleNamespace(
        num_envs=config.total_num_envs,
        envs_per_rank=per_rank,
        envs_per_stage=per_rank // stages,
        group_size=2,
        chunk_size=2,
        chunk_steps=chunk_steps,
        rollout_epochs=config.rollout_epoch,
        t_eff=config.rollout_epoch * chunk_steps,
    )
    run = SimpleNamespace(
        runner=SimpleNamespace(seed=3),
        env=SimpleNamespace(train=config),
        actor=SimpleNamespace(model=SimpleNamespace(add_value_head=policy._values)),
    )
    placement = SimpleNamespace(rollout_ranks=tuple(range(ranks)))
    context: Any = SimpleNamespace(
        plan=SimpleNamespace(batch=batch, config=run, placement=placement),
        rank=rank,
        device=torch.device("cpu"),
        emitter=SimpleNamespace(phase=lambda *_, **__: None),
    )
    envs: list[VecEnv] = [CountingVecEnv(config, per_rank // stages) for _ in range(stages)]
    double: Any = policy
    return Rollout(context, double, envs, PhaseTimer(), lockstep=lockstep)
