"""Keys that could not be read: a rule that comes to one of them stops, all others are run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from joyrlinf_core.config.schema.base import Section

S = TypeVar("S", bound=Section)


class UnreadKeyError(Exception):
    """A key was asked for that could not be read; `key` is its dotted name."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def guarded(section: S, unparsed: Iterable[str], path: str = "") -> S:
    """Return a section that raises `UnreadKeyError` when one of its unread keys is asked for.

    Properties and methods work as before, so that a rule that reads a whole simulator or policy
    stops only where it, or a property it uses, comes to an unread key.

    Args:
        section: A section, or as much of it as could be read.
        unparsed: Dotted keys that it and the sections in it lack or hold a wrong value for.
        path: Dotted path of the section; empty for the whole config.
    """
    prefix = f"{path}." if path else ""
    unread: dict[str, str] = {}
    inner: dict[str, Any] = {}
    for key in sorted(unparsed):
        if not key.startswith(prefix):
            continue
        name, _, below = key.removeprefix(prefix).partition(".")
        value = section.__dict__.get(name)
        if not (below and isinstance(value, Section)):
            unread.setdefault(name, key)
        elif name not in inner:
            inner[name] = guarded(value, unparsed, f"{prefix}{name}")
    copy = section.model_copy(update=inner)
    if unread:
        # A section is frozen; the class of this copy, that nobody else has seen, is not.
        object.__setattr__(copy, "__class__", _guarding(type(section), unread))
    return copy


def _guarding(cls: type[S], unread: dict[str, str]) -> type[S]:
    """Return a class like another one, whose unread keys raise; name -> dotted key."""

    def getattribute(self: S, name: str) -> Any:
        if name in unread:
            raise UnreadKeyError(unread[name])
        return cls.__getattribute__(self, name)

    names = {
        "__getattribute__": getattribute,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
    }
    return type(cls)(cls.__name__, (cls,), names)
