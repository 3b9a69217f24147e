"""Layers of a config, one over the other."""

from __future__ import annotations

from joyrlinf_core.config.source_map import Located

WHOLE = frozenset({"cluster.component_placement"})
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
    if not isinstance(base.value, dict) or not isinstance(over.value, dict) or path in WHOLE:
        return over
    choice = _CHOICE.get(path)
    if choice is not None and _differs(base.value.get(choice), over.value.get(choice)):
        return over
    merged = dict(base.value)
    for name, value in over.value.items():
        below = f"{path}.{name}" if path else name
        merged[name] = merge(merged[name], value, below) if name in merged else value
    if path == "env" and "eval" in base.value and _eval_starts_afresh(base.value, over.value):
        old = base.value["eval"]
        merged["eval"] = over.value.get("eval", Located({}, old.at, old.key))
    return Located(merged, over.at, over.key)


def _eval_starts_afresh(base: dict[str, Located], over: dict[str, Located]) -> bool:
    """Say whether `env.eval` of a lower layer is of another simulator than the upper layer's.

    It has the simulator of `env.train` unless it names one itself.
    """
    old = _type_in(base, "eval") or _type_in(base, "train")
    new = (
        _type_in(over, "eval")
        or _type_in(base, "eval")
        or _type_in(over, "train")
        or _type_in(base, "train")
    )
    return old != new


def _type_in(env: dict[str, Located], name: str) -> object:
    """Return the `type` that one of the two sections names itself, None if it does not."""
    section = env.get(name)
    if section is None or not isinstance(section.value, dict) or "type" not in section.value:
        return None
    return section.value["type"].value


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
