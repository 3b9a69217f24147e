"""`meta.json`: what a checkpoint is, and how to tell that it is whole. No torch."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

if TYPE_CHECKING:
    from joyrlinf_core.config.schema import Config

FOLDER = "actor"
META = "meta.json"
STATE_FILES = ("model.pt", "optimizer.pt", "scheduler.pt")

_BLOCK = 1 << 20
_FREE_SECTIONS = {"meta", "runner", "profiler"}


class FileRecord(BaseModel):
    """Size and checksum of one file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: str
    size_bytes: int


class CheckpointMeta(BaseModel):
    """Content of `meta.json`; `files` is filled in by `save`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    step: int
    """Training steps finished."""
    config_hash: str
    """Of the sections that a resumed run must share; see `config_hash`."""
    world_size: int
    torch_version: str
    seed: int
    progress: dict[str, int | float] = Field(default_factory=dict)
    """Where the run stands, as the engine counts it: next episode of the envs, seconds of training
    with earlier attempts, version of the weights."""
    rng_states: dict[str, str] = Field(default_factory=dict)
    """Generator states by name, hexadecimal; see `rng.py`."""
    files: dict[str, FileRecord] = Field(default_factory=dict)


def config_hash(config: Config) -> str:
    """Return the hash of everything in a config that shapes the training itself.

    `runner` and `profiler` are left out, so that a run can be resumed for more steps or with other
    logging; `meta` only describes.
    """
    sections = config.model_dump(mode="json", exclude=_FREE_SECTIONS)
    return hashlib.sha256(json.dumps(sections, sort_keys=True).encode()).hexdigest()


def read_meta(step_dir: Path) -> CheckpointMeta | str:
    """Return the manifest of a checkpoint, or what is wrong with it."""
    path = step_dir / FOLDER / META
    try:
        return CheckpointMeta.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return f"{path} is missing"
    except OSError as error:
        return f"{path} can't be read: {error.strerror}"
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        return f"{path} is no checkpoint manifest: {where}: {first['msg']}"


def problems(step_dir: Path, *, checksums: bool) -> list[str]:
    """Return everything that keeps a checkpoint from being loaded; empty when it is whole.

    Args:
        step_dir: A `global_step_<N>` directory.
        checksums: Also read every file and compare its checksum, and not only its size.
    """
    if not step_dir.is_dir():
        return [f"{step_dir} is no directory"]
    meta = read_meta(step_dir)
    if isinstance(meta, str):
        missing = [name for name in STATE_FILES if not (step_dir / FOLDER / name).is_file()]
        return [meta, *(f"{step_dir / FOLDER / name} is missing" for name in missing)]
    found: list[str] = []
    for name in STATE_FILES:
        path, record = step_dir / FOLDER / name, meta.files.get(name)
        if record is None:
            found.append(f"{META} has no record of {name}")
        elif not path.is_file():
            found.append(f"{path} is missing")
        elif path.stat().st_size != record.size_bytes:
            found.append(f"{path} has {path.stat().st_size} bytes instead of {record.size_bytes}")
        elif checksums and sha256_of(path) != record.sha256:
            found.append(f"{path} has another checksum than {META} says: its content changed")
    return found


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
