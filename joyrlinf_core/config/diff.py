"""What differs between two configs once defaults and bases are filled in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from joyrlinf_core.config.schema import Config
from joyrlinf_core.config.schema.base import Section


@dataclass(frozen=True)
class Difference:
    """A key with another value on each side, or one that a side lacks.

    Attributes:
        path: Dotted key.
        a: Value on the first side as plain data; None where `in_a` is False.
        b: Value on the second side.
        in_a: Whether the first side has the key.
        in_b: Whether the second side has it.
    """

    path: str
    a: Any
    b: Any
    in_a: bool = True
    in_b: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of this difference; a side that lacks the key is left out."""
        sides = (("a", self.a, self.in_a), ("b", self.b, self.in_b))
        return {"path": self.path, **{name: value for name, value, there in sides if there}}


def differences(a: Config, b: Config) -> list[Difference]:
    """Return what differs, in the order of the schema.

    `meta` describes a preset and changes no run, so it is not compared.
    """
    left, right = _flat(a), _flat(b)
    found: list[Difference] = []
    for path in dict.fromkeys([*left, *right]):
        one, other = left.get(path), right.get(path)
        if path not in left or path not in right or one != other:
            found.append(Difference(path, one, other, path in left, path in right))
    # What only the second side has goes to its section, not to the end.
    order = {section: i for i, section in enumerate(dict.fromkeys(map(_section, [*left, *right])))}
    return sorted(found, key=lambda one: order[_section(one.path)])


def _section(path: str) -> str:
    return path.rpartition(".")[0]


def _flat(config: Config) -> dict[str, Any]:
    """Return every value by its dotted key; a mapping that is no section is one value."""
    values: dict[str, Any] = {}

    def visit(section: Section, path: str) -> None:
        plain = section.model_dump(mode="json")
        for name in type(section).model_fields:
            below = f"{path}.{name}" if path else name
            value = getattr(section, name)
            if isinstance(value, Section):
                visit(value, below)
            elif value is not None or name not in ("eval", "sft"):
                values[below] = plain[name]

    visit(config, "")
    return {path: value for path, value in values.items() if not path.startswith("meta.")}
