"""`--set a.b=c`: values on the command line, typed like YAML."""

from __future__ import annotations

from collections.abc import Sequence

from joyrlinf_core.config.merge import WHOLE
from joyrlinf_core.config.source_map import SET_ORIGIN, Located, Location
from joyrlinf_core.config.yaml_tree import read_tree
from joyrlinf_core.errors import Finding, UsageError


def parse_overrides(overrides: Sequence[str]) -> Located | None:
    """Return all `--set` arguments as one layer; None if there are none.

    Args:
        overrides: Arguments such as `actor.optim.lr=1e-5`; a later one wins.

    Raises:
        UsageError: An argument is not `key.key=value`, or its value is broken YAML.
    """
    layer: Located | None = None
    for argument in overrides:
        one = _parse(argument)
        key = argument.partition("=")[0].strip()
        layer = one if layer is None else _lay(layer, one, "", key)
    return layer


_SHOWN = 120
"""Letters of an argument that are repeated in a message."""


def _parse(argument: str) -> Located:
    key, equals, text = argument.partition("=")
    shown = f"--set {argument if len(argument) <= _SHOWN else argument[:_SHOWN] + '...'}"
    names = key.strip().split(".")
    if equals and any(names) and not all(names):
        name = ".".join(name for name in names if name)
        raise UsageError(
            f"{shown}: a part of the key is empty", fix=f"write it as --set {name}={text}"
        )
    if not equals or not all(names):
        raise UsageError(
            f"{shown}: expected key=value",
            fix="write it as --set actor.optim.lr=1e-5",
        )
    here = Location(SET_ORIGIN, 1, len("--set ") + 1, shown, len(argument))
    findings: list[Finding] = []
    value = read_tree(text, SET_ORIGIN, findings)
    if findings:
        fix = findings[0].fix or "put the value in quotes"
        raise UsageError(f"{shown}: {findings[0].message}", fix=fix)
    tree = _at(value, here) if value is not None else Located(None, here, here)
    for name in reversed(names):
        tree = Located({name: tree}, here, here)
    return tree


def _at(tree: Located, here: Location) -> Located:
    """Return the tree with every place set to the argument itself."""
    if isinstance(tree.value, dict):
        return Located({k: _at(v, here) for k, v in tree.value.items()}, here, here)
    if isinstance(tree.value, list):
        return Located([_at(v, here) for v in tree.value], here, here)
    return Located(tree.value, here, here)


def _lay(base: Located, over: Located, path: str, key: str) -> Located:
    """Merge two arguments key by key.

    Args:
        base: What earlier arguments say.
        over: What one more says.
        path: Dotted path of both.
        key: Key of the argument; where it names a mapping that layers replace as a whole, so does
            it.
    """
    replaces = path == key and path in WHOLE
    if replaces or not isinstance(base.value, dict) or not isinstance(over.value, dict):
        return over
    merged = dict(base.value)
    for name, value in over.value.items():
        below = f"{path}.{name}" if path else name
        merged[name] = _lay(merged[name], value, below, key) if name in merged else value
    return Located(merged, over.at, over.key)
