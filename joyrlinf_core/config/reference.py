"""The page with every key, `docs/reference/config.md`: `make docs` writes it."""

from __future__ import annotations

import inspect
import json
import sys
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from joyrlinf_core import registry
from joyrlinf_core.config.dump import to_yaml
from joyrlinf_core.config.help_texts import help_texts
from joyrlinf_core.config.keys import CHOICES, section_in
from joyrlinf_core.config.schema import Config
from joyrlinf_core.config.schema.base import MAX_COUNT, Section

_HEAD = f"""\
# Config keys

<!-- Made from the help texts of the config classes by `make docs`; change those. -->

Every key with its type, default and meaning. [Configuration](../configuration.md) explains how they
work together. A whole number without an upper bound is {MAX_COUNT:,} at most, seeds aside.
"""


def reference() -> str:
    """Return the page as Markdown."""
    return "\n".join([_HEAD, *_sections(Config, "")])


def _sections(cls: type[Section], path: str) -> Iterator[str]:
    """Yield a section's table, then those of the sections in it."""
    plain = [name for name, field in cls.model_fields.items() if not section_in(field.annotation)]
    if path:
        yield f"## `{path}`\n"
        yield f"{_first_paragraph(cls)}\n"
    if plain:
        yield _table(cls, plain)
    for name, field in cls.model_fields.items():
        section = section_in(field.annotation)
        below = f"{path}.{name}" if path else name
        if section is None:
            continue
        if below == "env.eval":
            yield f"## `{below}`\n"
            yield f"{help_texts(cls)[name]} Its keys are those of `env.train`.\n"
        elif below in CHOICES:
            yield from _choice(section, below)
        else:
            yield from _sections(section, below)


def _choice(base: type[Section], path: str) -> Iterator[str]:
    """Yield the keys that all classes of a section share, then each class's own."""
    kind, key = CHOICES[path]
    yield f"## `{path}`\n"
    yield f"{_first_paragraph(base)} `{key}` picks the class, whose own keys follow.\n"
    yield _table(base, list(base.model_fields))
    for name in registry.names(kind):
        cls: type[Section] = registry.load(kind, name)
        yield f"### `{path}` with `{key}: {name}`\n"
        yield f"{_first_paragraph(cls)}\n"
        changed = [n for n, field in cls.model_fields.items() if _differs(base, n, field)]
        plain = [n for n in changed if n != key and not section_in(cls.model_fields[n].annotation)]
        if plain:
            yield _table(cls, plain)
        for inner in changed:
            section = section_in(cls.model_fields[inner].annotation)
            if section is not None:
                yield f"#### `{path}.{inner}` with `{key}: {name}`\n"
                yield f"{help_texts(cls)[inner]}\n"
                yield _table(section, list(section.model_fields))


def _differs(base: type[Section], name: str, field: FieldInfo) -> bool:
    """Say whether a class has a key that its base lacks, or that means something else there."""
    other = base.model_fields.get(name)
    return other is None or repr(other) != repr(field)


def _table(cls: type[Section], names: list[str]) -> str:
    texts = help_texts(cls)
    rows = ["| key | type | default | |", "|---|---|---|---|"]
    for name in names:
        field = cls.model_fields[name]
        text = texts[name].replace("\n\n", " ").replace("|", "\\|")
        rows.append(f"| `{name}` | {_type(field)} | {_default(field)} | {text} |")
    return "\n".join(rows) + "\n"


def _type(field: FieldInfo) -> str:
    bounds = [
        f"{sign} {getattr(limit, attribute)}"
        for limit in field.metadata
        for attribute, sign in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<"))
        if hasattr(limit, attribute) and getattr(limit, attribute) != MAX_COUNT
    ]
    return ", ".join([_type_name(field.annotation), *bounds])


_NAMES: dict[Any, str] = {
    str: "text",
    int: "int",
    float: "number",
    bool: "true or false",
    type(None): "null",
    Any: "any",
}


def _type_name(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_name(arguments[0])
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(_type_name(part) for part in arguments)
    if origin is tuple and arguments[-1] is Ellipsis:
        return f"list of {_type_name(arguments[0])}"
    if origin is tuple:
        return f"list of {len(arguments)} {_type_name(arguments[0])}"
    if origin is dict:
        return f"keys with {_type_name(arguments[1])}"
    return _NAMES[annotation]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, Section):
        return ""
    plain = json.loads(json.dumps(value))
    return f"`{to_yaml({'v': plain}).removeprefix('v:').strip()}`"


def _first_paragraph(cls: type[Section]) -> str:
    return " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split())


if __name__ == "__main__":
    sys.stdout.write(reference())
