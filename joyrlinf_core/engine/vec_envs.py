"""The vector envs of one rank, one per pipeline stage, and whether evaluation can use them too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from joyrlinf_core.engine.env_service import EnvService
from joyrlinf_core.engine.remote_envs import build_remote_vec_envs
from joyrlinf_core.envs.factory import build_vec_env
from joyrlinf_core.plan.batching import evaluation_is_on

if TYPE_CHECKING:
    from contextlib import ExitStack

    from joyrlinf_core.config.schema import EnvConfig
    from joyrlinf_core.engine.context import JobContext
    from joyrlinf_core.engine.links import Links
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


def open_vec_envs(
    context: JobContext, links: Links, opened: ExitStack, *, evaluation: bool = False
) -> list[VecEnv]:
    """Return the vector envs in which this rollout rank acts, one per stage.

    Args:
        context: This worker.
        links: Process groups.
        opened: Closes them.
        evaluation: For evaluations with envs of their own, else for training.
    """
    config, place = context.plan.config, context.plan.placement
    if place.env_ranks != place.rollout_ranks:
        group = links.get("observations")
        return build_remote_vec_envs(context, group, opened, evaluation=evaluation)
    return build_vec_envs(context, config.eval_env if evaluation else config.env.train, opened)


def serve_vec_envs(context: JobContext, links: Links, opened: ExitStack) -> None:
    """Simulate for rollout ranks that are other processes, if this rank has to.

    Args:
        context: This worker.
        links: Process groups.
        opened: Waits until those ranks need it no more.
    """
    config, place = context.plan.config, context.plan.placement
    if place.env_ranks == place.rollout_ranks or context.rank not in place.env_ranks:
        return
    group = links.get("observations")
    assert group is not None, "env ranks are in the group of the observations"
    apart = evaluation_is_on(config) and not can_share(config.env.train, config.eval_env)
    opened.enter_context(EnvService(context, group, evaluation=apart))
