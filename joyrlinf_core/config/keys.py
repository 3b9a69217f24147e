"""The tree of config keys: which class a section has, and where a key belongs."""

from __future__ import annotations

import difflib
import types
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Union, cast, get_args, get_origin

from joyrlinf_core import registry
from joyrlinf_core.config.foreign_keys import FOREIGN_KEYS
from joyrlinf_core.config.schema import Config
from joyrlinf_core.config.schema.base import Section

CHOICES: Mapping[str, tuple[registry.Kind, str]] = {
    "env.train": ("envs", "type"),
    "env.eval": ("envs", "type"),
    "actor.model": ("policies", "model_type"),
}
"""Sections whose class is picked by a name in them: path -> (registry kind, key of the name)."""


def section_in(annotation: Any) -> type[Section] | None:
    """Return the section class that an annotation holds, None for a plain value."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    if get_origin(annotation) in (Annotated, Union, types.UnionType):
        for part in get_args(annotation):
            found = section_in(part)
            if found is not None:
                return found
    return None


def sections(cls: type[Section]) -> Iterator[type[Section]]:
    """Yield a section class and those of the sections in it."""
    yield cls
    for field in cls.model_fields.values():
        below = section_in(field.annotation)
        if below is not None:
            yield from sections(below)


def chosen_class(path: str, data: object) -> type[Section] | None:
    """Return the class that the name in a section picks, None if there is no such name.

    Args:
        path: A key of `CHOICES`.
        data: The whole config as plain data.
    """
    kind, key = CHOICES[path]
    name = value_at(data, f"{path}.{key}")
    if not isinstance(name, str):
        return None
    try:
        loaded = registry.load(kind, name)
    except registry.UnknownNameError:
        return None
    return section_in(loaded)


def value_at(data: object, path: str) -> Any:
    """Return the plain value at a dotted path, None if there is none."""
    for name in path.split("."):
        if not isinstance(data, dict) or name not in data:
            return None
        data = cast("dict[str, object]", data)[name]
    return data


def class_at(path: str, data: object) -> type[Section] | None:
    """Return the class of the section at a dotted path (`""`: the root), None if it is none."""
    cls: type[Section] | None = Config
    walked = ""
    for name in path.split(".") if path else []:
        walked = f"{walked}.{name}" if walked else name
        if cls is None or name not in cls.model_fields:
            return None
        base = section_in(cls.model_fields[name].annotation)
        cls = chosen_class(walked, data) or base if walked in CHOICES else base
    return cls


def all_keys(data: object) -> list[str]:
    """Return every dotted key of the schema; `data` picks the simulator and the policy family."""
    return list(_all_keys(tuple(chosen_class(path, data) for path in CHOICES)))


@lru_cache(maxsize=8)
def _all_keys(chosen: tuple[type[Section] | None, ...]) -> tuple[str, ...]:
    classes = dict(zip(CHOICES, chosen, strict=True))

    def visit(cls: type[Section], path: str) -> Iterator[str]:
        for name, field in cls.model_fields.items():
            below = f"{path}.{name}" if path else name
            yield below
            section = classes.get(below) or section_in(field.annotation)
            if section is not None:
                yield from visit(section, below)

    return tuple(visit(Config, ""))


@dataclass(frozen=True)
class Suggestion:
    """What an unknown key may stand for.

    Attributes:
        text: For the message; empty if nothing is near.
        targets: Dotted keys that the user may have meant.
    """

    text: str
    targets: tuple[str, ...]


def suggest(path: str, data: object, written: Container[str] = ()) -> Suggestion:
    """Return what an unknown key may stand for.

    Args:
        path: The unknown key, dotted.
        data: The whole config as plain data.
        written: Dotted keys of the same file: what has a line of its own was not meant.
    """
    section, _, name = path.rpartition(".")
    below = f"{section}." if section else ""
    everything = all_keys(data)
    foreign = FOREIGN_KEYS.get(name)
    if foreign is not None:
        meant = tuple(k for k in (below + foreign.target, foreign.target) if k in everything)
        if meant or not foreign.target:
            return Suggestion(foreign.text, meant)
    elsewhere = tuple(key for key in everything if key.rpartition(".")[2] == name)
    if elsewhere:
        places = [key.rpartition(".")[0] or "the top level" for key in elsewhere]
        return Suggestion(f"this key belongs under {_either(places)}", elsewhere)
    cls = class_at(section, data)
    here = [key for key in cls.model_fields if below + key not in written] if cls else []
    near = difflib.get_close_matches(name, here, n=1, cutoff=0.65)
    if near:
        return Suggestion(f"did you mean `{near[0]}`?", (below + near[0],))
    by_name = {key.rpartition(".")[2]: key for key in reversed(everything) if key not in written}
    far = difflib.get_close_matches(name, by_name, n=1, cutoff=0.8)
    if far:
        return Suggestion(f"did you mean `{by_name[far[0]]}`?", (by_name[far[0]],))
    owners = _owners().get(name)
    if owners:
        return Suggestion(f"delete it; only {_either(owners)} has this key", ())
    return Suggestion("", ())


@lru_cache(maxsize=1)
def _owners() -> Mapping[str, list[str]]:
    """Return which simulators and policy families have a key; it takes a while to look for all."""
    found: dict[str, list[str]] = {}
    for kind, key in dict.fromkeys(CHOICES.values()):
        for one in registry.names(kind):
            for name in registry.load(kind, one).model_fields:
                found.setdefault(name, []).append(f"{key}: {one}")
    return found


def _either(items: list[str]) -> str:
    quoted = [item if item.startswith("the ") else f"`{item}`" for item in items[:3]]
    return " or ".join(quoted)
