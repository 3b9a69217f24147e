"""Builds what the workers of a plan build from it: rollouts, shards, optimizer steps, losses.

The test double of a run. It cuts with the numbers of the plan and the real code of `engine/`,
`batch/` and `algorithms/`, and fails where something does not come out even. Only what has no part
in the arithmetic is smaller: the policy's inputs are one number, an action has two dims at most,
and batches above `LARGEST` numbers are cut as ranges, without tensors.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from joyrlinf_core.algorithms import aggregation
from joyrlinf_core.algorithms.objective import Objective
from joyrlinf_core.batch import minibatch
from joyrlinf_core.batch.flatten import flatten
from joyrlinf_core.batch.rollout import RolloutBatch
from joyrlinf_core.plan.run_plan import RunPlan

LARGEST = 40_000


def build_worker_batches(plan: RunPlan) -> None:
    """Build the batches of every rank and role."""
    check_envs(plan)
    check_shards(plan)
    check_evaluation(plan)
    check_update(plan)


def check_envs(plan: RunPlan) -> None:
    """Every env rank steps as many envs, in stages of whole groups, each env once."""
    batch, stages = plan.batch, plan.config.rollout.pipeline_stage_num
    ranks = [rank for rank in plan.ranks if "env" in rank.roles]
    assert tuple(rank.rank for rank in ranks) == plan.placement.env_ranks
    first = 0
    for rank in ranks:
        assert (rank.first_env, rank.envs) == (first, batch.envs_per_rank)
        assert rank.groups * batch.group_size == rank.envs
        first += rank.envs
    assert first == batch.num_envs == plan.config.env.train.total_num_envs
    assert batch.envs_per_stage * stages == batch.envs_per_rank
    assert batch.envs_per_stage >= 1
    assert batch.envs_per_stage % batch.group_size == 0, "a stage holds whole groups"
    assert all(rank.roles for rank in plan.ranks), "no rank is idle"
    env, chunk = plan.config.env.train, plan.batch.chunk_size
    assert batch.chunk_steps * chunk == env.steps_per_epoch
    assert env.auto_reset or env.max_episode_steps <= env.steps_per_epoch


def check_shards(plan: RunPlan) -> None:
    """Every column of every rollout rank goes to one actor, in whole groups."""
    batch = plan.batch
    sent = dict.fromkeys(plan.placement.rollout_ranks, 0)
    received = dict.fromkeys(plan.placement.actor_ranks, 0)
    for shard in plan.shards:
        assert shard.columns == shard.groups * batch.group_size > 0
        assert shard.source_column == sent[shard.source], "in order, without a gap"
        assert shard.destination_column == received[shard.destination]
        sent[shard.source] += shard.columns
        received[shard.destination] += shard.columns
    assert set(received.values()) == {batch.columns_per_actor}
    assert len(set(sent.values())) == 1
    assert sum(sent.values()) == batch.num_envs


def check_evaluation(plan: RunPlan) -> None:
    """Evaluation has an env on every stage of every rank, and episodes to play."""
    config = plan.config
    if not plan.batch.eval_episodes:
        return
    env, per = config.eval_env, len(plan.placement.env_ranks) * config.rollout.pipeline_stage_num
    assert env.total_num_envs % per == 0
    assert env.total_num_envs >= per
    last = env.eval_episode(plan.batch.eval_episodes - 1)
    assert 0 <= last.task < len(env.task_prompts)
    assert env.action_dim == config.env.train.action_dim, "one policy acts in both"


def check_update(plan: RunPlan) -> None:
    """One actor trains on its rollout: advantages, rows, optimizer steps, micro-batches, loss."""
    config, batch = plan.config, plan.batch
    actor = config.actor
    n, steps = batch.samples_per_actor, batch.optimizer_steps_per_epoch
    per_step = actor.micro_batch_size * actor.gradient_accumulation_steps
    assert n == batch.t_eff * batch.columns_per_actor > 0
    assert steps * per_step == n
    if n * batch.chunk_size > LARGEST:
        return
    rollout = make_rollout(plan)
    objective = Objective(config.algorithm, config.env.train)
    flat = flatten(rollout, objective.advantages(rollout), config.algorithm.logprob_type)
    assert flat.num_rows == n
    cut = minibatch.minibatch_rows(
        flat.group, steps, seed=config.runner.seed, step=0, update_epoch=0
    )
    assert torch.equal(torch.cat(cut).sort().values, torch.arange(n))
    for rows in cut:
        parts = minibatch.micro_batches(rows, actor.micro_batch_size)
        assert [len(part) for part in parts] == (
            [actor.micro_batch_size] * actor.gradient_accumulation_steps
        )
    # One loss, of the rows that a loss is made of: levels and shapes have to fit.
    rows = flat.rows(cut[0][: actor.micro_batch_size])
    active = objective.active_rows(flat, cut[0])
    assert set(active.tolist()) <= set(cut[0].tolist())
    logprobs = torch.zeros(len(rows.group), batch.chunk_size, action_dims(plan), requires_grad=True)
    values = rows.prev_values if actor.model.add_value_head else None
    entropy = torch.zeros(len(rows.group)) if actor.model.has_entropy else None
    output = objective.loss(
        rows, aggregation.normaliser(1.0, steps), logprobs=logprobs, entropy=entropy, values=values
    )
    assert output.loss.shape == ()


def action_dims(plan: RunPlan) -> int:
    """D, or fewer: every dimension is treated alike."""
    return min(plan.batch.action_dim, 2)


def make_rollout(plan: RunPlan) -> RolloutBatch:
    """Return a rollout of one actor in which every episode runs into its time limit."""
    batch = plan.batch
    t, b, c, d = batch.t_eff, batch.columns_per_actor, batch.chunk_size, action_dims(plan)
    dones = torch.zeros(t, b, c, dtype=torch.bool)
    dones[batch.chunk_steps - 1 :: batch.chunk_steps, :, -1] = True
    epoch = torch.arange(t) // batch.chunk_steps
    rollout = RolloutBatch(
        inputs={"state": torch.zeros(t, b, 1)},
        replay={},
        actions=torch.zeros(t, b, c, d),
        rewards=torch.arange(b).remainder(3).float().expand(t, b).unsqueeze(2).repeat(1, 1, c),
        dones=dones,
        terminations=torch.zeros_like(dones),
        prev_logprobs=torch.zeros(t, b, c, d),
        played=torch.ones(t, b, dtype=torch.bool),
        episode=epoch.unsqueeze(1).repeat(1, b),
        group=torch.arange(b) // batch.group_size,
        task=torch.zeros(t, b, dtype=torch.int64),
        success=dones.any(dim=2),
        versions=torch.zeros(t, b, dtype=torch.int64),
    )
    if not plan.config.actor.model.add_value_head:
        return rollout
    return replace(rollout, prev_values=torch.zeros(t, b), next_values=torch.zeros(t, b))
