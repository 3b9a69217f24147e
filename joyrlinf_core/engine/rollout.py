"""Rollout: the policy acts in the envs of this rank for R epochs of T chunk steps.

While the envs of one stage simulate a chunk, the policy infers for the next stage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from joyrlinf_core.batch.metrics import Metric
from joyrlinf_core.engine.inference import Inference
from joyrlinf_core.engine.recorder import Recorder
from joyrlinf_core.engine.stage import Stage

if TYPE_CHECKING:
    from torch import Tensor

    from joyrlinf_core.batch.rollout import RolloutBatch
    from joyrlinf_core.engine.context import JobContext
    from joyrlinf_core.envs.base import ChunkStep, VecEnv
    from joyrlinf_core.observability.timers import PhaseTimer
    from joyrlinf_core.policies.base import Policy


class Rollout:
    """Collects whole groups on one rank.

    Args:
        context: This worker.
        policy: The policy that acts; its weights are read anew at every call.
        envs: One vector env per pipeline stage; not owned.
        timer: Wall times by phase.
        lockstep: Every rank makes the same number of policy calls (sharded weights gather per
            call).
    """

    def __init__(
        self,
        context: JobContext,
        policy: Policy,
        envs: list[VecEnv],
        timer: PhaseTimer,
        *,
        lockstep: bool = False,
    ) -> None:
        plan, config = context.plan, context.plan.config
        self._context = context
        self._plan = plan.batch
        self._timer = timer
        self._lockstep = lockstep
        self._has_value_head = config.actor.model.add_value_head
        self._inference = Inference(
            policy,
            context.device,
            num_envs=plan.batch.num_envs,
            micro_batch=config.env.train.infer_micro_batch_size,
            lockstep_rows=plan.batch.envs_per_stage if lockstep else 0,
        )
        index = plan.placement.rollout_ranks.index(context.rank)
        columns = torch.arange(plan.batch.envs_per_rank) + index * plan.batch.envs_per_rank
        size = plan.batch.envs_per_stage
        self.stages = [
            Stage(
                env,
                config.env.train,
                columns=columns[s * size : (s + 1) * size],
                first_column=s * size,
                group_size=plan.batch.group_size,
                seed=config.runner.seed,
                final_frames=self._has_value_head,
            )
            for s, env in enumerate(envs)
        ]
        self._group = columns // plan.batch.group_size
        self._seed = config.runner.seed

    @property
    def next_episode(self) -> int:
        """First episode number that no slot has begun; resuming starts there under auto-reset."""
        return max(int(stage.episode.max()) for stage in self.stages) + 1

    def collect(
        self, step: int, *, version: int, first_episode: int
    ) -> tuple[RolloutBatch, dict[str, Metric]]:
        """Play one rollout.

        Args:
            step: Training step, counted from 0; names the random streams.
            version: Version of the policy's weights.
            first_episode: Number of the first episode of this rollout, where envs are reset.

        Returns:
            The batch of this rank's columns, and its counters.
        """
        recorder = Recorder(
            self._plan.t_eff, self._plan.envs_per_rank, self._plan.chunk_size, self._group
        )
        for epoch in range(self._plan.rollout_epochs):
            base = epoch * self._plan.chunk_steps
            for t in range(self._plan.chunk_steps):
                for stage in self.stages:
                    if t == 0:
                        with self._timer("rollout/reset"):
                            stage.begin_epoch(first_episode + epoch)
                    else:
                        self._receive(stage, base + t - 1, recorder, step)
                    self._decide(stage, base + t, recorder, step, version)
                self._context.emitter.phase(
                    "rollout", step, done=base + t + 1, total=self._plan.t_eff
                )
            for stage in self.stages:
                last = base + self._plan.chunk_steps - 1
                self._receive(stage, last, recorder, step, window_ends=True)
        counters = {
            "env/steps": Metric(recorder.env_steps, kind="sum"),
            "rollout/policy_rows": Metric(recorder.policy_rows, kind="sum"),
        }
        return recorder.batch(), counters

    def _decide(self, stage: Stage, row: int, recorder: Recorder, step: int, version: int) -> None:
        """Infer for the playing slots of a stage and start their chunk."""
        slots = stage.slots()
        recorder.write_episode(row, stage.batch_columns, episode=stage.episode, task=stage.task)
        if not len(slots) and not self._lockstep:
            return
        with self._timer("rollout/predict"):
            observation = stage.observe(slots if len(slots) else torch.tensor([0]))
            columns = stage.columns[slots] if len(slots) else stage.columns[:1]
            inputs, output = self._inference.act(
                observation, columns, stream=(self._seed, "rollout", step, row)
            )
        if not len(slots):
            return
        recorder.write_decision(
            row,
            stage.batch_columns[slots],
            inputs=inputs,
            output=output,
            version=version,
        )
        stage.send(slots, output.actions.cpu())

    def _receive(
        self, stage: Stage, row: int, recorder: Recorder, step: int, *, window_ends: bool = False
    ) -> None:
        """Wait for a stage's chunk; ask for the values that a bootstrap needs, and no others."""
        with self._timer("rollout/env_wait"):
            received = stage.receive(row, recorder)
        if not self._has_value_head:
            return
        need = self._bootstrap_rows(received, window_ends=window_ends)
        if not len(need) and not self._lockstep:
            return
        with self._timer("rollout/bootstrap"):
            self._bootstrap(stage, received, need, row, recorder, step)

    @staticmethod
    def _bootstrap_rows(received: tuple[ChunkStep, Tensor] | None, *, window_ends: bool) -> Tensor:
        """Return the rows [m] of a result whose next value counts: cut by time limit or window."""
        if received is None:
            return torch.zeros(0, dtype=torch.int64)
        result, _ = received
        need = result.truncations.any(dim=1)
        if window_ends:
            need = need | ~(result.terminations | result.truncations).any(dim=1)
        return need.nonzero().squeeze(1)

    def _bootstrap(
        self,
        stage: Stage,
        received: tuple[ChunkStep, Tensor] | None,
        need: Tensor,
        row: int,
        recorder: Recorder,
        step: int,
    ) -> None:
        if received is None or not len(need):
            columns, observation = stage.columns[:1], stage.observe(torch.tensor([0]))
        else:
            result, slots = received
            columns, observation = stage.columns[slots[need]], result.observation.rows(need)
        _, output = self._inference.act(
            observation, columns, stream=(self._seed, "bootstrap", step, row)
        )
        if received is not None and len(need) and output.values is not None:
            _, slots = received
            recorder.write_next_values(row, stage.batch_columns[slots[need]], output.values)
