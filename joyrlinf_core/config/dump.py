"""A config as YAML that loads back equal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import yaml

from joyrlinf_core.config.schema import Config
from joyrlinf_core.config.yaml_tree import core_schema_tag


class _Dumper(yaml.SafeDumper):
    """SafeDumper that quotes text which YAML 1.1 or YAML 1.2 would read as something else."""

    def resolve(self, kind: type[yaml.Node], value: str, implicit: tuple[bool, bool]) -> str:
        tag = str(cast(Any, super()).resolve(kind, value, implicit))
        if kind is not yaml.ScalarNode or not implicit[0] or not tag.endswith(":str"):
            return tag
        return f"tag:yaml.org,2002:{core_schema_tag(value)}"


def _represent_list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.Node:
    flat = not any(isinstance(item, (dict, list)) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=flat)


_Dumper.add_representer(list, _represent_list)


def to_yaml(data: Mapping[str, Any]) -> str:
    """Return plain data (JSON types) as YAML: keys in their order, lists of scalars on a line."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def inline(value: Any) -> str:
    """Return plain data as YAML on one line, which `--set` takes."""
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return "{" + ", ".join(f"{inline(key)}: {inline(item)}" for key, item in items) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(inline(item) for item in cast("list[Any]", value)) + "]"
    if isinstance(value, str) and not value.isprintable():
        return json.dumps(value)  # a quoted YAML scalar too
    # A list of one, because between brackets a comma or bracket in text needs quotes.
    text = str(yaml.dump([[value]], Dumper=_Dumper, width=1 << 30))
    return text.strip().removeprefix("- ")[1:-1]


def dump_config(config: Config) -> str:
    """Return a resolved config, defaults included, as YAML that `load_config` reads back equal."""
    return to_yaml(config.model_dump(mode="json"))
