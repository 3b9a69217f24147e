"""YAML text -> a tree that keeps every place; problems become findings, never exceptions.

Works on PyYAML's node graph (compose, not load): no tag is executed. Scalars follow the core schema
of YAML 1.2, so `1e-5` is a number, `010` is 10, and `yes`, `on` and `12:30` are text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import yaml

from joyrlinf_core.config.source_map import Located, Location, Scalar, at_location
from joyrlinf_core.config.yaml_errors import syntax_finding
from joyrlinf_core.errors import Finding

MAX_BYTES = 1 << 20
"""Largest file that is read as a config."""

MAX_NODES = 5_000
"""Most values of one file, counted again wherever an alias repeats them; stops alias bombs."""

MAX_DEPTH = 50
"""Most values inside each other."""

MAX_INT = 2**63 - 1
"""Largest magnitude of a whole number: 64 bits, as tensors and JSON readers have."""

_PREFIX = "tag:yaml.org,2002:"
_NULL = re.compile(r"(?:~|null|Null|NULL|)\Z")
_BOOL = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
_INT = re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z")
_FLOAT = re.compile(
    r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
)
_BREAKS = re.compile("[\x85\u2028\u2029]")
"""Line breaks in YAML 1.1 and in Python, plain characters in YAML 1.2: invisible either way."""
_UNUSABLE = re.compile("[\x00\ud800-\udfff]")
"""What an escape such as `\\0` can put into text and no file name or UTF-8 file can hold."""


def core_schema_tag(text: str) -> str:
    """Return the short tag (`null`, `bool`, `int`, `float`, `str`) of a plain YAML 1.2 scalar."""
    for name, pattern in (("null", _NULL), ("bool", _BOOL), ("int", _INT), ("float", _FLOAT)):
        if pattern.match(text):
            return name
    return "str"


class _CoreSchemaLoader(yaml.SafeLoader):
    """SafeLoader that resolves plain scalars by YAML 1.2; used for composing only.

    Stops at `MAX_NODES` and `MAX_DEPTH`, so that no file takes long or exhausts the stack.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._nodes = 0
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._nodes += 1
        self._depth += 1
        try:
            if self._nodes > MAX_NODES or self._depth > MAX_DEPTH:
                mark = cast(Any, self).peek_event().start_mark
                raise _LimitError(problem=_limit_text(self._depth), problem_mark=mark)
            return cast(Any, super()).compose_node(parent, index)
        finally:
            self._depth -= 1

    def resolve(self, kind: type[yaml.Node], value: str, implicit: tuple[bool, bool]) -> str:
        if kind is yaml.ScalarNode and implicit[0]:
            return _PREFIX + ("merge" if value == "<<" else core_schema_tag(value))
        if kind is yaml.ScalarNode:
            return _PREFIX + "str"
        return _PREFIX + ("seq" if kind is yaml.SequenceNode else "map")


class _LimitError(yaml.MarkedYAMLError):
    """A file holds more than any config does."""


def _limit_text(depth: int) -> str:
    if depth > MAX_DEPTH:
        return f"more than {MAX_DEPTH} values inside each other"
    return f"more than {MAX_NODES} values, so it is no config"


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
        return None if node is None else _Builder(text, file, findings).build(node)
    except _LimitError as error:
        findings.append(replace(syntax_finding(error, text, file), code="JR005"))
    except yaml.MarkedYAMLError as error:
        findings.append(syntax_finding(error, text, file))
    except yaml.reader.ReaderError as error:
        findings.append(_character_finding(text, error.position, file))
    except (ValueError, OverflowError):
        # PyYAML hands the number of an escape to `chr` as it is.
        at = re.search(r"\\U(?!0010|000)", text)
        line, column = _line_and_column(text, at.start() if at else 0)
        message = "an escape names a character beyond U+10FFFF"
        findings.append(Finding("JR003", "error", (), message, "mend it", file, line, column))
    return None


