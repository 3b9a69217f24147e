"""Reads LeRobot data sets as demonstrations, without LeRobot's own package.

Needs the extra `lerobot` (Parquet, pictures, MP4). Nothing in a data set is executed, and no file
outside its directory is read.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from joyrlinf_core.batch.demonstration import Demonstration
from joyrlinf_core.config.schema import EpisodeId
from joyrlinf_core.demos import checks
from joyrlinf_core.demos.lerobot_layout import (
    EpisodeFiles,
    explained,
    import_reader,
    read_episodes,
    read_info,
)
from joyrlinf_core.demos.lerobot_pictures import decode_cells, read_video
from joyrlinf_core.demos.prompts import match_prompts
from joyrlinf_core.errors import DemonstrationError


@dataclass(frozen=True)
class FeatureNames:
    """Which features of a data set are what.

    Attributes:
        state: Vector that becomes `Demonstration.state`.
        action: Vector that becomes `Demonstration.actions`.
        images: Cameras in order; a `*` stands for all matching features, in the order of info.json.
    """

    state: str = "observation.state"
    action: str = "action"
    images: tuple[str, ...] = ("observation.images.*",)


def is_lerobot(directory: Path) -> bool:
    """Return whether a directory looks like a LeRobot data set."""
    return (directory / "meta" / "info.json").is_file()


class LeRobotDataset:
    """A LeRobot data set directory.

    Args:
        directory: Holds `meta/info.json`.
        names: Features to read.

    Raises:
        DemonstrationError: The metadata is missing, of another version, or lacks a feature.
        MissingExtraError: The extra `lerobot` is not installed.
    """

    def __init__(self, directory: Path, names: FeatureNames | None = None) -> None:
        self.directory = directory
        self._names = names or FeatureNames()
        self._info = read_info(directory)
        self._cameras = self._find_cameras()
        self._episodes = read_episodes(directory, self._info, self._cameras)

    def __len__(self) -> int:
        return len(self._episodes)

    @property
    def prompts(self) -> tuple[str, ...]:
        """Instructions that occur, in the order of their first episode."""
        return tuple(dict.fromkeys(episode.prompt for episode in self._episodes))

    @property
    def cameras(self) -> tuple[str, ...]:
        """Image features, in the order of `Demonstration.images`' axis V."""
        return self._cameras

    def demonstrations(
        self, prompts: Sequence[str] | None = None, *, frame_stride: int = 1
    ) -> Iterator[Demonstration]:
        """Yield episodes in their order; each counts as successful, `executed` equals `actions`.

        Args:
            prompts: Instructions of the env's tasks. Only their episodes are read, and
                `episode.task` indexes this list; case and white space do not count. None takes
                every episode, and `episode.task` indexes `self.prompts`.
            frame_stride: Steps between two pictures that are decoded.

        Yields:
            Demonstrations in the data set's own units; `episode.variation` is its episode index.

        Raises:
            DemonstrationError: No episode matches, or a file is missing, damaged or does not fit.
        """
        task_of = match_prompts(prompts or self.prompts, self.prompts)
        if not task_of:
            raise DemonstrationError(
                f"{self.directory} holds no episode of the tasks {list(prompts or ())};"
                f" its instructions are {list(self.prompts)}",
                fix="choose tasks whose instructions occur in the data set",
            )
        for episode in self._episodes:
            if episode.prompt in task_of:
                yield self._read(episode, task_of[episode.prompt], frame_stride)

    def _find_cameras(self) -> tuple[str, ...]:
        """Return the image features; checks that state and action are there too."""
        features = self._info["features"]
        lacking = [name for name in (self._names.state, self._names.action) if name not in features]
        cameras: list[str] = []
        for pattern in self._names.images:
            matching = fnmatch.filter(features, pattern)
            lacking += [] if matching else [pattern]
            cameras += [name for name in matching if name not in cameras]
        if lacking:
            raise DemonstrationError(
                f"{self.directory} has no feature {', '.join(lacking)};"
                f" it has {', '.join(features)}",
                fix="name the data set's own features (FeatureNames)",
            )
        return tuple(cameras)

    def _read(self, episode: EpisodeFiles, task: int, frame_stride: int) -> Demonstration:
        """Read one episode from its files."""
        table = self._read_rows(episode)
        frame_steps = np.arange(0, episode.length, frame_stride, dtype=np.int64)
        views = [
            read_video(*episode.videos[camera], frame_steps, self._info["fps"])
            if camera in episode.videos
            else decode_cells(table.column(camera).take(frame_steps).to_pylist(), episode.data)
            for camera in self._cameras
        ]
        if len({view.shape for view in views}) > 1:
            sizes = {camera: v.shape[1:] for camera, v in zip(self._cameras, views, strict=True)}
            raise DemonstrationError(
                f"{self.directory}: cameras differ in size: {sizes}",
                fix="name cameras of one size (FeatureNames.images)",
            )
        actions = self._vectors(table, self._names.action, episode)
        demo = Demonstration(
            episode=EpisodeId(task, episode.index),
            prompt=episode.prompt,
            state=self._vectors(table, self._names.state, episode),
            actions=actions,
            executed=actions,
            frame_steps=frame_steps,
            images=np.stack(views, axis=1),
            success=True,
        )
        checks.check(demo, f"{self.directory}, episode {episode.index}")
        return demo

    def _read_rows(self, episode: EpisodeFiles) -> Any:
        """Return the episode's rows as a pyarrow table, checked to be complete and in order."""
        parquet = import_reader("pyarrow.parquet")
        embedded = [camera for camera in self._cameras if camera not in episode.videos]
        columns = {self._names.state, self._names.action, *embedded, "frame_index"}
        with explained(episode.data):
            table = parquet.read_table(
                episode.data,
                columns=sorted(columns),
                filters=[("episode_index", "=", episode.index)],
            )
        if table.column("frame_index").to_pylist() != list(range(episode.length)):
            raise DemonstrationError(
                f"{episode.data}: episode {episode.index} has {table.num_rows} rows;"
                f" {episode.length} in order were expected"
            )
        return table

    def _vectors(self, table: Any, name: str, episode: EpisodeFiles) -> np.ndarray:
        """Return a column of vectors as float32 [L, K], K as info.json says."""
        column = table.column(name).combine_chunks()
        flat = column.flatten() if hasattr(column, "flatten") else column
        values = flat.to_numpy(zero_copy_only=False).astype(np.float32)
        size = math.prod(self._info["features"][name]["shape"])
        if values.size != episode.length * size:
            raise DemonstrationError(
                f"{episode.data}: {name} of episode {episode.index} holds {values.size} numbers,"
                f" not {episode.length} x {size}"
            )
        return values.reshape(episode.length, size)
