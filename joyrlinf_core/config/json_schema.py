"""JSON schema of a config file, for completion and hints in editors.

Says what a file may hold. What it must hold is asked only of a file without `extends`, because any
key may come from the base. Rules over several keys are `joyrl validate`'s.
"""

from __future__ import annotations

from typing import Any, cast

from joyrlinf_core import registry
from joyrlinf_core.config.help_texts import help_texts
from joyrlinf_core.config.keys import CHOICES, section_in
from joyrlinf_core.config.schema import Config
from joyrlinf_core.config.schema.base import Section

FILE_NAME = ".joyrl-schema.json"
"""Name of the schema beside a copied preset."""

HEADER = f"# yaml-language-server: $schema=./{FILE_NAME}\n"
"""First line of a config: where an editor finds the schema, seen from the config."""

_EXTENDS = {
    "type": "string",
    "description": "Preset, or file beside this one, whose keys this file replaces or adds to.",
}


def json_schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12), every registered env and policy family included."""
    schema = _section_schema(Config, "")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "joyrl config",
        **schema,
        "properties": {"extends": _EXTENDS, **schema["properties"]},
        "if": {"not": {"required": ["extends"]}},
        "then": _required(Config, ""),
    }


def _section_schema(cls: type[Section], path: str) -> dict[str, Any]:
    texts = help_texts(cls)
    generated: dict[str, Any] = cls.model_json_schema()["properties"]
    properties: dict[str, Any] = {}
    for name, field in cls.model_fields.items():
        below = f"{path}.{name}" if path else name
        section = section_in(field.annotation)
        if section is None:
            found = _without_titles(generated[name])
        else:
            options = _options(section, below)
            if not field.is_required() and field.default is None:
                options.append({"type": "null"})
            found = options[0] if len(options) == 1 else {"anyOf": options}
        properties[name] = {**found, "description": texts[name]}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _options(section: type[Section], path: str) -> list[dict[str, Any]]:
    """Return the schemas that a section can have: one a registered name, where a name picks it."""
    if path not in CHOICES:
        return [_section_schema(section, path)]
    kind, key = CHOICES[path]
    options: list[dict[str, Any]] = []
    for name in registry.names(kind):
        cls = registry.load(kind, name)
        schema = _section_schema(cls, path)
        tag = {"const": name, "description": help_texts(cls)[key]}
        schema["properties"][key] = tag
        options.append({"title": name, **schema})
    elsewhere = {
        "title": "class of another package",
        "type": "object",
        "properties": {key: {"type": "string", "pattern": ":"}},
        "required": [key],
    }
    return [*options, elsewhere]


def _without_titles(schema: Any) -> Any:
    """Return a schema without the titles that pydantic makes from names."""
    if isinstance(schema, dict):
        items = cast("dict[str, Any]", schema).items()
        return {key: _without_titles(value) for key, value in items if key != "title"}
    if isinstance(schema, list):
        return [_without_titles(item) for item in cast("list[Any]", schema)]
    return schema


def _required(cls: type[Section], path: str) -> dict[str, Any]:
    """Return which keys a whole config sets, section by section; empty where none is required."""
    if path in CHOICES:
        return {"required": [CHOICES[path][1]]}  # the rest depends on the class
    needed: list[str] = []
    below: dict[str, Any] = {}
    for name, field in cls.model_fields.items():
        if not field.is_required():
            continue
        needed.append(name)
        section = section_in(field.annotation)
        inner = _required(section, f"{path}.{name}" if path else name) if section else {}
        if inner:
            below[name] = inner
    found: dict[str, Any] = {"required": needed} if needed else {}
    return {**found, "properties": below} if below else found