def _decode(raw: bytes | str, file: str, findings: list[Finding]) -> str | None:
    if isinstance(raw, bytes):
        message, fix, start = "", "save it as UTF-8", 0
        if len(raw) > MAX_BYTES:
            message = f"the file is larger than {MAX_BYTES >> 20} MiB, so it is no config"
            fix = "name a config file; joyrl presets list shows the presets"
        elif raw.startswith((b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")) or b"\0" in raw[:2]:
            message = "the file is not UTF-8 text but UTF-16, UTF-32 or binary"
        else:
            try:
                raw = raw.decode("utf-8-sig")
            except UnicodeDecodeError as error:
                start = error.start
                message = f"the file is not UTF-8: byte 0x{raw[start]:02x} at offset {start}"
        if isinstance(raw, bytes):
            before = raw[:start].decode("utf-8-sig", errors="replace")
            line, column = _line_and_column(before, len(before))
            findings.append(Finding("JR002", "error", (), message, fix, file, line, column))
            return None
    strange = _BREAKS.search(raw)
    if strange is not None:
        findings.append(_character_finding(raw, strange.start(), file))
        return None
    return raw


def _character_finding(text: str, position: int, file: str) -> Finding:
    line, column = _line_and_column(text, position)
    name = unicodedata.name(text[position], "a control character")
    message = f"the character U+{ord(text[position]):04X} ({name.lower()}) is not allowed"
    return Finding("JR003", "error", (), message, "delete it", file, line, column)


def _line_and_column(text: str, position: int) -> tuple[int, int]:
    lines = text[:position].replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return len(lines), len(lines[-1]) + 1


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
        if self._count > MAX_NODES:
            text = f"more than {MAX_NODES} values, aliases expanded"
            raise _LimitError(problem=text, problem_mark=node.start_mark)
        if len(self._open) >= MAX_DEPTH:
            raise _LimitError(problem=_limit_text(MAX_DEPTH + 1), problem_mark=node.start_mark)
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
        shown = node.value if len(node.value) <= 40 else node.value[:40] + "..."
        if _UNUSABLE.search(node.value):
            message = "text holds the character NUL or half of a surrogate pair"
            self._report("JR005", at, path, message, "delete the escape")
            return None
        try:
            value = _scalar_value(node.tag.removeprefix(_PREFIX), node.value)
        except KeyError:
            self._refuse_tag(node, at, path)
        except ValueError:
            tag = node.tag.replace(_PREFIX, "")
            self._report("JR005", at, path, f"`{shown}` can't be read as {tag}")
        else:
            if not isinstance(value, int) or -MAX_INT - 1 <= value <= MAX_INT:
                return Located(value, at, key)
            self._report(
                "JR005", at, path, f"`{shown}` is beyond 64 bits", "write a smaller number"
            )
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
        written: dict[str, Location] = {}
        for key_node, value_node in node.value:
            at = self._location(key_node)
            name = self._key(key_node, at, path)
            if name is None:
                continue
            if name in written:
                self._duplicate(name, written[name], at, path)
                continue
            written[name] = at
            if key_node.tag == _PREFIX + "merge":
                merged.extend(self._merge_sources(value_node, path))
                continue
            value = self._value(value_node, at, _join(path, name))
            if value is not None:
                found[name] = value
        # Own keys win over merged ones, and an earlier merge source over a later one.
        for source in merged:
            for name, value in source.items():
                found.setdefault(name, value)
        return found

    def _key(self, node: yaml.Node, at: Location, path: str) -> str | None:
        """Return a key's text; None (and a finding) if it can't be a key."""
        if not isinstance(node, yaml.ScalarNode):
            self._report("JR005", at, path, "a key must be text")
            return None
        if node.tag.removeprefix(_PREFIX) not in ("str", "null", "bool", "int", "float", "merge"):
            self._refuse_tag(node, at, path)
            return None
        name = str(node.value)
        if not name or _UNUSABLE.search(name):
            self._report("JR005", at, path, "a key is empty" if not name else "a key holds NUL")
            return None
        return name

    def _duplicate(self, name: str, first: Location, second: Location, path: str) -> None:
        message = f"`{name}` is set twice: on line {first.line} and on line {second.line}"
        fix = "keep one of them" if name != "<<" else "write `<<: [*one, *other]`"
        self._report("JR004", second, _join(path, name), message, fix)

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
        if len(text) > len(str(MAX_INT)) * 4:
            return MAX_INT + 1  # refused as too large; Python would take long, or refuse as well
        return int(text[2:], bases[text[:2]]) if text[:2] in bases else int(text)
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
