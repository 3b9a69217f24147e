"""Presets: ready configs that ship with joyrl.

In a source checkout they are the top-level `presets/`; in an installed wheel the same files lie in
`joyrlinf_core/_presets`. A preset's name is its path below that folder, without `.yaml`.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

import joyrlinf_core
from joyrlinf_core.config.keys import value_at
from joyrlinf_core.config.schema import MetaConfig
from joyrlinf_core.config.source_map import plain
from joyrlinf_core.config.yaml_tree import read_tree
from joyrlinf_core.errors import ConfigError, Finding


@dataclass(frozen=True)
class Preset:
    """A preset and its description."""

    name: str
    path: Path
    meta: MetaConfig


def folder() -> Path:
    """Return the folder that holds the presets."""
    package = Path(joyrlinf_core.__file__).parent
    checkout = package.parent
    # Only a checkout has its pyproject.toml beside the package; site-packages has not.
    if (checkout / "pyproject.toml").is_file() and (checkout / "presets").is_dir():
        return checkout / "presets"
    return package / "_presets"


def names() -> list[str]:
    """Return the names of all presets, sorted."""
    root = folder()
    return sorted(p.relative_to(root).with_suffix("").as_posix() for p in root.rglob("*.yaml"))


def read_meta(path: Path) -> MetaConfig:
    """Return the `meta` block of a preset file.

    Raises:
        ConfigError: The file or its block is broken.
    """
    findings: list[Finding] = []
    tree = read_tree(path.read_bytes(), str(path), findings)
    if findings:
        raise ConfigError(findings)
    meta: object = value_at(plain(tree), "meta") if tree is not None else None
    try:
        return MetaConfig.model_validate(meta or {})
    except ValidationError as error:
        raise ConfigError(message=f"{path}: broken `meta` block: {error}") from error


def listing() -> list[Preset]:
    """Return every preset with its description, sorted by name."""
    root = folder()
    return [Preset(n, root / f"{n}.yaml", read_meta(root / f"{n}.yaml")) for n in names()]


def find(name: str) -> Path | None:
    """Return the file of a preset by its name or an alias, None if there is none."""
    known = names()
    if name in known:
        return folder() / f"{name}.yaml"
    for path in (folder() / f"{one}.yaml" for one in known):
        # Reading YAML takes a while; most files can't hold the alias.
        if name in path.read_text(encoding="utf-8") and name in read_meta(path).aliases:
            return path
    return None


def name_of(path: Path) -> str | None:
    """Return the name of the preset that a file is, None for any other file."""
    try:
        return path.resolve().relative_to(folder().resolve()).with_suffix("").as_posix()
    except (ValueError, OSError):
        return None


def nearest(name: str) -> list[str]:
    """Return names and aliases that look like `name`, the nearest first."""
    known = names() + [alias for preset in listing() for alias in preset.meta.aliases]
    return difflib.get_close_matches(name, known, n=3, cutoff=0.5)
