"""Writes small LeRobot data sets in the real layouts, v2.1 and v3.0, with pyarrow alone."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FPS = 10
HEIGHT, WIDTH = 32, 48
CAMERAS = ("observation.images.front", "observation.images.wrist")


@dataclass(frozen=True)
class Recorded:
    """One episode: state [L, 3], action [L, 2], pictures camera -> [L, H, W, 3]."""

    task: str
    state: np.ndarray
    action: np.ndarray
    pictures: dict[str, np.ndarray]


def record(task: str, length: int, seed: int) -> Recorded:
    """Return a random episode; pictures are of one colour each, so that codecs keep them apart."""
    random = np.random.default_rng(seed)

    def film() -> np.ndarray:
        colours = random.integers(40, 216, (length, 1, 1, 3), dtype=np.uint8)
        return np.tile(colours, (1, HEIGHT, WIDTH, 1))

    return Recorded(
        task=task,
        state=random.normal(size=(length, 3)).astype(np.float32),
        action=random.uniform(-1, 1, (length, 2)).astype(np.float32),
        pictures={camera: film() for camera in CAMERAS},
    )


def write_v2(directory: Path, episodes: list[Recorded], *, video: bool = False) -> None:
    """Write format v2.1: one Parquet file (and one MP4 file a camera) per episode, 2 a folder."""
    chunks_size = 2
    data = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
    film = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
    tasks = list(dict.fromkeys(episode.task for episode in episodes))
    _write_info(directory, "v2.1", data, film, video=video, chunks_size=chunks_size)
    _write_lines(
        directory / "meta/tasks.jsonl", [{"task_index": i, "task": t} for i, t in enumerate(tasks)]
    )
    _write_lines(
        directory / "meta/episodes.jsonl",
        [
            {"episode_index": i, "tasks": [e.task], "length": len(e.state)}
            for i, e in enumerate(episodes)
        ],
    )
    for index, episode in enumerate(episodes):
        place = {"episode_chunk": index // chunks_size, "episode_index": index}
        rows = _rows(episode, index, tasks.index(episode.task), video=video)
        _write_parquet(directory / data.format(**place), rows)
        for camera in CAMERAS if video else ():
            path = directory / film.format(**place, video_key=camera)
            _write_film(path, [episode.pictures[camera]])


def write_v3(directory: Path, episodes: list[Recorded], *, video: bool = False) -> None:
    """Write format v3.0: all episodes but the last in one file, the last in a second one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
    film = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
    tasks = list(dict.fromkeys(episode.task for episode in episodes))
    _write_info(directory, "v3.0", data, film, video=video, chunks_size=1000)
    # pandas writes the index, which holds the text, as a column of its own.
    pq.write_table(
        pa.table({"task_index": list(range(len(tasks))), "__index_level_0__": tasks}),
        directory / "meta/tasks.parquet",
    )
    files = [list(range(len(episodes) - 1)), [len(episodes) - 1]]
    listed = []
    for file_index, indices in enumerate(files):
        place = {"chunk_index": 0, "file_index": file_index}
        rows, start_s = [], 0.0
        for index in indices:
            episode = episodes[index]
            rows += _rows(episode, index, tasks.index(episode.task), video=video)
            entry = {
                "episode_index": index,
                "tasks": [episode.task],
                "length": len(episode.state),
                "data/chunk_index": 0,
                "data/file_index": file_index,
                "stats/action/mean": episode.action.mean(axis=0).tolist(),
            }
            for camera in CAMERAS if video else ():
                entry |= {
                    f"videos/{camera}/chunk_index": 0,
                    f"videos/{camera}/file_index": file_index,
                    f"videos/{camera}/from_timestamp": start_s,
                    f"videos/{camera}/to_timestamp": start_s + len(episode.state) / FPS,
                }
            start_s += len(episode.state) / FPS
            listed.append(entry)
        _write_parquet(directory / data.format(**place), rows)
        for camera in CAMERAS if video else ():
            path = directory / film.format(**place, video_key=camera)
            _write_film(path, [episodes[index].pictures[camera] for index in indices])
    path = directory / "meta/episodes/chunk-000/file-000.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(listed), path)


def _write_info(directory, version, data, film, *, video, chunks_size) -> None:
    camera = {
        "dtype": "video" if video else "image",
        "shape": [HEIGHT, WIDTH, 3],
        "names": ["height", "width", "channels"],
    }
    info = {
        "codebase_version": version,
        "robot_type": "panda",
        "fps": FPS,
        "chunks_size": chunks_size,
        "data_path": data,
        "video_path": film if video else None,
        "features": {
            CAMERAS[0]: camera,
            "observation.state": {"dtype": "float32", "shape": [3], "names": ["x", "y", "z"]},
            CAMERAS[1]: camera,
            "action": {"dtype": "float32", "shape": [2], "names": ["u", "v"]},
            **{
                name: {"dtype": "int64", "shape": [1], "names": None}
                for name in ("frame_index", "episode_index", "index", "task_index")
            },
            "timestamp": {"dtype": "float32", "shape": [1], "names": None},
        },
    }
    (directory / "meta").mkdir(parents=True)
    (directory / "meta/info.json").write_text(json.dumps(info))


def _write_lines(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _rows(episode: Recorded, index: int, task_index: int, *, video: bool) -> list[dict]:
    rows = []
    for step in range(len(episode.state)):
        row = {
            "observation.state": episode.state[step].tolist(),
            "action": episode.action[step].tolist(),
            "timestamp": step / FPS,
            "frame_index": step,
            "episode_index": index,
            "index": step,
            "task_index": task_index,
        }
        for camera in () if video else CAMERAS:
            png = _png(episode.pictures[camera][step])
            row[camera] = {"bytes": png, "path": f"frame-{step:06d}.png"}
        rows.append(row)
    return rows


def _png(picture: np.ndarray) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, format="PNG")
    return buffer.getvalue()


def _write_parquet(path: Path, rows: list[dict]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(rows)
    for name in ("observation.state", "action"):
        column = table.column(name).cast(pa.list_(pa.float32()))
        table = table.set_column(table.column_names.index(name), name, column)
    pq.write_table(table, path)


def _write_film(path: Path, films: list[np.ndarray]) -> None:
    """Write films one after the other, with a key frame every 4 frames and B-frames between."""
    import av

    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=FPS, options={"crf": "8", "bf": "2"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        stream.gop_size = 4
        for picture in np.concatenate(films):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
