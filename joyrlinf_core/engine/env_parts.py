"""Which env rank simulates which slots of which stage, and in how many processes.

In a split placement, env ranks simulate what rollout ranks infer for. Both deal the envs out in
order: rollout rank r of W_r holds env ids [r * E / W_r, (r + 1) * E / W_r), S stages one after the
other; an env rank simulates the ids that the plan's rank table says. Where a stage and an env rank
overlap, they have a part in common: neighbouring slots of the stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING

from joyrlinf_core.envs.base import ChunkStep, VecEnv
from joyrlinf_core.envs.factory import build_vec_env

if TYPE_CHECKING:
    from torch import Tensor

    from joyrlinf_core.batch.observation import Observation
    from joyrlinf_core.config.schema import EnvConfig, EpisodeId
    from joyrlinf_core.plan.run_plan import RankPlan, RunPlan


@dataclass(frozen=True)
class Part:
    """Neighbouring slots of one stage that one env rank simulates.

    Attributes:
        client: Global rank that infers for them.
        stage: Its stage.
        server: Global rank that simulates them; may be the same.
        first_slot: First of the slots.
        num_slots: How many.
        line: Number of the line between the two, where they differ: each stage has one to each of
            its env ranks, and another one for evaluations with envs of their own.
    """

    client: int
    stage: int
    server: int
    first_slot: int
    num_slots: int
    line: int

    @property
    def slots(self) -> range:
        """The slots."""
        return range(self.first_slot, self.first_slot + self.num_slots)


def deal_parts(
    num_envs: int, stages: int, rollout_ranks: Sequence[int], ranks: Sequence[RankPlan]
) -> tuple[Part, ...]:
    """Return all parts of training, by client, stage and slot: every env is in one of them.

    Args:
        num_envs: E.
        stages: S.
        rollout_ranks: Global ranks, in order.
        ranks: The rank table.
    """
    parts: list[Part] = []
    servers = [rank for rank in ranks if rank.envs]
    count = len(rollout_ranks) * stages
    for number in range(count):
        client, stage = rollout_ranks[number // stages], number % stages
        start, stop = number * num_envs // count, (number + 1) * num_envs // count
        for server in servers:
            first = max(start, server.first_env)
            last = min(stop, server.first_env + server.envs)
            if first < last:
                parts.append(Part(client, stage, server.rank, first - start, last - first, stage))
    return tuple(parts)


def training_parts(plan: RunPlan) -> tuple[Part, ...]:
    """Return all parts of training."""
    return deal_parts(
        plan.batch.num_envs,
        plan.config.rollout.pipeline_stage_num,
        plan.placement.rollout_ranks,
        plan.ranks,
    )


def evaluation_parts(plan: RunPlan) -> tuple[Part, ...]:
    """Return all parts of an evaluation with envs of its own.

    A stage has its share of `env.eval.total_num_envs`, at least one slot, and deals it to the env
    ranks that it trains with, in the same proportion. Some may get none.
    """
    training = training_parts(plan)
    totals: dict[tuple[int, int], int] = {}
    for part in training:
        totals[part.client, part.stage] = part.slots.stop
    size = max(1, plan.config.eval_env.total_num_envs // len(totals))
    first_line = plan.config.rollout.pipeline_stage_num
    parts: list[Part] = []
    for part in training:
        total = totals[part.client, part.stage]
        start, stop = part.slots.start * size // total, part.slots.stop * size // total
        if start < stop:
            line = first_line + part.line
            parts.append(replace(part, first_slot=start, num_slots=stop - start, line=line))
    return tuple(parts)


def deal_workers(workers: int, sizes: Sequence[int]) -> list[int]:
    """Deal simulator processes to vector envs so that the largest share of one is small.

    Args:
        workers: Processes in all; 0 gives none.
        sizes: Slots of each vector env.

    Returns:
        Processes of each: at least one, also where that makes more in all, and at most one a slot.
    """
    if workers == 0:
        return [0] * len(sizes)
    dealt = [1] * len(sizes)
    while sum(dealt) < min(workers, sum(sizes)):
        fullest = max(range(len(sizes)), key=lambda index: sizes[index] / dealt[index])
        dealt[fullest] += 1
    return dealt


def part_configs(
    plan: RunPlan, config: EnvConfig, parts: Sequence[Part], server: int
) -> dict[Part, PartConfig]:
    """Return how an env rank builds each of its parts.

    `num_workers` is a number of processes per stage of an env rank. Its parts share what that makes
    for all stages, as a rank may well have a single large part.

    Args:
        plan: The plan.
        config: `env.train` or `env.eval`.
        parts: All parts of it.
        server: The env rank.
    """
    mine = [part for part in parts if part.server == server]
    workers = config.num_workers * plan.config.rollout.pipeline_stage_num
    dealt = deal_workers(workers, [part.num_slots for part in mine])
    return {
        part: PartConfig(
            config.model_copy(update={"num_workers": count}), part, plan.batch.group_size
        )
        for part, count in zip(mine, dealt, strict=True)
    }


@dataclass(frozen=True)
class PartConfig:
    """How to build the vector env of a part."""

    config: EnvConfig
    part: Part
    group_size: int

    def build(self) -> VecEnv:
        """Build it, in the thread that will use it: what draws is often bound to a thread."""
        if self.config.num_workers:
            return self._build()
        with _IN_PROCESS:
            return OneAtATime(self._build())

    def _build(self) -> VecEnv:
        return build_vec_env(self.config, self.part.num_slots, group_size=self.group_size)


_IN_PROCESS = Lock()
"""Held while any simulator of this very process works: none promises to share it with others."""


class OneAtATime(VecEnv):
    """A vector env whose simulator works in this process; other threads have some, too."""

    def __init__(self, env: VecEnv) -> None:
        self.num_envs = env.num_envs
        self._env = env

    def reset(self, slots: Tensor, episodes: Sequence[EpisodeId]) -> Observation:
        """See `VecEnv.reset`."""
        with _IN_PROCESS:
            return self._env.reset(slots, episodes)

    def send(self, slots: Tensor, actions: Tensor, *, final_frames: bool = False) -> None:
        """See `VecEnv.send`."""
        self._env.send(slots, actions, final_frames=final_frames)

    def recv(self) -> ChunkStep:
        """See `VecEnv.recv`."""
        with _IN_PROCESS:
            return self._env.recv()

    def close(self) -> None:
        """See `VecEnv.close`."""
        with _IN_PROCESS:
            self._env.close()
