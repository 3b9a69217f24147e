"""Demonstrations on disk in joyrl's own format.

A directory holds `meta.json` (`DemoMeta`) and one `episode_000000.npz` per demonstration, whose
arrays are the fields of `Demonstration` (`_LAYOUT`; docs/demonstrations.md). Nothing is pickled.
The directory appears under its name only when it is complete.
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from joyrlinf_core.batch.demonstration import Demonstration
from joyrlinf_core.config.schema import EpisodeId
from joyrlinf_core.errors import DemonstrationError

SCHEMA_VERSION: Literal[1] = 1

_FROZEN = ConfigDict(frozen=True, extra="forbid")

_LAYOUT: dict[str, tuple[np.dtype, int]] = {
    "episode": (np.dtype(np.int64), 1),
    "prompt": (np.dtype(np.str_), 0),
    "state": (np.dtype(np.float32), 2),
    "actions": (np.dtype(np.float32), 2),
    "executed": (np.dtype(np.float32), 2),
    "frame_steps": (np.dtype(np.int64), 1),
    "images": (np.dtype(np.uint8), 5),
    "success": (np.dtype(np.bool_), 0),
}
"""Array name -> (dtype, number of axes) of an episode file; shapes are those of `Demonstration`."""

_Sizes = tuple[int, int, tuple[int, int, int, int]]
"""S, D and (V, H, W, 3): equal for all demonstrations of a directory."""


class DemoSource(BaseModel):
    """How a set of demonstrations was collected."""

    model_config = _FROZEN

    env_type: str
    """`env.train.type` of the simulator."""
    prompts: tuple[str, ...]
    """Instruction of each task, in task order."""
    attempted: tuple[int, ...]
    """Episodes that the expert played, per task, failures included."""
    seed: int
    """Seed of the initial states and of the noise."""
    expert_noise: float
    """Standard deviation of the noise on executed actions, in action units."""
    frame_stride: int
    """Env steps between two pictures."""
    steps_after_success: int
    """Env steps that an episode went on after success."""


class DemoMeta(BaseModel):
    """Content of `meta.json`."""

    model_config = _FROZEN

    schema_version: Literal[1] = SCHEMA_VERSION
    """Version of this format."""
    source: DemoSource
    """How the set was collected."""
    episodes: tuple[int, ...]
    """Stored demonstrations, per task."""
    success_rate: tuple[float, ...]
    """Stored successes / attempted episodes, per task; 0 where none was attempted."""
    num_episodes: int = Field(ge=1)
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


@dataclass(frozen=True)
class DemoSet:
    """A complete directory of demonstrations; episodes are read when they are asked for."""

    directory: Path
    meta: DemoMeta

    def __len__(self) -> int:
        return self.meta.num_episodes

    def __getitem__(self, index: int) -> Demonstration:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return _read_episode(_episode_path(self.directory, index), self.meta)

    def __iter__(self) -> Iterator[Demonstration]:
        return (self[index] for index in range(len(self)))


def write_demos(
    directory: Path, demonstrations: Iterable[Demonstration], source: DemoSource
) -> DemoSet:
    """Write a new directory of demonstrations.

    Args:
        directory: Must not exist; its parents are created.
        demonstrations: At least one, all of the same sizes.
        source: How they were collected.

    Returns:
        The set as it lies on disk.

    Raises:
        DemonstrationError: The directory exists, a demonstration has a wrong shape, dtype or task,
            or the disk refused.
    """
    if directory.exists():
        raise DemonstrationError(
            f"{directory} exists already", fix="name another directory, or remove this one"
        )
    _check_source(source)
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
        try:
            meta = _write_episodes(partial, demonstrations, source)
            text = meta.model_dump_json(indent=2) + "\n"
            (partial / "meta.json").write_text(text, encoding="utf-8")
            partial.chmod(0o755)
            partial.rename(directory)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    except OSError as error:
        raise DemonstrationError(
            f"can't write {directory}: {error.strerror or error}",
            fix="choose a directory that is writable and has room",
        ) from error
    return DemoSet(directory, meta)


def open_demos(directory: Path) -> DemoSet:
    """Open a directory that `write_demos` wrote.

    Raises:
        DemonstrationError: `meta.json` or an episode file is missing, or `meta.json` is invalid or
            of another version.
    """
    meta = _read_meta(directory / "meta.json")
    missing = [
        path.name
        for path in (_episode_path(directory, index) for index in range(meta.num_episodes))
        if not path.is_file()
    ]
    if missing:
        raise DemonstrationError(
            f"{directory} lacks {len(missing)} of {meta.num_episodes} episodes, first {missing[0]}",
            fix="collect the demonstrations again",
        )
    return DemoSet(directory, meta)


def check_demonstration(demo: Demonstration, name: str) -> None:
    """Check dtypes and shapes of a demonstration.

    Args:
        demo: What to check.
        name: How messages call it, for example its file.

    Raises:
        DemonstrationError: A field breaks the contract of `Demonstration`; names the field.
    """
    for field, (dtype, axes) in _LAYOUT.items():
        if field in ("episode", "prompt", "success"):
            continue
        array = getattr(demo, field)
        if array.dtype != dtype or array.ndim != axes:
            raise DemonstrationError(
                f"{name}: {field} is {array.dtype} with {array.ndim} axes, not {dtype} with {axes}"
            )
    steps, frames = len(demo.state), len(demo.images)
    problems = {
        "holds no step": steps == 0,
        f"actions {demo.actions.shape} does not fit {steps} states": len(demo.actions) != steps,
        f"executed {demo.executed.shape} differs from actions {demo.actions.shape}": (
            demo.executed.shape != demo.actions.shape
        ),
        f"{frames} images for {len(demo.frame_steps)} frame_steps": (
            frames != len(demo.frame_steps)
        ),
        "images are not RGB": demo.images.shape[-1] != 3,
        f"frame_steps must rise within [0, {steps})": _not_rising(demo.frame_steps, steps),
        "state or actions hold NaN or infinity": not all(
            bool(np.isfinite(a).all()) for a in (demo.state, demo.actions, demo.executed)
        ),
    }
    broken = [text for text, is_broken in problems.items() if is_broken]
    if broken:
        raise DemonstrationError(f"{name}: {'; '.join(broken)}")


def _not_rising(frame_steps: np.ndarray, steps: int) -> bool:
    """Return whether frame_steps int64 [F] leaves [0, steps) or does not rise."""
    inside = (frame_steps >= 0) & (frame_steps < steps)
    return not (bool(inside.all()) and bool((np.diff(frame_steps) > 0).all()))


def _check_source(source: DemoSource) -> None:
    if len(source.attempted) != len(source.prompts):
        raise DemonstrationError(
            f"{len(source.attempted)} counts of attempted episodes for {len(source.prompts)} tasks"
        )


def _write_episodes(
    directory: Path, demonstrations: Iterable[Demonstration], source: DemoSource
) -> DemoMeta:
    """Write the episode files and return what `meta.json` says about them."""
    episodes = [0] * len(source.prompts)
    successes = [0] * len(source.prompts)
    steps = frames = 0
    sizes: _Sizes | None = None
    for index, demo in enumerate(demonstrations):
        name = f"demonstration {index}"
        check_demonstration(demo, name)
        task = demo.episode.task
        if not 0 <= task < len(source.prompts):
            raise DemonstrationError(f"{name}: task {task} of {len(source.prompts)} tasks")
        own = _sizes(demo)
        sizes = sizes or own
        if own != sizes:
            raise DemonstrationError(
                f"{name}: sizes (state, action, image) are {own}, those before are {sizes}"
            )
        _write_episode(_episode_path(directory, index), demo)
        episodes[task] += 1
        successes[task] += bool(demo.success)
        steps += len(demo.state)
        frames += len(demo.images)
    if sizes is None:
        raise DemonstrationError(
            f"no demonstration to store ({sum(source.attempted)} episodes attempted)",
            fix="lower sft.expert_noise, or raise sft.num_demos",
        )
    state_dim, action_dim, image_shape = sizes
    return DemoMeta(
        source=source,
        episodes=tuple(episodes),
        success_rate=tuple(
            won / tried if tried else 0.0
            for won, tried in zip(successes, source.attempted, strict=True)
        ),
        num_episodes=sum(episodes),
        num_steps=steps,
        num_frames=frames,
        state_dim=state_dim,
        action_dim=action_dim,
        image_shape=image_shape,
    )


def _sizes(demo: Demonstration) -> _Sizes:
    v, h, w, rgb = demo.images.shape[1:]
    return demo.state.shape[1], demo.actions.shape[1], (v, h, w, rgb)


def _episode_path(directory: Path, index: int) -> Path:
    return directory / f"episode_{index:06d}.npz"


def _write_episode(path: Path, demo: Demonstration) -> None:
    with path.open("wb") as file:
        np.savez(
            file,
            episode=np.array(demo.episode, dtype=np.int64),
            prompt=np.array(demo.prompt, dtype=np.str_),
            state=demo.state,
            actions=demo.actions,
            executed=demo.executed,
            frame_steps=demo.frame_steps,
            images=demo.images,
            success=np.array(demo.success, dtype=np.bool_),
        )


def _read_episode(path: Path, meta: DemoMeta) -> Demonstration:
    """Read one episode file and hold it against the contract and `meta.json`."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in _LAYOUT}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DemonstrationError(
            f"{path} is damaged: {error}", fix="collect the demonstrations again"
        ) from error
    if arrays["episode"].shape != (2,) or arrays["prompt"].ndim or arrays["success"].ndim:
        raise DemonstrationError(f"{path}: episode, prompt or success has a wrong shape")
    task, variation = (int(number) for number in arrays["episode"])
    demo = Demonstration(
        episode=EpisodeId(task, variation),
        prompt=str(arrays["prompt"]),
        success=bool(arrays["success"]),
        **{n: arrays[n] for n in ("state", "actions", "executed", "frame_steps", "images")},
    )
    check_demonstration(demo, str(path))
    stated = (meta.state_dim, meta.action_dim, meta.image_shape)
    if _sizes(demo) != stated:
        raise DemonstrationError(
            f"{path}: sizes (state, action, image) are {_sizes(demo)}, meta.json says {stated}"
        )
    return demo


def _read_meta(path: Path) -> DemoMeta:
    try:
        return DemoMeta.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise DemonstrationError(
            f"{path.parent} holds no demonstrations: {path.name} is missing",
            fix="name a directory that `joyrl sft` or write_demos wrote",
        ) from None
    except OSError as error:
        raise DemonstrationError(f"can't read {path}: {error.strerror}") from error
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, entry['loc'])) or 'file'}: {entry['msg']}"
            for entry in error.errors()
        )
        raise DemonstrationError(
            f"{path} is no schema {SCHEMA_VERSION} description of demonstrations: {wrong}",
            fix="collect the demonstrations again",
        ) from error
