"""Pictures of a LeRobot data set: encoded bytes in a column, or frames of an MP4 file."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from joyrlinf_core.demos.lerobot_layout import explained, import_reader
from joyrlinf_core.errors import DemonstrationError


def decode_cells(cells: Iterable[Any], source: Path) -> np.ndarray:
    """Decode the cells of an image column.

    Args:
        cells: `{"bytes": ..., "path": ...}` or plain bytes, PNG or JPEG.
        source: File that they come from, for messages.

    Returns:
        uint8 [F, H, W, 3], RGB.

    Raises:
        DemonstrationError: A cell holds no picture.
        MissingExtraError: The extra `lerobot` is not installed.
    """
    image = import_reader("PIL.Image")
    pictures: list[np.ndarray] = []
    for cell in cells:
        encoded = cell.get("bytes") if isinstance(cell, Mapping) else cell
        if not isinstance(encoded, bytes):
            raise DemonstrationError(f"{source}: pictures are not embedded as bytes")
        with explained(source), image.open(io.BytesIO(encoded), formats=("PNG", "JPEG")) as picture:
            pictures.append(np.asarray(picture.convert("RGB")))
    return np.stack(pictures)


def read_video(path: Path, start_s: float, steps: np.ndarray, fps: float) -> np.ndarray:
    """Decode the frames of some steps of an episode.

    Args:
        path: MP4 file.
        start_s: Second at which the episode starts in it.
        steps: int64 [F], rising steps of the episode.
        fps: Steps per second.

    Returns:
        uint8 [F, H, W, 3], RGB.

    Raises:
        DemonstrationError: The file is missing, damaged or too short.
        MissingExtraError: The extra `lerobot` is not installed.
    """
    av = import_reader("av")
    wanted_s = start_s + steps / fps
    half_s = 0.5 / fps
    pictures: list[np.ndarray] = []
    with explained(path), av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        # Seeking goes back to the key frame at or before that time.
        container.seek(int(max(0.0, wanted_s[0] - half_s) / stream.time_base), stream=stream)
        for frame in container.decode(stream):
            if frame.time is None or frame.time < wanted_s[len(pictures)] - half_s:
                continue
            if frame.time > wanted_s[len(pictures)] + half_s:
                break
            pictures.append(frame.to_ndarray(format="rgb24"))
            if len(pictures) == len(steps):
                return np.stack(pictures)
    raise DemonstrationError(f"{path} has no frame at {wanted_s[len(pictures)]:.3f} s")
