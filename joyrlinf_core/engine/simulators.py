"""The vector envs of one rank: one per pipeline stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from joyrlinf_core.envs.factory import build_vec_env

if TYPE_CHECKING:
    from joyrlinf_core.config.schema import EnvConfig
    from joyrlinf_core.engine.context import JobContext
    from joyrlinf_core.envs.base import VecEnv

_SAME_SIMULATORS_EXCEPT = {
    "total_num_envs",
    "num_episodes",
    "rollout_epoch",
    "max_steps_per_rollout_epoch",
    "infer_micro_batch_size",
    "num_workers",
}
"""Keys that differ between training and evaluation without needing other simulators."""


def build_stages(context: JobContext, config: EnvConfig) -> list[VecEnv]:
    """Build this rank's vector envs for training or evaluation.

    Started in parallel, ready on return.
    """
    stages = context.plan.config.rollout.pipeline_stage_num
    ranks = len(context.plan.placement.env_ranks)
    size = max(1, config.total_num_envs // (stages * ranks))
    return [
        build_vec_env(config, size, group_size=context.plan.batch.group_size) for _ in range(stages)
    ]


def can_share(train: EnvConfig, evaluation: EnvConfig) -> bool:
    """Return whether evaluation can play in the training simulators between two rollouts.

    Not under auto-reset, where training episodes are still running then.
    """
    if train.auto_reset or type(train) is not type(evaluation):
        return False
    return train.model_dump(exclude=_SAME_SIMULATORS_EXCEPT) == evaluation.model_dump(
        exclude=_SAME_SIMULATORS_EXCEPT
    )
