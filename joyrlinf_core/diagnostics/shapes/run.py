"""`ShapeRun`: takes synthetic rollouts from the recorder to the loss, with the code that trains.

The order is the learner's (`engine/learner.py`): advantages, flat batch, minibatches, active rows,
micro-batches, loss. Each step fills in what later ones, and the checks, read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

import torch

from joyrlinf_core.algorithms import aggregation
from joyrlinf_core.algorithms.masks import episode_mask
from joyrlinf_core.algorithms.objective import Objective, loss_metrics
from joyrlinf_core.batch import layout, minibatch
from joyrlinf_core.batch.flatten import flatten
from joyrlinf_core.batch.metrics import merge
from joyrlinf_core.diagnostics.shapes.script import write_script
from joyrlinf_core.diagnostics.shapes.synthetic import Script, StandIn, make_rollout

if TYPE_CHECKING:
    from torch import Tensor

    from joyrlinf_core.algorithms.base import LossOutput
    from joyrlinf_core.algorithms.masks import EpisodeMask
    from joyrlinf_core.batch.metrics import Metric
    from joyrlinf_core.batch.rollout import RolloutBatch
    from joyrlinf_core.batch.train import AdvantageResult, TrainBatch
    from joyrlinf_core.config.schema import EnvConfig
    from joyrlinf_core.diagnostics.shapes.report import Sizes
    from joyrlinf_core.diagnostics.shapes.script import Episode
    from joyrlinf_core.diagnostics.shapes.sizes import Stored
    from joyrlinf_core.plan.run_plan import RunPlan, Shard

_STEP = 0.01
"""How far the stand-in policy moves before losses are compared, so that ratios are not all one."""


@dataclass
class Actor:
    """What one actor that is run holds."""

    episodes: list[Episode]
    script: Script
    rollout: RolloutBatch
    mask: EpisodeMask | None = None
    result: AdvantageResult | None = None
    flat: TrainBatch | None = None


@dataclass
class ShapeRun:
    """One run of all steps.

    Attributes:
        plan: The plan.
        planned: Its sizes.
        sizes: Those that are run.
        stored: Rows of policy tensors that are run.
    """

    plan: RunPlan
    planned: Sizes
    sizes: Sizes
    stored: Stored
    actors: list[Actor] = field(default_factory=list["Actor"])
    normaliser: float = 1.0
    micro_batch: TrainBatch | None = None
    micro_output: LossOutput | None = None

    def __post_init__(self) -> None:
        config = self.plan.config
        self.algorithm = config.algorithm
        self.env = self._env_to_run()
        self.objective = Objective(self.algorithm, self.env)
        self.policy = StandIn(
            torch.zeros(self.sizes.chunk, self.sizes.action_dim),
            has_values=config.actor.model.add_value_head,
            has_entropy=config.actor.model.has_entropy,
        )

    def _env_to_run(self) -> EnvConfig:
        """Return the env; its episodes are shorter where rollout epochs are."""
        env, sizes, planned = self.plan.config.env.train, self.sizes, self.planned
        steps, whole = sizes.t * planned.epochs, planned.t * sizes.epochs
        if steps == whole:
            return env
        limit = max(1, env.max_episode_steps * steps // whole)
        return env.model_copy(update={"max_episode_steps": limit})

    @cached_property
    def _shards(self) -> dict[int, list[Shard]]:
        """The shard map by actor rank."""
        found: dict[int, list[Shard]] = {}
        for shard in self.plan.shards:
            found.setdefault(shard.destination, []).append(shard)
        return found

    @cached_property
    def _sources(self) -> dict[int, int]:
        """Place of each rollout rank among them."""
        return {rank: place for place, rank in enumerate(self.plan.placement.rollout_ranks)}

    def env_ids(self, actor: int) -> list[range]:
        """Return the envs behind the columns of an actor, in order, by the plan's shard map."""
        place = self.plan.placement
        columns = self.planned.columns * len(place.actor_ranks) // len(place.rollout_ranks)
        found: list[range] = []
        for shard in self._shards.get(place.actor_ranks[actor], ()):
            ids = layout.env_ids(self._sources[shard.source], columns)
            found.append(ids[shard.source_column : shard.source_column + shard.columns])
        return found

    def groups_of(self, actor: int) -> list[int]:
        """Return the group behind each column of an actor that is run: whole groups, cut alike."""
        sizes, whole = self.sizes, self.planned.group_size
        firsts = (env_id for ids in self.env_ids(actor) for env_id in ids[::whole])
        numbers = [first // whole for first in islice(firsts, sizes.groups)]
        return [number for number in numbers for _ in range(sizes.group_size)]

    def make_rollouts(self) -> None:
        """Record the first columns of each actor."""
        seed, sizes, planned = self.plan.config.runner.seed, self.sizes, self.plan.batch
        batch = planned.model_copy(
            update={
                "t_eff": sizes.t,
                "rollout_epochs": sizes.epochs,
                "chunk_steps": sizes.t // sizes.epochs,
                "group_size": sizes.group_size,
            }
        )
        for actor in range(sizes.actors):
            groups = self.groups_of(actor)
            episodes = write_script(groups, batch, self.env, self.algorithm, seed=seed + actor)
            script = Script.of(episodes, sizes.t, sizes.columns, sizes.chunk)
            rollout = make_rollout(
                script,
                groups,
                self.stored,
                self.policy,
                tasks=len(self.env.task_prompts),
                seed=seed + actor,
            )
            self.actors.append(Actor(episodes, script, rollout))

    def make_masks(self) -> None:
        """Compute which actions count."""
        for actor in self.actors:
            actor.mask = episode_mask(actor.rollout, auto_reset=self.env.auto_reset)

    def make_advantages(self) -> None:
        """Compute advantages over all actors, and the loss's normaliser."""
        results = self.advantages_of([actor.rollout for actor in self.actors])
        for actor, result in zip(self.actors, results, strict=True):
            actor.result = result
        total = sum(result.total_weight for result in results)
        self.normaliser = aggregation.normaliser(total, self.sizes.optimizer_steps)

    def advantages_of(self, rollouts: Sequence[RolloutBatch]) -> list[AdvantageResult]:
        """Return the advantages of rollouts, one an actor."""
        if len(rollouts) == 1:
            return [self.objective.advantages(rollouts[0])]
        # In place of ranks that wait for each other: once to hear what each would add to the sums,
        # once more with the sums.
        told: list[list[Tensor]] = []
        for rollout in rollouts:
            told.append([])
            self.objective.advantages(rollout, _teller(told[-1]))
        sums = [torch.stack(parts).sum(0) for parts in zip(*told, strict=True)]
        return [self.objective.advantages(rollout, _answerer(sums)) for rollout in rollouts]

    def make_flat(self) -> None:
        """Flatten each rollout to rows."""
        for actor in self.actors:
            assert actor.result is not None, "make_advantages comes first"
            actor.flat = flatten(actor.rollout, actor.result, self.algorithm.logprob_type)

    def make_micro_batch(self) -> None:
        """Compute the loss of one full micro-batch, policy tensors included, and its metrics."""
        flat = self.flat(0)
        rows = self.minibatches(flat, 0)[0][: self.sizes.micro_batch]
        self.micro_batch = flat.rows(rows)
        self.micro_output = self.loss(self.micro_batch, self.policy, self.normaliser)

    def flat(self, actor: int) -> TrainBatch:
        """Return the rows of an actor."""
        flat = self.actors[actor].flat
        assert flat is not None, "make_flat comes first"
        return flat

    def minibatches(self, flat: TrainBatch, update_epoch: int) -> tuple[Tensor, ...]:
        """Return the rows of each optimizer step of an update epoch."""
        return minibatch.minibatch_rows(
            flat.group,
            self.sizes.optimizer_steps,
            seed=self.plan.config.runner.seed,
            step=0,
            update_epoch=update_epoch,
        )

    def loss(self, rows: TrainBatch, policy: StandIn, normaliser: float) -> LossOutput:
        """Return the loss of rows."""
        scores = policy.score(rows.actions)
        return self.objective.loss(
            rows,
            normaliser,
            logprobs=scores.logprobs,
            entropy=scores.entropy,
            values=scores.values,
        )

    def moved_policy(self) -> StandIn:
        """Return a policy that has moved a little and can learn."""
        step = torch.full_like(self.policy.step, _STEP).requires_grad_()
        return replace(self.policy, step=step)

    def step_loss(
        self, flat: TrainBatch, rows: Tensor, policy: StandIn
    ) -> tuple[float, dict[str, Metric]]:
        """Accumulate the gradient of one optimizer step as the learner does; return its loss."""
        parts: list[dict[str, Metric]] = []
        total = 0.0
        for part in minibatch.micro_batches(
            self.objective.active_rows(flat, rows), self.sizes.micro_batch
        ):
            output = self.loss(flat.rows(part), policy, self.normaliser)
            output.loss.backward()
            total += float(output.loss.detach())
            parts.append(loss_metrics(output, len(part), 1.0))
        return total, merge(parts)


def without_policy_tensors(flat: TrainBatch) -> TrainBatch:
    """Return the same rows; what only a policy reads is left out."""
    return replace(flat, inputs={}, replay={})


def _teller(told: list[Tensor]) -> Callable[[Tensor], Tensor]:
    def tell(values: Tensor) -> Tensor:
        told.append(values)
        return values

    return tell


def _answerer(sums: Sequence[Tensor]) -> Callable[[Tensor], Tensor]:
    remaining = iter(sums)
    return lambda _: next(remaining)
