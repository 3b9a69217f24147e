"""The vector envs of one rank, one per pipeline stage, and whether evaluation can use them too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from joyrlinf_core.envs.factory import build_vec_env

if TYPE_CHECKING:
    from contextlib import ExitStack

    from joyrlinf_core.config.schema import EnvConfig
    from joyrlinf_core.engine.context import JobContext
    from joyrlinf_core.envs.base import VecEnv


def build_vec_envs(context: JobContext, config: EnvConfig, opened: ExitStack) -> list[VecEnv]:
    """Build this rank's vector envs, one per stage, for training or evaluation.

    Their processes start in parallel; the first reset waits for them.

    Args:
        context: This worker.
        config: `env.train` or `env.eval`.
        opened: Closes every env that was built, also when a later one can't be.
    """
    stages = context.plan.config.rollout.pipeline_stage_num
    ranks = len(context.plan.placement.env_ranks)
    size = max(1, config.total_num_envs // (stages * ranks))
    envs: list[VecEnv] = []
    for _ in range(stages):
        env = build_vec_env(config, size, group_size=context.plan.batch.group_size)
        opened.callback(env.close)
        envs.append(env)
    return envs


def can_share(train: EnvConfig, evaluation: EnvConfig) -> bool:
    """Return whether evaluation can play in the training simulators between two rollouts.

    Not under auto-reset, where training episodes are still running then.
    """
    return not train.auto_reset and train.simulator_settings == evaluation.simulator_settings
