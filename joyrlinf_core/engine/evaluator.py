"""Evaluation: fixed held-out episodes, each played exactly once, spread over ranks.

The random numbers of an episode depend on its number alone, so two evaluations of one run are
paired, and the number of ranks, stages and envs does not change a result. An episode that ended is
a tuple (episode, success, env steps); slot and row are as in `rollout.py`.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NamedTuple

import torch

from joyrlinf_core import seeding
from joyrlinf_core.batch.observation import Observation
from joyrlinf_core.engine import finite
from joyrlinf_core.engine.inference import Inference
from joyrlinf_core.engine.stopping import end_together
from joyrlinf_core.observability.events import EvalResult

if TYPE_CHECKING:
    from torch import Tensor

    from joyrlinf_core.comm.collectives import Collectives
    from joyrlinf_core.config.schema import EnvConfig
    from joyrlinf_core.engine.context import JobContext
    from joyrlinf_core.envs.base import VecEnv
    from joyrlinf_core.policies.base import Policy

WILSON_Z = 1.959964
"""Two-sided 95 % quantile of the normal distribution."""


class Interval(NamedTuple):
    """A confidence interval of a success rate."""

    low: float
    high: float


def wilson(successes: int, episodes: int) -> Interval:
    """Return the 95 % Wilson score interval of a success rate (Wilson 1927, JASA 22, eq. 4)."""
    if episodes == 0:
        return Interval(0.0, 1.0)
    rate, z2 = successes / episodes, WILSON_Z**2
    centre = rate + z2 / (2 * episodes)
    spread = WILSON_Z * math.sqrt(rate * (1 - rate) / episodes + z2 / (4 * episodes**2))
    scale = 1 + z2 / episodes
    return Interval(max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale))


class _Player:
    """One vector env that works through a list of episodes; a free slot takes the next one."""

    def __init__(self, env: VecEnv, config: EnvConfig, queue: list[int]) -> None:
        self.env = env
        self._config = config
        self._queue = queue
        self._episode = torch.full((env.num_envs,), -1, dtype=torch.int64)
        self._chunk = torch.zeros(env.num_envs, dtype=torch.int64)
        self._steps = torch.zeros(env.num_envs, dtype=torch.int64)
        self._observation: Observation | None = None
        self._sent: Tensor | None = None
        self._refill(torch.arange(env.num_envs))

    @property
    def slots(self) -> Tensor:
        """Slots that play, int64 [m]."""
        return (self._episode >= 0).nonzero().squeeze(1)

    def observe(self, slots: Tensor) -> tuple[Observation, list[tuple[int, int]]]:
        """Return observations of these slots and (episode, chunk) of each."""
        assert self._observation is not None, "slots is empty before the first reset"
        numbers = zip(self._episode[slots].tolist(), self._chunk[slots].tolist(), strict=True)
        return self._observation.rows(slots), list(numbers)

    def send(self, slots: Tensor, actions: Tensor) -> None:
        """Start a chunk."""
        self._sent = slots
        self.env.send(slots, actions)

    def receive(self) -> list[tuple[int, bool, int]]:
        """Wait for the chunk; return (episode, success, env steps) of the episodes that ended."""
        if self._sent is None:
            return []
        slots, self._sent = self._sent, None
        result = self.env.recv()
        episodes = self._episode[slots]
        finite.check_result(result, lambda row: self._place(int(episodes[row])))
        assert self._observation is not None, "the first refill sets it"
        self._observation.put(slots, result.observation)
        self._chunk[slots] += 1
        self._steps[slots] += result.steps
        over = (result.terminations | result.truncations).any(dim=1)
        ended = [
            (int(self._episode[slot]), bool(success), int(self._steps[slot]))
            for slot, success in zip(slots[over], result.success[over], strict=True)
        ]
        self._refill(slots[over])
        return ended

    def _refill(self, slots: Tensor) -> None:
        taken, self._queue = self._queue[: len(slots)], self._queue[len(slots) :]
        self._episode[slots] = -1
        fresh = slots[: len(taken)]
        if not taken:
            return
        self._episode[fresh] = torch.tensor(taken)
        self._chunk[fresh] = 0
        self._steps[fresh] = 0
        episodes = [self._config.eval_episode(index) for index in taken]
        observation = self.env.reset(fresh, episodes)
        finite.check("observation", observation.state, lambda row: self._place(taken[row]))
        if self._observation is None:
            # Fewer episodes than slots: the rest never plays, but rows must exist.
            padding = torch.zeros(self.env.num_envs, dtype=torch.int64)
            self._observation = observation.rows(padding)
        self._observation.put(fresh, observation)

    def _place(self, index: int) -> str:
        return f"evaluation episode {index}, {self._config.eval_episode(index)}"


class Evaluator:
    """Measures success on the episodes of `env.eval`.

    Args:
        context: This worker.
        policy: The policy.
        envs: Vector envs of this rank, one per pipeline stage; not owned.
        collectives: All ranks that evaluate.
        lockstep: Every rank makes the same number of policy calls (sharded weights gather per
            call).
    """

    def __init__(
        self,
        context: JobContext,
        policy: Policy,
        envs: list[VecEnv],
        collectives: Collectives,
        *,
        lockstep: bool = False,
    ) -> None:
        self._context = context
        self._policy = policy
        self._envs = envs
        self._collectives = collectives
        self._lockstep = lockstep
        config = context.plan.config
        self._config = config.eval_env
        self._seed = config.runner.seed
        self._inference = Inference(
            policy,
            context.device,
            num_envs=1,
            micro_batch=self._config.infer_micro_batch_size,
            lockstep_rows=envs[0].num_envs if lockstep else 0,
        )

    def run(self, step: int, label: str, *, episodes: int | None = None) -> EvalResult:
        """Play every episode once; return the result, the same on all ranks.

        Args:
            step: Training step, for the record.
            label: `start`, `interval`, `end`, `sft` or `eval`.
            episodes: Number of episodes; None takes the plan's.

        Raises:
            JobStopped: A stop was asked for; on all ranks, and the vector envs can only be closed.
        """
        started = time.perf_counter()
        total = self._context.plan.batch.eval_episodes if episodes is None else episodes
        mine = list(range(self._collectives.rank, total, self._collectives.world_size))
        ended = self._play(mine, step, total)
        end_together(self._collectives, unfinished=len(ended) < len(mine))
        gathered = [episode for part in self._collectives.gather_json(ended) for episode in part]
        return self._summary(gathered, step, label, time.perf_counter() - started)

    def _play(self, mine: list[int], step: int, total: int) -> list[tuple[int, bool, int]]:
        """Play episodes; return those that ended, fewer than asked for if a stop was requested."""
        stages = len(self._envs)
        players = [_Player(env, self._config, mine[s::stages]) for s, env in enumerate(self._envs)]
        ended: list[tuple[int, bool, int]] = []
        while self._goes_on(players):
            for player in players:
                ended += player.receive()
                self._decide(player)
            self._context.emitter.phase("eval", step, done=len(ended), total=total)
        return ended

    def _goes_on(self, players: list[_Player]) -> bool:
        playing = any(len(player.slots) for player in players)
        stop = self._context.stop_requested()
        if self._lockstep:
            playing, stop = (self._collectives.any(flag=flag) for flag in (playing, stop))
        return playing and not stop

    def _decide(self, player: _Player) -> None:
        slots = player.slots
        if len(slots):
            observation, numbers = player.observe(slots)
            inputs = self._policy.prepare(observation)
            output = self._inference.forward(inputs, self._draws(numbers), "eval")
            player.send(slots, output.actions.cpu())
        elif self._lockstep:
            self._idle_call()

    def _idle_call(self) -> None:
        """Make one policy call on zeros, so that ranks whose episodes are over stay in step."""
        views, height, width, channels = self._config.image_shape
        observation = Observation(
            images=torch.zeros(1, views, height, width, channels, dtype=torch.uint8),
            state=torch.zeros(1, self._config.state_dim),
            task=torch.zeros(1, dtype=torch.int64),
            prompts=self._config.task_prompts,
        )
        self._inference.forward(self._policy.prepare(observation), self._draws([(0, 0)]), "eval")

    def _draws(self, numbers: list[tuple[int, int]]) -> dict[str, Tensor]:
        rows = []
        generator = torch.Generator()
        for episode, chunk in numbers:
            generator.manual_seed(seeding.stream(self._seed, "eval", episode, chunk))
            rows.append(self._policy.draw(generator, 1))
        return {name: torch.cat([row[name] for row in rows]) for name in rows[0]}

    def _summary(
        self, ended: list[tuple[int, bool, int]], step: int, label: str, seconds: float
    ) -> EvalResult:
        wins = sum(bool(success) for _, success, _ in ended)
        interval = wilson(wins, len(ended))
        prompts = self._config.task_prompts
        by_task: dict[str, list[bool]] = {}
        for episode, success, _ in ended:
            task = self._config.eval_episode(episode).task
            by_task.setdefault(prompts[task], []).append(bool(success))
        return EvalResult(
            step=step,
            label=label,
            episodes=len(ended),
            success_rate=wins / max(1, len(ended)),
            ci_low=interval.low,
            ci_high=interval.high,
            per_task={name: sum(won) / len(won) for name, won in sorted(by_task.items())},
            mean_steps=sum(steps for _, _, steps in ended) / max(1, len(ended)),
            seconds=seconds,
        )
