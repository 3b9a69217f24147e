"""Where the episodes of a LeRobot data set lie: its `meta/` folder, format v2.0, v2.1 and v3.0.

v2 keeps `episodes.jsonl` and one Parquet file, and one MP4 file a camera, per episode. v3 keeps
`episodes/**/*.parquet`, and its Parquet and MP4 files hold several episodes each.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from joyrlinf_core.errors import DemonstrationError, MissingExtraError

_VERSIONS = ("v2.0", "v2.1", "v3.0")


@dataclass(frozen=True)
class EpisodeFiles:
    """Where one episode lies.

    Attributes:
        index: `episode_index`.
        prompt: Its instruction; the first one if it has several.
        length: L, steps.
        data: Parquet file that holds it.
        videos: Camera -> (MP4 file, second in it at which the episode starts).
    """

    index: int
    prompt: str
    length: int
    data: Path
    videos: Mapping[str, tuple[Path, float]]


def read_info(directory: Path) -> dict[str, Any]:
    """Return `meta/info.json`; the keys that joyrl uses are there.

    Raises:
        DemonstrationError: It is missing, damaged, or of a version that joyrl does not read.
    """
    path = directory / "meta" / "info.json"
    with explained(path):
        info = json.loads(path.read_text(encoding="utf-8"))
    version = info.get("codebase_version") if isinstance(info, dict) else None
    if version not in _VERSIONS:
        raise DemonstrationError(
            f"{path}: codebase_version is {version!r}; joyrl reads {', '.join(_VERSIONS)}",
            fix="convert the data set with LeRobot's own converter",
        )
    lacking = [key for key in ("features", "fps", "data_path") if key not in info]
    if lacking:
        raise DemonstrationError(f"{path} lacks {', '.join(lacking)}")
    return info


def read_episodes(
    directory: Path, info: Mapping[str, Any], cameras: Sequence[str]
) -> list[EpisodeFiles]:
    """Return where every episode lies, ordered by its index.

    Args:
        directory: The data set.
        info: As `read_info` returns it.
        cameras: Image features; those of dtype `video` are looked up below `videos/`.

    Raises:
        DemonstrationError: The list of episodes is missing, damaged or incomplete.
        MissingExtraError: v3 needs the extra `lerobot` for it.
    """
    is_v3 = info["codebase_version"].startswith("v3")
    rows = _rows_v3(directory) if is_v3 else _rows_v2(directory, info)
    filmed = [name for name in cameras if info["features"][name]["dtype"] == "video"]
    try:
        episodes = [_locate(directory, info, filmed, row) for row in rows]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise DemonstrationError(
            f"{directory}/meta: an episode lacks an entry, or it is wrong: {error}"
        ) from error
    return sorted(episodes, key=lambda episode: episode.index)


def import_reader(module: str) -> Any:
    """Import a module of the extra `lerobot`.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError("lerobot", "reading a LeRobot data set") from error


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what readers raise about a file into a `DemonstrationError` that names it."""
    try:
        yield
    except FileNotFoundError:
        raise DemonstrationError(f"no LeRobot data set: {path} is missing") from None
    except (OSError, ValueError, LookupError) as error:
        raise DemonstrationError(f"can't read {path}: {error}") from error


def _rows_v2(directory: Path, info: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return `meta/episodes.jsonl`, with the number of the folder of each episode."""
    path = directory / "meta" / "episodes.jsonl"
    per_chunk = info.get("chunks_size", 1000)
    with explained(path):
        lines = path.read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines if line.strip()]
        return [{**row, "episode_chunk": row["episode_index"] // per_chunk} for row in rows]


def _rows_v3(directory: Path) -> list[dict[str, Any]]:
    """Return the rows of `meta/episodes/`, without the statistics of each episode."""
    parquet = import_reader("pyarrow.parquet")
    folder = directory / "meta" / "episodes"
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.glob("**/*.parquet")):
        with explained(path):
            table = parquet.read_table(path)
            kept = [name for name in table.column_names if not name.startswith("stats/")]
            rows += table.select(kept).to_pylist()
    if not rows:
        raise DemonstrationError(f"{folder} lists no episode")
    return rows


def _locate(
    directory: Path, info: Mapping[str, Any], filmed: Sequence[str], row: Mapping[str, Any]
) -> EpisodeFiles:
    """Fill the path templates of info.json for one row of the list of episodes."""
    is_v3 = "data/chunk_index" in row
    videos: dict[str, tuple[Path, float]] = {}
    for camera in filmed:
        place = _place(row, f"videos/{camera}") if is_v3 else row
        start_s = float(row[f"videos/{camera}/from_timestamp"]) if is_v3 else 0.0
        path = _inside(directory, info["video_path"], {**place, "video_key": camera})
        videos[camera] = (path, start_s)
    return EpisodeFiles(
        index=int(row["episode_index"]),
        prompt=str(row["tasks"][0]),
        length=int(row["length"]),
        data=_inside(directory, info["data_path"], _place(row, "data") if is_v3 else row),
        videos=videos,
    )


def _place(row: Mapping[str, Any], prefix: str) -> dict[str, int]:
    """Return the v3 numbers of a file, as the path templates call them."""
    return {name: int(row[f"{prefix}/{name}"]) for name in ("chunk_index", "file_index")}


def _inside(directory: Path, template: str, values: Mapping[str, Any]) -> Path:
    """Return a filled path template, which must stay inside the data set."""
    path = directory / template.format_map(values)
    if not path.resolve().is_relative_to(directory.resolve()):
        raise ValueError(f"{template!r} leads out of the data set")
    return path
