"""As much of a config as can be built: the sections without what is wrong in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

from pydantic import ValidationError, create_model
from pydantic_core import ErrorDetails

from joyrlinf_core.config.keys import chosen_class, section_in
from joyrlinf_core.config.schema import Config, EnvSection
from joyrlinf_core.config.schema.base import Section

NAMED_KEY = re.compile(r"`(\w+)[:`]")
"""A key of the same section in the message of a validator."""


def narrowed(error: ErrorDetails) -> ErrorDetails:
    """Return an error as one of the key that it is about.

    That of a whole section goes to the first key in it that its message names.
    """
    value = error["input"]
    if error["type"] == "missing" and isinstance(value, (list, tuple)):
        # A list of a fixed length that is too short: the list is wrong, not an item that is absent.
        count = len(cast("tuple[object, ...]", value))
        return {**error, "type": "too_few", "loc": error["loc"][:-1], "ctx": {"count": count}}
    if error["type"] != "value_error" or not isinstance(value, dict):
        return error
    key = next((key for key in NAMED_KEY.findall(error["msg"]) if key in value), None)
    return {**error, "loc": (*error["loc"], key)} if key is not None else error


def build_partial(data: object, unparsed: set[str]) -> Config:
    """Build every section that can be built, leaving out the keys in `unparsed`."""
    around = {key[:i] for key in unparsed for i in range(len(key)) if key[i] == "."}
    pruned = _without(data, "", unparsed, around)
    sections: dict[str, Any] = {}
    for name, field in Config.model_fields.items():
        if name == "env":
            parts: dict[str, Any] = {"eval": None}
            parts.update((k, v) for k, v in _parts(pruned, unparsed) if v is not None)
            sections["env"] = EnvSection.model_construct(None, **parts)
            continue
        cls = section_in(field.annotation)
        if name not in pruned:
            if field.is_required():
                unparsed.add(name)
            continue
        assert cls is not None, "every field of the root is a section"
        value = pruned[name]
        built = None if value is None else _build(cls, name, value, pruned, unparsed)
        if built is not None or value is None:
            sections[name] = built
    return Config.model_construct(**sections)


def _parts(pruned: dict[str, Any], unparsed: set[str]) -> Iterator[tuple[str, Section | None]]:
    env = pruned.get("env")
    for name in ("train", "eval"):
        path = f"env.{name}"
        cls = chosen_class(path, pruned)
        if isinstance(env, dict) and name in env and cls is not None:
            yield name, _build(cls, path, cast("dict[str, Any]", env)[name], pruned, unparsed)
        elif name == "train" or path in {key[: len(path)] for key in unparsed}:
            unparsed.add(path)


def _build(
    cls: type[Section], path: str, value: Any, data: dict[str, Any], unparsed: set[str]
) -> Section | None:
    """Build one section; keys that it lacks or has wrong are left out where that is possible."""
    for _ in range(len(cls.model_fields) + 1):
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            errors = [narrowed(one) for one in error.errors()]
            tops = {str(one["loc"][0]) for one in errors if one["loc"]}
        if not tops or not isinstance(value, dict):
            break
        absent = tops - value.keys()
        value = {k: v for k, v in cast("dict[str, Any]", value).items() if k not in tops}
        unparsed.update(f"{path}.{name}" for name in tops)
        # A required key that is missing, and a default that does not go with another key, get a
        # placeholder; `unparsed` keeps rules away from it.
        fields: dict[str, Any] = {
            name: (Any, None)
            for name in tops
            if name in cls.model_fields and (name in absent or cls.model_fields[name].is_required())
        }
        if fields:
            cls = create_model(cls.__name__, __base__=cls, **fields)
    unparsed.add(path)
    return None


def _without(value: object, path: str, dropped: set[str], around: set[str]) -> Any:
    """Return plain data without some keys; a list with a bad item goes as a whole.

    Args:
        value: The data at `path`.
        path: Dotted path.
        dropped: Keys to leave out.
        around: Everything that holds one of them.
    """
    if not isinstance(value, dict):
        return value
    kept: dict[str, Any] = {}
    for name, child in cast("dict[str, object]", value).items():
        below = f"{path}.{name}" if path else name
        in_list = below in around and not isinstance(child, dict)
        if below not in dropped and not in_list:
            kept[name] = _without(cast("object", child), below, dropped, around)
    return kept
