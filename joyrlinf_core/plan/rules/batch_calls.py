"""JR1xx: envs per policy call, in evaluation and in rollout."""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm

from joyrlinf_core.errors import Finding
from joyrlinf_core.plan.batching import violations
from joyrlinf_core.plan.rules.batch import READS
from joyrlinf_core.plan.rules.rule import CLUSTER, RuleContext, amount, finding, rule

_MICRO = "env.train.infer_micro_batch_size"
_SEARCHED = 4096
"""Sizes of a call on either side that are looked at."""


@rule(
    "JR109",
    reads=(*CLUSTER, "rollout.pipeline_stage_num", "env.eval"),
    passes={"env.eval.total_num_envs": 2, "rollout.pipeline_stage_num": 2},
    fails={"env.eval.total_num_envs": 3, "rollout.pipeline_stage_num": 2},
)
def eval_envs_divide(context: RuleContext) -> Iterator[Finding]:
    """Evaluation envs spread evenly over ranks and stages.

    Every env rank and stage has the same number of evaluation envs, and where the policy runs on
    other ranks, each of these answers the same number.

    Example: 500 envs do not divide over 8 ranks; 496 and 504 do. `env.eval.num_episodes` may be any
    number: a free env takes the next episode.
    """
    env, placement = context.config.env.eval, context.placement
    if env is None or placement is None:
        return
    stages = context.config.rollout.pipeline_stage_num
    ranks = lcm(len(placement.env_ranks), len(placement.rollout_ranks))
    unit, envs = ranks * stages, env.total_num_envs
    if envs % unit:
        named = amount(len(placement.env_ranks), "env rank")
        if placement.rollout_ranks != placement.env_ranks:
            others = amount(len(placement.rollout_ranks), "rollout rank")
            named = f"{ranks}, for {named} and {others},"
        message = (
            f"evaluation envs do not divide: {envs} % ({named} x "
            f"{amount(stages, 'stage')}) = {envs % unit}"
        )
        path, below = "env.eval.total_num_envs", envs // unit * unit
        changes = [{path: value} for value in (below, below + unit) if value]
        yield finding("JR109", (path,), message, context.fix("JR109", *changes))


@rule(
    "JR111",
    reads=(*READS, _MICRO),
    passes={_MICRO: 20},
    fails={_MICRO: 30},
)
def policy_calls_are_even(context: RuleContext) -> Iterator[Finding]:
    """The envs of a stage make up whole inference micro-batches.

    `env.train.infer_micro_batch_size` bounds the rows of one call; 0 takes all envs of a stage at
    once. A last call with few rows costs almost as much as a full one, and a world model compiles
    another shape for it.

    Example: 32 envs in calls of 12 are 12 + 12 + 8; 8 and 16 give even calls. A warning.
    """
    shape, size = context.shape, context.config.env.train.infer_micro_batch_size
    if shape is None or size == 0 or violations(shape) & {"JR101", "JR102", "JR110"}:
        return
    envs = shape.num_envs // (shape.rollout_ranks * shape.stages)
    if envs == 0 or envs % size == 0:
        return
    if size > envs:
        message = f"infer_micro_batch_size {size} has no effect: a call has {envs} envs at most"
    else:
        message = (
            f"policy calls are uneven: {envs} envs per rank and stage % infer_micro_batch_size "
            f"{size} = {envs % size}"
        )
    either_side = (range(size - 1, 0, -1)[:_SEARCHED], range(size + 1, envs + 1)[:_SEARCHED])
    near = [next((v for v in values if envs % v == 0), None) for values in either_side]
    better = [value for value in near if value] if size < envs else [0, envs]
    changes = [{_MICRO: value} for value in better]
    yield finding("JR111", (_MICRO,), message, context.fix("JR111", *changes), "warning")
