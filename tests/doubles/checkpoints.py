"""A checkpoint that is whole as far as can be told without torch."""

from __future__ import annotations

from pathlib import Path

from joyrlinf_core.checkpoint.manifest import (
    FOLDER,
    META,
    STATE_FILES,
    CheckpointMeta,
    FileRecord,
    sha256_of,
)


def write_checkpoint(step_dir: Path) -> None:
    """Write a `global_step_<N>` directory whose files match its manifest."""
    actor = step_dir / FOLDER
    actor.mkdir(parents=True, exist_ok=True)
    files: dict[str, FileRecord] = {}
    for name in STATE_FILES:
        path = actor / name
        path.write_text(f"{name} of {step_dir.name}")
        files[name] = FileRecord(sha256=sha256_of(path), size_bytes=path.stat().st_size)
    meta = CheckpointMeta(
        step=int(step_dir.name.removeprefix("global_step_")),
        config_hash="",
        world_size=1,
        torch_version="",
        seed=0,
        files=files,
    )
    (actor / META).write_text(meta.model_dump_json())


def corrupt(step_dir: Path) -> None:
    """Change a byte of a checkpoint, as a bad disk does: every size stays as it is."""
    path = step_dir / FOLDER / STATE_FILES[0]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
