"""YAML text -> a tree that keeps every place; problems become findings, never exceptions.

Works on PyYAML's node graph (compose, not load): no tag is executed. Scalars follow the core schema
of YAML 1.2, so `1e-5` is a number, `010` is 10, and `yes`, `on` and `12:30` are text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

import yaml

from joyrlinf_core.config.source_map import Located, Location, Scalar, at_location
from joyrlinf_core.errors import Finding

MAX_BYTES = 1 << 20
"""Largest file that is read as a config."""

MAX_NODES = 20_000
"""Largest number of values after every alias is expanded; stops alias bombs."""

_PREFIX = "tag:yaml.org,2002:"
_NULL = re.compile(r"(?:~|null|Null|NULL|)\Z")
_BOOL = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
_INT = re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z")
_FLOAT = re.compile(
    r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
)


def core_schema_tag(text: str) -> str:
    """Return the short tag (`null`, `bool`, `int`, `float`, `str`) of a plain YAML 1.2 scalar."""
    for name, pattern in (("null", _NULL), ("bool", _BOOL), ("int", _INT), ("float", _FLOAT)):
        if pattern.match(text):
            return name
    return "str"


class _CoreSchemaLoader(yaml.SafeLoader):
    """SafeLoader that resolves plain scalars by YAML 1.2; used for composing only."""

    def resolve(self, kind: type[yaml.Node], value: str, implicit: tuple[bool, bool]) -> str:
        if kind is yaml.ScalarNode and implicit[0]:
            return _PREFIX + ("merge" if value == "<<" else core_schema_tag(value))
        if kind is yaml.ScalarNode:
            return _PREFIX + "str"
        return _PREFIX + ("seq" if kind is yaml.SequenceNode else "map")


def read_tree(raw: bytes | str, file: str, findings: list[Finding]) -> Located | None:
    """Read one YAML document.

    Args:
        raw: File contents.
        file: Name to show.
        findings: Problems are appended here.

    Returns:
        The tree, whatever of it is usable; None if nothing is.
    """
    text = _decode(raw, file, findings)
    if text is None:
        return None
    try:
        node = cast(Any, yaml).compose(text, Loader=_CoreSchemaLoader)
    except yaml.MarkedYAMLError as error:
        findings.append(_syntax_finding(error, text, file))
        return None
    except yaml.reader.ReaderError as error:
        line, column = _line_and_column(text, error.position)
        code = ord(error.character) if isinstance(error.character, str) else error.character
        findings.append(
            Finding(
                "JR003",
                "error",
                (),
                f"the character U+{code:04X} is not allowed in YAML",
                "delete it",
                file,
                line,
                column,
            )
        )
        return None
    except RecursionError:
        findings.append(Finding("JR005", "error", (), "values are nested too deeply", "", file, 1))
        return None
    if node is None:
        return None
    return _Builder(text, file, findings).build(node)


def _decode(raw: bytes | str, file: str, findings: list[Finding]) -> str | None:
    if isinstance(raw, str):
        return raw
    if len(raw) > MAX_BYTES:
        message = f"the file is larger than {MAX_BYTES >> 20} MiB, so it is no config"
        findings.append(Finding("JR002", "error", (), message, "", file))
        return None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        findings.append(
            Finding(
                "JR002",
                "error",
                (),
                f"the file is not UTF-8: byte 0x{raw[error.start]:02x} at offset {error.start}",
                "save it as UTF-8",
                file,
                line,
                column,
            )
        )
        return None


def _line_and_column(text: str, position: int) -> tuple[int, int]:
    line = text.count("\n", 0, position) + 1
    return line, position - text.rfind("\n", 0, position)


def _syntax_finding(error: yaml.MarkedYAMLError, text: str, file: str) -> Finding:
    mark = error.problem_mark or error.context_mark
    problem = str(error.problem or error.context or "broken YAML")
    fix = ""
    if "'\\t'" in problem:
        problem, fix = "a tab stands where YAML allows spaces only", "indent with spaces"
    elif "mapping values are not allowed" in problem:
        fix = "put the value in quotes if it holds ': ', or mend the indentation of this line"
    elif "could not find expected ':'" in problem:
        fix = "write `key: value`"
    elif "single document" in problem:
        problem, fix = "the file holds more than one YAML document", "keep one, delete `---`"
    if error.context and error.context_mark and error.context not in problem:
        problem = f"{problem} ({error.context}, line {error.context_mark.line + 1})"
    if mark is None:
        return Finding("JR003", "error", (), problem, fix, file, 1, 1)
    # A problem at the end of the file is reported on the line after the last.
    line = min(mark.line + 1, max(1, len(text.splitlines())))
    return Finding("JR003", "error", (), problem, fix, file, line, mark.column + 1)


class _Builder:
    """Turns composed nodes of one file into `Located` values."""

    def __init__(self, text: str, file: str, findings: list[Finding]) -> None:
        self._lines = text.splitlines()
        self._file = file
        self._findings = findings
        self._count = 0
        self._open: set[int] = set()

    def build(self, node: yaml.Node) -> Located | None:
        location = self._location(node)
        return self._value(node, location, "")

    def _location(self, node: yaml.Node) -> Location:
        mark, end = node.start_mark, node.end_mark
        text = self._lines[mark.line] if mark.line < len(self._lines) else ""
        one_line = isinstance(node, yaml.ScalarNode) and end.line == mark.line
        length = max(1, end.column - mark.column) if one_line else 1
        return Location(self._file, mark.line + 1, mark.column + 1, text, length)

    def _report(
        self, code: str, location: Location, path: str, message: str, fix: str = ""
    ) -> None:
        paths = (path,) if path else ()
        self._findings.append(at_location(Finding(code, "error", paths, message, fix), location))

    def _value(self, node: yaml.Node, key: Location, path: str) -> Located | None:
        """Build a node; None (and a finding) if it is not allowed."""
        at = self._location(node)
        self._count += 1
        if self._count == MAX_NODES:
            self._report("JR005", at, path, f"more than {MAX_NODES} values, aliases expanded")
        if self._count >= MAX_NODES:
            return None
        if id(node) in self._open:
            self._report("JR005", at, path, "an alias stands inside the value that it names")
            return None
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.ScalarNode):
                return self._scalar(node, at, key, path)
            if isinstance(node, yaml.MappingNode) and node.tag == _PREFIX + "map":
                return Located(self._mapping(node, path), at, key)
            if isinstance(node, yaml.SequenceNode) and node.tag == _PREFIX + "seq":
                return Located(self._sequence(node, path), at, key)
            self._refuse_tag(node, at, path)
            return None
        finally:
            self._open.discard(id(node))

    def _refuse_tag(self, node: yaml.Node, at: Location, path: str) -> None:
        tag = node.tag.replace(_PREFIX, "!!")
        self._report("JR005", at, path, f"the tag {tag} is not allowed here", "delete the tag")

    def _scalar(self, node: yaml.ScalarNode, at: Location, key: Location, path: str) -> Any:
        try:
            return Located(_scalar_value(node.tag.removeprefix(_PREFIX), node.value), at, key)
        except KeyError:
            self._refuse_tag(node, at, path)
        except ValueError:
            shown = node.value if len(node.value) <= 40 else node.value[:40] + "..."
            tag = node.tag.replace(_PREFIX, "")
            self._report("JR005", at, path, f"`{shown}` can't be read as {tag}")
        return None

    def _sequence(self, node: yaml.SequenceNode, path: str) -> list[Located]:
        found: list[Located] = []
        for index, child in enumerate(node.value):
            item = self._value(child, self._location(child), _join(path, str(index)))
            if item is not None:
                found.append(item)
        return found

    def _mapping(self, node: yaml.MappingNode, path: str) -> dict[str, Located]:
        found: dict[str, Located] = {}
        merged: list[dict[str, Located]] = []
        for key_node, value_node in node.value:
            at = self._location(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                self._report("JR005", at, path, "a key must be text")
                continue
            if key_node.tag == _PREFIX + "merge":
                merged.extend(self._merge_sources(value_node, path))
                continue
            name = str(key_node.value)
            value = self._value(value_node, at, _join(path, name))
            if name in found:
                self._duplicate(name, found[name].key, at, path)
            elif value is not None:
                found[name] = value
        # Own keys win over merged ones, and an earlier merge source over a later one.
        for source in merged:
            for name, value in source.items():
                found.setdefault(name, value)
        return found

    def _duplicate(self, name: str, first: Location, second: Location, path: str) -> None:
        message = f"`{name}` is set twice: on line {first.line} and on line {second.line}"
        self._report("JR004", second, _join(path, name), message, "keep one of them")

    def _merge_sources(self, node: yaml.Node, path: str) -> Iterator[dict[str, Located]]:
        """Yield the mappings that a `<<` key brings in."""
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for source in nodes:
            at = self._location(source)
            if not isinstance(source, yaml.MappingNode):
                self._report("JR005", at, path, "`<<` takes a mapping or a list of mappings")
                continue
            built = self._value(source, at, path)
            if built is not None and isinstance(built.value, dict):
                yield built.value


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _scalar_value(tag: str, text: str) -> Scalar:
    """Return a scalar's value.

    Raises:
        KeyError: The tag is none of the core schema.
        ValueError: The text does not fit the tag.
    """
    if tag in ("str", "merge"):
        return text
    patterns = {"null": _NULL, "bool": _BOOL, "int": _INT, "float": _FLOAT}
    if not (patterns[tag].match(text) or (tag == "float" and _INT.match(text))):
        raise ValueError(text)
    if tag == "null":
        return None
    if tag == "bool":
        return text.lower() == "true"
    if tag == "int":
        bases = {"0o": 8, "0x": 16}
        return int(text[2:], bases[text[:2]]) if text[:2] in bases else int(text)
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
