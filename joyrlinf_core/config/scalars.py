"""Scalars that pydantic would let through: text as a number, a number as a switch, infinity."""

from __future__ import annotations

import math
import types
from typing import Annotated, Any, Union, cast, get_args, get_origin

from joyrlinf_core.config.foreign_keys import INTERPOLATION
from joyrlinf_core.config.keys import class_at
from joyrlinf_core.config.schema.base import Section
from joyrlinf_core.config.source_map import SourceMap, at_location
from joyrlinf_core.config.yaml_tree import MAX_INT, core_schema_tag
from joyrlinf_core.errors import Finding


def check_scalars(data: object, sources: SourceMap) -> tuple[list[Finding], set[str]]:
    """Refuse scalars of another type than their key has.

    Args:
        data: The whole config as plain data.
        sources: The same by path.

    Returns:
        The findings, and the dotted keys that hold such a value.
    """
    findings: list[Finding] = []
    bad: set[str] = set()
    classes: dict[str, type[Section] | None] = {}

    def types_of(path: str) -> frozenset[Any]:
        section, _, name = path.rpartition(".")
        if section not in classes:
            classes[section] = class_at(section, data)
        cls = classes[section]
        if cls is not None:
            field = cls.model_fields.get(name)
            return _plain_types(field.annotation) if field is not None else frozenset()
        if not name.isdigit():
            return frozenset()
        # An item: of a list, whose key stands in a section.
        section, _, name = section.rpartition(".")
        cls = class_at(section, data)
        field = cls.model_fields.get(name) if cls is not None else None
        return _item_types(field.annotation) if field is not None else frozenset()

    for path, node in sources.entries.items():
        if not isinstance(node.value, (str, int, float)):
            continue
        reason, fix = _problem(node.value, types_of(path))
        if not reason:
            continue
        bad.add(path)
        twin = sources.exact(path.replace("env.eval.", "env.train.", 1))
        if path.startswith("env.eval.") and twin is not None and twin.at == node.at:
            continue  # inherited, and told of where it was written
        message = f"`{path}: {shown(node.value)}` {reason}"
        findings.append(at_location(Finding("JR011", "error", (path,), message, fix), node.at))
    return findings, bad


def shown(value: object) -> str:
    """Return a value on one line, as YAML has it; text that reads like something else in quotes."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "{...}"
    if isinstance(value, list):
        items = [shown(item) for item in cast("list[object]", value)]
        text = f"[{', '.join(items)}]"
    else:
        text = str(value)
        if isinstance(value, str) and (core_schema_tag(value) != "str" or value != value.strip()):
            text = f'"{value}"'
    return text if len(text) <= 60 else text[:57] + "..."


def _plain_types(annotation: Any) -> frozenset[Any]:
    """Return the types of a key that takes scalars."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _plain_types(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return frozenset[Any]().union(*(_plain_types(part) for part in get_args(annotation)))
    return frozenset((annotation,))


def _item_types(annotation: Any) -> frozenset[Any]:
    """Return the types of the items of a key that takes a list."""
    if get_origin(annotation) is not tuple:
        return frozenset()
    parts = (part for part in get_args(annotation) if part is not Ellipsis)
    return frozenset[Any]().union(*(_plain_types(part) for part in parts))


_SWITCHES = {
    **dict.fromkeys(("yes", "y", "on", "1", "true", "t"), "true"),
    **dict.fromkeys(("no", "n", "off", "0", "false", "f"), "false"),
}
"""What is often meant by a word or number that is no truth value in YAML 1.2."""


def _problem(value: str | float, kinds: frozenset[Any]) -> tuple[str, str]:
    """Return why a key of these types can't hold a value, and a fix; empty if it can."""
    number = bool(kinds & {int, float}) and bool not in kinds
    if kinds and isinstance(value, str) and INTERPOLATION in value:
        return "refers to another value, and joyrl fills in none", "write the value itself"
    if isinstance(value, bool):
        return ("must be a number", "") if number else ("", "")
    if isinstance(value, float) and not math.isfinite(value):
        return "is no finite number", ""
    if bool in kinds:
        word = _SWITCHES.get(str(value).strip().lower(), "")
        if isinstance(value, str) and core_schema_tag(value) == "bool":
            return "is text, must be true or false", f"write `{word}` without quotes"
        return "must be true or false", word and f"write `{word}`"
    if isinstance(value, str):
        return _text_as_number(value) if number and str not in kinds else ("", "")
    too_large = int in kinds and float not in kinds and not -MAX_INT - 1 <= value <= MAX_INT
    return ("is beyond 64 bits", "") if too_large else ("", "")


def _text_as_number(text: str) -> tuple[str, str]:
    """Return why text that Python reads as a number is none here; empty for any other text."""
    try:
        value = float(text)
    except ValueError:
        return "", ""
    if not math.isfinite(value):
        return "is no finite number", ""
    if core_schema_tag(text) in ("int", "float"):
        return "is text, must be a number", f"write `{text}` without quotes"
    return "is text, must be a number", f"write `{text.strip().replace('_', '')}`"
