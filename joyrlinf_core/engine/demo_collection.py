"""Demonstrations for SFT: read from disk, or collected with scripted experts on all ranks."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from joyrlinf_core.demos import dataset, store
from joyrlinf_core.engine.stopping import end_together
from joyrlinf_core.envs.demonstrations import Recipe, collect
from joyrlinf_core.errors import RunFailedError

if TYPE_CHECKING:
    from joyrlinf_core.batch.demonstration import Demonstration
    from joyrlinf_core.comm.collectives import Collectives
    from joyrlinf_core.config.schema import EnvConfig, SftConfig
    from joyrlinf_core.engine.context import JobContext


def gather_demonstrations(
    context: JobContext, sft: SftConfig, collectives: Collectives
) -> list[Demonstration]:
    """Return all demonstrations, the same on every rank and for any number of ranks.

    Collected ones are kept in `demos/` of the run directory and read back from there, so that every
    rank trains on what is on disk.

    Raises:
        RunFailedError: No scripted episode was successful.
        JobStopped: A stop was asked for; on all ranks.
    """
    env = context.plan.config.env.train
    if sft.dataset:
        return dataset.read(Path(sft.dataset), env, frame_stride=sft.frame_stride)
    root = context.run_dir.root
    parts = [root / "demo_parts" / f"rank{rank}" for rank in range(collectives.world_size)]
    _collect(context, sft, collectives, parts[collectives.rank])
    if collectives.is_main:
        _merge(parts, root / "demos", context, sft)
    collectives.barrier()
    demonstrations = store.read(root / "demos")
    if not demonstrations:
        raise RunFailedError(
            f"none of {sft.num_demos} scripted episodes was successful",
            fix="lower sft.expert_noise or raise sft.max_episode_steps",
        )
    return demonstrations


def _demo_env(env: EnvConfig, sft: SftConfig) -> EnvConfig:
    """Return the env section with the time limit of scripted episodes."""
    if sft.max_episode_steps is None:
        return env
    return env.model_copy(update={"max_episode_steps": sft.max_episode_steps})


def _collect(
    context: JobContext, sft: SftConfig, collectives: Collectives, directory: Path
) -> None:
    """Play this rank's share of the scripted episodes and store the successful ones.

    Returns when all ranks have.
    """
    config = context.plan.config
    env, seed = _demo_env(config.env.train, sft), config.runner.seed
    mine = range(collectives.rank, sft.num_demos, collectives.world_size)
    found = collect(
        env,
        Recipe(sft.expert_noise, sft.frame_stride, sft.steps_after_success),
        seed=seed,
        indices=mine,
        num_workers=max(1, env.num_workers * config.rollout.pipeline_stage_num),
    )
    kept: list[Demonstration] = []
    played = 0
    context.emitter.phase("demos", 0, total=sft.num_demos)
    with closing(found):
        while played < len(mine) and not context.stop_requested():
            demonstration = next(found)
            played += 1
            context.emitter.phase("demos", 0, done=played, total=sft.num_demos)
            if demonstration.success:
                kept.append(demonstration)
    if played == len(mine):
        store.write(directory, kept, env=env, sft=sft, seed=seed)
    end_together(collectives, unfinished=played < len(mine))


def _merge(parts: list[Path], directory: Path, context: JobContext, sft: SftConfig) -> None:
    """Write the ranks' demonstrations as one set, in the order of their numbers."""
    env, seed = _demo_env(context.plan.config.env.train, sft), context.plan.config.runner.seed
    attempted = [env.demo_episode(seed, index) for index in range(sft.num_demos)]
    place = {episode: index for index, episode in enumerate(attempted)}
    demonstrations = sorted(
        (demo for part in parts for demo in store.read(part)),
        key=lambda demo: place[demo.episode],
    )
    store.write(directory, demonstrations, env=env, sft=sft, seed=seed, attempted=attempted)
    shutil.rmtree(directory.parent / "demo_parts")
