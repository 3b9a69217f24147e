"""Other values for a config's keys: what `--set` would make of it, and how a fix names them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from pydantic import ValidationError

from joyrlinf_core.config.schema import Config
from joyrlinf_core.config.schema.base import Section

Change: TypeAlias = Mapping[str, Any]
"""Dotted key -> value; several keys change together."""


def changed(config: Config, changes: Change) -> Config | None:
    """Return a config with other values; None where a section is missing or refuses them.

    Args:
        config: A config, or as much of one as could be read.
        changes: What to change.
    """
    by_section: dict[str, dict[str, Any]] = {}
    for path, value in changes.items():
        section, _, name = path.rpartition(".")
        by_section.setdefault(section, {})[name] = value
    whole: Section | None = config
    for section, values in by_section.items():
        whole = _replaced(whole, section.split("."), values) if whole is not None else None
    return cast("Config | None", whole)


def _replaced(section: Section, path: list[str], values: dict[str, Any]) -> Section | None:
    """Return a section in which the section at `path` has other values."""
    if not path:
        there = section.__dict__
        kept = {name: there[name] for name in section.model_fields_set if name in there}
        try:
            return type(section).model_validate({**kept, **values})
        except ValidationError:
            return None
    inner = section.__dict__.get(path[0])
    if not isinstance(inner, Section):
        return None
    mended = _replaced(inner, path[1:], values)
    # The sections around it may be incomplete, so that they can't be validated again.
    return section.model_copy(update={path[0]: mended}) if mended is not None else None


def told(changes: Sequence[Change]) -> str:
    """Return changes as a fix: `key 1 or 2, or other.key true and third.key 5`."""
    values: dict[str, list[str]] = {}
    for change in changes:
        *first, (last, value) = change.items()
        head = " and ".join([*(f"{key} {yaml_word(v)}" for key, v in first), last])
        values.setdefault(head, []).append(yaml_word(value))
    return ", or ".join(f"{head} {' or '.join(words)}" for head, words in values.items())


def yaml_word(value: object) -> str:
    """Return a value on one line, as `--set` reads it back."""
    return value if isinstance(value, str) else json.dumps(value)
