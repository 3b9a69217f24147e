"""Where each value of a config comes from: file, line, column and the line's text.

`Located` is a YAML tree whose every node knows its place; `SourceMap` is the same, flat, by dotted
path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from joyrlinf_core.errors import Finding

SET_ORIGIN = "--set"
"""`Location.file` of a value that was given on the command line."""


@dataclass(frozen=True)
class Location:
    """A place in a file, or in a `--set` argument.

    Attributes:
        file: Name as it is shown; `SET_ORIGIN` for `--set`.
        line: 1-based.
        column: 1-based.
        text: The whole line.
        length: Characters to underline.
    """

    file: str
    line: int
    column: int
    text: str
    length: int = 1


Scalar: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True)
class Located:
    """A YAML value that knows where it was written.

    Attributes:
        value: A scalar, or more of the same.
        at: Where the value starts.
        key: Where its key starts; equals `at` for list items and the root.
    """

    value: Scalar | dict[str, Located] | list[Located]
    at: Location
    key: Location


def plain(tree: Located) -> Any:
    """Return the tree as dicts, lists and scalars."""
    if isinstance(tree.value, dict):
        return {name: plain(child) for name, child in tree.value.items()}
    if isinstance(tree.value, list):
        return [plain(child) for child in tree.value]
    return tree.value


@dataclass(frozen=True)
class SourceMap:
    """Dotted path -> place; list items count as `path.0`, `path.1`."""

    entries: Mapping[str, Located] = field(default_factory=dict[str, Located])

    @classmethod
    def of(cls, tree: Located) -> SourceMap:
        """Flatten a tree."""
        entries: dict[str, Located] = {}

        def visit(node: Located, path: str) -> None:
            entries[path] = node
            if isinstance(node.value, dict):
                children: Iterable[tuple[str, Located]] = node.value.items()
            elif isinstance(node.value, list):
                children = ((str(index), child) for index, child in enumerate(node.value))
            else:
                return
            for name, child in children:
                visit(child, f"{path}.{name}" if path else name)

        visit(tree, "")
        return cls(entries)

    def exact(self, path: str) -> Located | None:
        """Return what was written at this very path, None where nothing was."""
        return self.entries.get(path)

    def locate(self, path: str, *, value: bool = False) -> Location | None:
        """Return where a path, or the nearest section around it, was written.

        Args:
            path: Dotted path.
            value: Point at the value instead of its key, where the path itself was written.
        """
        node = self.entries.get(path)
        if node is not None:
            return node.at if value else node.key
        while path:
            path = path.rpartition(".")[0]
            node = self.entries.get(path)
            if node is not None:
                return node.key
        return None

    def written_beside(self, path: str) -> frozenset[str]:
        """Return the paths that stand in the same file as a path, or also come from `--set`."""
        node = self.entries.get(path)
        if node is None:
            return frozenset()
        file = node.key.file
        return frozenset(name for name, other in self.entries.items() if other.key.file == file)

    def place(self, finding: Finding) -> Finding:
        """Return the finding with its position.

        Among its paths the one that the user wrote goes first: `--set` before the file itself
        before what the file extends.
        """
        if finding.line is not None or not finding.paths:
            return finding
        root = self.entries.get("")
        nearness = {SET_ORIGIN: 0, root.key.file if root is not None else "": 1}

        def layer(path: str) -> int:
            node = self.entries.get(path)
            return nearness.get(node.key.file, 2) if node is not None else 2

        first = min(finding.paths, key=layer)
        others = (path for path in finding.paths if path != first)
        finding = replace(finding, paths=(first, *others))
        return at_location(finding, self.locate(first))


def at_location(finding: Finding, location: Location | None) -> Finding:
    """Return the finding with a position; unchanged for None and for `--set`."""
    if location is None or location.file == SET_ORIGIN:
        return finding
    return replace(finding, file=location.file, line=location.line, column=location.column)
