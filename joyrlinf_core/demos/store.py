"""Demonstrations on disk in joyrl's own format.

A directory holds `meta.json` (`DemoMeta`) and one `episode_000000.npz` per demonstration, whose
arrays are the fields of `Demonstration` (docs/demonstrations.md). Nothing is pickled. The directory
appears under its name only when it is complete.
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from joyrlinf_core.batch.demonstration import Demonstration
from joyrlinf_core.config.schema import EnvConfig, EpisodeId, SftConfig
from joyrlinf_core.demos import checks
from joyrlinf_core.errors import DemonstrationError

SCHEMA_VERSION: Literal[1] = 1

META_FILE = "meta.json"


class DemoMeta(BaseModel):
    """Content of `meta.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = SCHEMA_VERSION
    """Version of this format."""
    env_type: str
    """`env.train.type` of the simulator."""
    prompts: tuple[str, ...]
    """Instruction of each task, in task order."""
    seed: int
    """Seed of the initial states and of the noise."""
    expert_noise: float
    """Standard deviation of the noise on executed actions, in action units."""
    frame_stride: int
    """Env steps between two pictures."""
    steps_after_success: int
    """Env steps that an episode went on after success."""
    max_episode_steps: int
    """Env steps after which an episode was given up."""
    attempted: tuple[int, ...] | None
    """Episodes that the expert played, per task, failures included; null where unknown."""
    episodes: tuple[int, ...]
    """Stored demonstrations, per task."""
    success_rate: tuple[float, ...] | None
    """Stored successes / attempted, per task; 0 where none was attempted, null where unknown."""
    num_episodes: int = Field(ge=0)
    """Stored demonstrations in all."""
    num_steps: int
    """Their steps in all."""
    num_frames: int
    """Their pictures in all."""
    state_dim: int
    """S."""
    action_dim: int
    """D."""
    image_shape: tuple[int, int, int, int]
    """(V, H, W, 3)."""

    @property
    def sizes(self) -> checks.Sizes:
        """S, D and (V, H, W, 3)."""
        return self.state_dim, self.action_dim, self.image_shape


def write(
    directory: Path,
    demonstrations: Iterable[Demonstration],
    *,
    env: EnvConfig,
    sft: SftConfig,
    seed: int,
    attempted: Sequence[EpisodeId] | None = None,
) -> DemoMeta:
    """Write a new directory of demonstrations.

    Args:
        directory: Must not exist; its parents are created.
        demonstrations: Any number, of the env's sizes.
        env: Env that they were collected in.
        sft: Recipe that they were collected with.
        seed: Seed of the run.
        attempted: Every episode that the expert played. None: unknown.

    Raises:
        DemonstrationError: The directory exists, a demonstration is malformed or does not fit the
            env, or the disk refused.
    """
    if directory.exists():
        raise DemonstrationError(
            f"{directory} exists already", fix="name another directory, or remove this one"
        )
    with _disk_errors(directory):
        directory.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
        try:
            counts = _write_episodes(partial, demonstrations, env)
            meta = _describe(counts, env, sft, seed, attempted)
            text = meta.model_dump_json(indent=2) + "\n"
            (partial / META_FILE).write_text(text, encoding="utf-8")
            partial.chmod(0o755)
            partial.rename(directory)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    return meta


def read_meta(directory: Path) -> DemoMeta:
    """Return the description of a directory that `write` wrote.

    Raises:
        DemonstrationError: It is missing, invalid or of another version.
    """
    path = directory / META_FILE
    try:
        return DemoMeta.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise DemonstrationError(
            f"{directory} holds no demonstrations: {META_FILE} is missing",
            fix="name a directory that joyrl wrote (docs/demonstrations.md)",
        ) from None
    except OSError as error:
        raise DemonstrationError(f"can't read {path}: {error.strerror}") from error
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, entry['loc'])) or 'file'}: {entry['msg']}"
            for entry in error.errors()
        )
        raise DemonstrationError(
            f"{path} does not describe demonstrations in schema {SCHEMA_VERSION}: {wrong}",
            fix="collect the demonstrations again",
        ) from error


def read(directory: Path) -> list[Demonstration]:
    """Read a directory that `write` wrote.

    Raises:
        DemonstrationError: A file is missing, damaged, or breaks the contract of `Demonstration` or
            of `meta.json`.
    """
    meta = read_meta(directory)
    return [_read_episode(directory, index, meta) for index in range(meta.num_episodes)]


def _write_episodes(
    directory: Path, demonstrations: Iterable[Demonstration], env: EnvConfig
) -> list[tuple[int, bool, int, int]]:
    """Write the episode files; return (task, success, steps, frames) of each."""
    counts: list[tuple[int, bool, int, int]] = []
    expected = (env.state_dim, env.action_dim, env.image_shape)
    for index, demo in enumerate(demonstrations):
        name = f"demonstration {index}"
        checks.check(demo, name)
        checks.check_sizes(demo, name, expected, "the env")
        task = demo.episode.task
        if not 0 <= task < len(env.task_prompts):
            raise DemonstrationError(f"{name}: task {task} of {len(env.task_prompts)} tasks")
        with _episode_path(directory, index).open("wb") as file:
            np.savez(
                file,
                episode=np.array(demo.episode, dtype=np.int64),
                prompt=np.array(demo.prompt, dtype=np.str_),
                success=np.array(demo.success, dtype=np.bool_),
                **{field: getattr(demo, field) for field in checks.ARRAYS},
            )
        counts.append((task, demo.success, len(demo.state), len(demo.images)))
    return counts


def _describe(
    counts: Sequence[tuple[int, bool, int, int]],
    env: EnvConfig,
    sft: SftConfig,
    seed: int,
    attempted: Sequence[EpisodeId] | None,
) -> DemoMeta:
    """Return what `meta.json` says about the written episodes."""
    tasks = range(len(env.task_prompts))
    tried = rate = None
    if attempted is not None:
        tried = tuple(sum(episode.task == task for episode in attempted) for task in tasks)
        won = [sum(success for at, success, _, _ in counts if at == task) for task in tasks]
        rate = tuple(w / n if n else 0.0 for w, n in zip(won, tried, strict=True))
    return DemoMeta(
        env_type=env.type,
        prompts=env.task_prompts,
        seed=seed,
        expert_noise=sft.expert_noise,
        frame_stride=sft.frame_stride,
        steps_after_success=sft.steps_after_success,
        max_episode_steps=env.max_episode_steps,
        attempted=tried,
        episodes=tuple(sum(at == task for at, _, _, _ in counts) for task in tasks),
        success_rate=rate,
        num_episodes=len(counts),
        num_steps=sum(steps for _, _, steps, _ in counts),
        num_frames=sum(frames for _, _, _, frames in counts),
        state_dim=env.state_dim,
        action_dim=env.action_dim,
        image_shape=env.image_shape,
    )


def _read_episode(directory: Path, index: int, meta: DemoMeta) -> Demonstration:
    """Read one episode file and hold it against the contract and `meta.json`."""
    path = _episode_path(directory, index)
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {field: file[field] for field in checks.ARRAYS}
            episode, prompt, success = (file[name] for name in ("episode", "prompt", "success"))
    except FileNotFoundError:
        raise DemonstrationError(
            f"{path} is missing; {META_FILE} counts {meta.num_episodes} episodes",
            fix="collect the demonstrations again",
        ) from None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DemonstrationError(
            f"{path} is damaged: {error}", fix="collect the demonstrations again"
        ) from error
    if episode.shape != (2,) or prompt.ndim or success.ndim:
        raise DemonstrationError(f"{path}: episode, prompt or success has a wrong shape")
    demo = Demonstration(
        episode=EpisodeId(int(episode[0]), int(episode[1])),
        prompt=str(prompt),
        success=bool(success),
        **arrays,
    )
    checks.check(demo, str(path))
    checks.check_sizes(demo, str(path), meta.sizes, META_FILE)
    return demo


def _episode_path(directory: Path, index: int) -> Path:
    return directory / f"episode_{index:06d}.npz"


@contextmanager
def _disk_errors(directory: Path) -> Iterator[None]:
    """Say where and why writing failed."""
    try:
        yield
    except OSError as error:
        raise DemonstrationError(
            f"can't write {directory}: {error.strerror or error}",
            fix="choose a directory that is writable and has room",
        ) from error
