"""Layers of a config, one over the other."""

from __future__ import annotations

from joyrlinf_core.config.source_map import Located

_WHOLE = frozenset({"cluster.component_placement"})
"""Mappings that a layer replaces as a whole: old and new roles must not mix."""

_CHOICE = {"env.train": "type", "env.eval": "type", "actor.model": "model_type"}
"""Sections whose keys depend on the name under this key: another name starts afresh."""


def merge(base: Located, over: Located, path: str = "") -> Located:
    """Lay `over` on `base`: mappings merge key by key, anything else replaces.

    Args:
        base: Lower layer.
        over: Upper layer; wins.
        path: Dotted path of both.
    """
    if not isinstance(base.value, dict) or not isinstance(over.value, dict) or path in _WHOLE:
        return over
    choice = _CHOICE.get(path)
    if choice is not None and _differs(base.value.get(choice), over.value.get(choice)):
        return over
    merged = dict(base.value)
    for name, value in over.value.items():
        below = f"{path}.{name}" if path else name
        merged[name] = merge(merged[name], value, below) if name in merged else value
    return Located(merged, over.at, over.key)


def _differs(base: Located | None, over: Located | None) -> bool:
    return over is not None and base is not None and base.value != over.value


def inherit_eval(tree: Located) -> Located:
    """Give `env.eval`, where it is a mapping, every key of `env.train` that it does not set."""
    env = tree.value.get("env") if isinstance(tree.value, dict) else None
    if env is None or not isinstance(env.value, dict):
        return tree
    train, evaluation = env.value.get("train"), env.value.get("eval")
    if train is None or evaluation is None or not isinstance(evaluation.value, dict):
        return tree
    sections = {**env.value, "eval": merge(train, evaluation, "env.eval")}
    assert isinstance(tree.value, dict)
    return Located({**tree.value, "env": Located(sections, env.at, env.key)}, tree.at, tree.key)
