"""Reads what `sft.dataset` names: joyrl's own format or a LeRobot data set, for one env."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from joyrlinf_core.batch.demonstration import Demonstration
from joyrlinf_core.config.schema import EnvConfig, EpisodeId
from joyrlinf_core.demos import checks, store
from joyrlinf_core.demos.lerobot import FeatureNames, LeRobotDataset, is_lerobot
from joyrlinf_core.demos.prompts import match_prompts
from joyrlinf_core.errors import DemonstrationError


def read(
    directory: Path, env: EnvConfig, *, frame_stride: int = 1, names: FeatureNames | None = None
) -> list[Demonstration]:
    """Read the demonstrations of an env's tasks.

    Tasks are matched by their instruction, so that the order of tasks and tasks that the env does
    not have do not matter.

    Args:
        directory: A directory that `store.write` wrote, or a LeRobot data set.
        env: Env whose tasks, state, action and image sizes they must have.
        frame_stride: Steps between two pictures; LeRobot only, the own format stores its own.
        names: Features of a LeRobot data set.

    Raises:
        DemonstrationError: Nothing can be read there, no demonstration matches a task, or the sizes
            are not those of the env.
        MissingExtraError: It is a LeRobot data set and the extra `lerobot` is not installed.
    """
    if is_lerobot(directory):
        found = LeRobotDataset(directory, names).demonstrations(
            env.task_prompts, frame_stride=frame_stride
        )
    else:
        found = _own(directory, env)
    expected = (env.state_dim, env.action_dim, env.image_shape)
    demonstrations: list[Demonstration] = []
    for demo in found:
        name = f"{directory}, episode {demo.episode.variation}"
        checks.check_sizes(demo, name, expected, f"env `{env.type}`")
        demonstrations.append(demo)
    return demonstrations


def _own(directory: Path, env: EnvConfig) -> Iterator[Demonstration]:
    """Yield the demonstrations of a joyrl directory with the task numbers of this env."""
    stored = store.read(directory)
    task_of = match_prompts(env.task_prompts, [demo.prompt for demo in stored])
    if not task_of:
        raise DemonstrationError(
            f"{directory} holds no demonstration of the tasks {list(env.task_prompts)};"
            f" its instructions are {list(store.read_meta(directory).prompts)}",
            fix="choose tasks whose instructions occur in the data set",
        )
    for demo in stored:
        if demo.prompt in task_of:
            episode = EpisodeId(task_of[demo.prompt], demo.episode.variation)
            yield dataclasses.replace(demo, episode=episode)
