"""Name -> module look-up: the file's name is the registered name.

`envs/metaworld.py` is `type: metaworld`. A registered module exports `Config`, the pydantic class
of its section, which builds the runtime object; for advantages and losses it exports `compute`.
Third parties use an entry point in the group `joyrl.<kind>`, or `pkg.module:Attr` as the name.
Nothing is imported for a name to exist, so there is no registration step that can be forgotten.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

Kind = Literal["envs", "policies", "advantages", "losses"]

_PACKAGES: dict[Kind, str] = {
    "envs": "joyrlinf_core.envs",
    "policies": "joyrlinf_core.policies",
    "advantages": "joyrlinf_core.algorithms.advantages",
    "losses": "joyrlinf_core.algorithms.losses",
}
_EXPORT: dict[Kind, str] = {
    "envs": "Config",
    "policies": "Config",
    "advantages": "compute",
    "losses": "compute",
}


class UnknownNameError(LookupError):
    """No module of that name, or one that can't be imported.

    Attributes:
        known: Names that exist.
        reason: What importing it raised; empty if there is nothing to import.
    """

    def __init__(self, kind: Kind, name: str, known: list[str], reason: str = "") -> None:
        told = reason or f"known: {', '.join(known)}"
        super().__init__(f"unknown {kind} name '{name}'; {told}")
        self.known = known
        self.reason = reason


def names(kind: Kind) -> list[str]:
    """Return every built-in and entry-point name of a kind, sorted."""
    package = importlib.import_module(_PACKAGES[kind])
    found = {
        info.name
        for info in pkgutil.iter_modules(package.__path__)
        if hasattr(importlib.import_module(f"{package.__name__}.{info.name}"), _EXPORT[kind])
    }
    found |= {point.name for point in _entry_points(kind)}
    return sorted(found)


def load(kind: Kind, name: str) -> Any:
    """Return what a name stands for: a config class (envs, policies), or a module.

    Args:
        kind: Which table.
        name: File name without `.py`, entry-point name, or `pkg.module:Attr`; for advantages and
            losses `pkg:module` names a module of a package.

    Raises:
        UnknownNameError: No such name, or the module does not export what its kind must.
    """
    if ":" in name:
        module_name, attribute = name.split(":", 1)
        try:
            module = importlib.import_module(module_name)
            if not hasattr(module, attribute):
                importlib.import_module(f"{module_name}.{attribute}")
            found = getattr(module, attribute)
            if _EXPORT[kind] != "Config":
                getattr(found, _EXPORT[kind])
            return found
        except Exception as error:  # somebody else's module may raise anything
            reason = f"{type(error).__name__}: {error}"
            raise UnknownNameError(kind, name, names(kind), reason) from error
    path = f"{_PACKAGES[kind]}.{name}"
    if name.isidentifier() and importlib.util.find_spec(path) is not None:
        module = importlib.import_module(path)
        if hasattr(module, _EXPORT[kind]):
            return module.Config if _EXPORT[kind] == "Config" else module
    # After the built-in ones: looking through every installed package takes a while.
    for point in _entry_points(kind):
        if point.name == name:
            try:
                return point.load()
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                raise UnknownNameError(kind, name, names(kind), reason) from error
    raise UnknownNameError(kind, name, names(kind))


def check(kind: Kind, name: str) -> None:
    """Raise `UnknownNameError` where `load` would; a built-in module is looked at, not imported."""
    if name.isidentifier():
        spec = importlib.util.find_spec(f"{_PACKAGES[kind]}.{name}")
        origin = spec.origin if spec is not None and _EXPORT[kind] == "compute" else None
        if origin and "\ndef compute(" in Path(origin).read_text(encoding="utf-8"):
            return
    load(kind, name)


def _entry_points(kind: Kind) -> EntryPoints:
    """Return the entry points of a kind."""
    # Imported here: it takes a tenth of the start-up time, and built-in names need none of it.
    from importlib.metadata import entry_points

    return entry_points(group=f"joyrl.{kind}")
