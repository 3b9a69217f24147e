"""Rollout: the policy acts in the envs of this rank, chunk step after chunk step.

While the envs of one stage simulate a chunk, the policy infers for the next stage.

Where things are, here and in `stage.py`, `recorder.py` and `inference.py`:

- env id: number of an env among those of all ranks; it names the env's random numbers and group.
- slot: place of an env in its stage, which is one vector env of this rank.
- column: place of an env in this rank's batch, its second axis; stage after stage, slot by slot.
- t: place of a chunk step in the batch, its first axis; counts on over the epochs of a rollout.
- row: place in the result of one call, be it of the policy or of the simulators. Only slots that
  play take part in a call, so row i is about `slots[i]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from joyrlinf_core.batch import layout
from joyrlinf_core.batch.metrics import Metric
from joyrlinf_core.engine.inference import Inference
from joyrlinf_core.engine.recorder import Recorder
from joyrlinf_core.engine.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from joyrlinf_core.batch.rollout import RolloutBatch
    from joyrlinf_core.engine.context import JobContext
    from joyrlinf_core.engine.stage import Received
    from joyrlinf_core.envs.base import VecEnv
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
        index = plan.placement.rollout_ranks.index(context.rank)
        self._columns = plan.batch.num_envs // len(plan.placement.rollout_ranks)
        env_ids = torch.tensor(layout.env_ids(index, self._columns))
        size = self._columns // len(envs)
        self._inference = Inference(
            policy,
            context.device,
            num_envs=plan.batch.num_envs,
            micro_batch=config.env.train.infer_micro_batch_size,
            lockstep_rows=size if lockstep else 0,
        )
        self.stages = [
            Stage(
                env,
                config.env.train,
                env_ids=env_ids[s * size : (s + 1) * size],
                first_column=s * size,
                group_size=plan.batch.group_size,
                seed=config.runner.seed,
                final_frames=self._has_value_head,
            )
            for s, env in enumerate(envs)
        ]
        self._group = env_ids // plan.batch.group_size
        self._seed = config.runner.seed

    @property
    def next_episode(self) -> int:
        """First episode number that no env has begun; resuming starts there under auto-reset."""
        return max(int(stage.episode.max()) for stage in self.stages) + 1

    def collect(
        self, step: int, *, version: Callable[[], int], first_episode: int
    ) -> tuple[RolloutBatch, dict[str, Metric]]:
        """Play one rollout.

        Args:
            step: Training step, counted from 0; names the random streams.
            version: Called before each chunk step; may put new weights into the policy, and returns
                the version of those that are to act. What it raises ends the rollout.
            first_episode: Number of the first episode of this rollout, where envs are reset.

        Returns:
            The batch of this rank's columns, and its counters.
        """
        recorder = Recorder(self._plan.t_eff, self._columns, self._plan.chunk_size, self._group)
        for epoch in range(self._plan.rollout_epochs):
            first = epoch * self._plan.chunk_steps
            last = first + self._plan.chunk_steps - 1
            for t in range(first, last + 1):
                acting = version()
                for stage in self.stages:
                    if t == first:
                        with self._timer("rollout/reset"):
                            stage.begin_epoch(first_episode + epoch)
                    else:
                        self._receive(stage, t - 1, recorder, step)
                    self._decide(stage, t, recorder, step, acting)
                self._context.emitter.phase("rollout", step, done=t + 1, total=self._plan.t_eff)
            for stage in self.stages:
                self._receive(stage, last, recorder, step, epoch_ends=True)
        counters = {
            "env/steps": Metric(recorder.env_steps, kind="sum"),
            "rollout/policy_rows": Metric(recorder.policy_rows, kind="sum"),
        }
        return recorder.batch(), counters

    def abandon(self) -> None:
        """Leave a rollout that `version` has ended, so that the envs can be used again."""
        for stage in self.stages:
            stage.drain()

    def _decide(self, stage: Stage, t: int, recorder: Recorder, step: int, version: int) -> None:
        """Infer for the playing slots of a stage and start their chunk."""
        recorder.write_episode(t, stage.columns, episode=stage.episode, task=stage.task)
        slots = stage.slots()
        stream = (self._seed, "rollout", step, t)
        if not len(slots):
            self._idle_call(stage, "rollout/predict", stream)
            return
        with self._timer("rollout/predict"):
            observation = stage.observe(slots)
            inputs, output = self._inference.act(observation, stage.env_ids[slots], stream=stream)
        recorder.write_decision(
            t, stage.columns[slots], inputs=inputs, output=output, version=version
        )
        stage.send(slots, output.actions.cpu())

    def _receive(
        self, stage: Stage, t: int, recorder: Recorder, step: int, *, epoch_ends: bool = False
    ) -> None:
        """Wait for a stage's chunk; ask for the values that a bootstrap needs, and no others."""
        with self._timer("rollout/env_wait"):
            received = stage.receive(t, recorder)
        if self._has_value_head:
            self._bootstrap(stage, received, t, recorder, step, epoch_ends=epoch_ends)

    def _bootstrap(
        self,
        stage: Stage,
        received: Received | None,
        t: int,
        recorder: Recorder,
        step: int,
        *,
        epoch_ends: bool,
    ) -> None:
        """Record the value of the observation after chunk step t where an episode was cut."""
        stream = (self._seed, "bootstrap", step, t)
        cut = _cut_rows(received, epoch_ends=epoch_ends)
        if received is None or not len(cut):
            self._idle_call(stage, "rollout/bootstrap", stream)
            return
        slots = received.slots[cut]
        with self._timer("rollout/bootstrap"):
            observation = received.result.observation.rows(cut)
            _, output = self._inference.act(observation, stage.env_ids[slots], stream=stream)
            if output.values is not None:
                recorder.write_next_values(t, stage.columns[slots], output.values)

    def _idle_call(self, stage: Stage, phase: str, stream: tuple[int | str, ...]) -> None:
        """Call the policy for nothing where other ranks need this one's shards of the weights."""
        if self._lockstep:
            with self._timer(phase):
                self._inference.act(
                    stage.observe(torch.tensor([0])), stage.env_ids[:1], stream=stream
                )


def _cut_rows(received: Received | None, *, epoch_ends: bool) -> Tensor:
    """Return the rows int64 [m] whose episode was cut by its time limit or by the epoch's end."""
    if received is None:
        return torch.zeros(0, dtype=torch.int64)
    result = received.result
    cut = result.truncations.any(dim=1)
    if epoch_ends:
        cut = cut | ~(result.terminations | result.truncations).any(dim=1)
    return cut.nonzero().squeeze(1)
