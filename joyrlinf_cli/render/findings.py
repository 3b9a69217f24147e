"""Findings as text: code, place, the line with a caret, fix."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from joyrlinf_cli.render.text import Line, width_of, wrapped, write_lines
from joyrlinf_core.config.source_map import SET_ORIGIN, Location, SourceMap
from joyrlinf_core.errors import Finding

_STYLES = {"error": "bold red", "warning": "bold yellow", "info": "bold blue"}
_TOKEN = re.compile(r"""'[^']*'|"[^"]*"|[^\s\[\]{}#"']+?(?=:(?:\s|$))|[^\s,\]}#]+""")
"""A quoted word, a key before its colon, or a word."""
_WIDTH = 160
"""Longer source lines are cut, so that the caret stays in sight."""


def write_findings(
    findings: Sequence[Finding], sources: SourceMap, stream: TextIO, *, summary: str = ""
) -> None:
    """Write findings, and a last line that counts them.

    Args:
        findings: What to write.
        sources: Where values were written; used for `--set` and for the other keys of a finding.
        stream: Where to.
        summary: Name of the config for the last line; empty leaves the line out.
    """
    lines: list[Line] = []
    width = width_of(stream)
    for finding in findings:
        lines.extend(finding_lines(finding, sources, width))
    if findings and summary:
        lines.append([(f"{count(findings)} in {summary}", "bold")])
    write_lines(lines, stream)


def count(findings: Sequence[Finding]) -> str:
    """Return for example `2 errors, 1 warning`."""
    parts: list[str] = []
    for severity in ("error", "warning", "info"):
        number = sum(finding.severity == severity for finding in findings)
        if number:
            parts.append(f"{number} {severity}{'s' if number > 1 and severity != 'info' else ''}")
    return ", ".join(parts)


def finding_lines(finding: Finding, sources: SourceMap, width: int | None = None) -> list[Line]:
    """Return the lines of one finding.

    Args:
        finding: The finding.
        sources: See `write_findings`.
        width: Columns that lines are broken to, the source line cut to; None: as they are.
    """
    style = _STYLES[finding.severity]
    lines: list[Line] = []

    def add(line: Line, indent: int) -> None:
        seen: Line = [(_visible(text), style) for text, style in line]
        lines.extend(wrapped(seen, width, indent))

    add([(f"{finding.severity}[{finding.code}]", style), (f": {finding.message}", "bold")], 4)
    number = str(finding.line) if finding.line else ""
    pad = " " * len(number)
    place = _place(finding, sources)
    if place:
        add([(f"{pad}--> ", "blue"), (place, "")], len(pad) + 4)
    excerpt = _excerpt(finding, min(_WIDTH, (width or _WIDTH) - len(pad) - 3))
    if excerpt is not None:
        text, column, length = excerpt
        lines.append([(f"{pad} |", "blue")])
        lines.append([(f"{number} | ", "blue"), (text, "")])
        lines.append([(f"{pad} | ", "blue"), (" " * (column - 1) + "^" * length, style)])
    for path in finding.paths[1:]:
        told = _told(path, sources)
        if told:
            add([(f"{pad} = ", "blue"), (f"with: {told}", "")], len(pad) + 5)
    if finding.fix:
        fix: Line = [("fix:", "bold green"), (f" {finding.fix}", "")]
        add([(f"{pad} = ", "blue"), *fix], len(pad) + 5)
    lines.append([])
    return lines


def _visible(text: str) -> str:
    """Return text whose control characters a terminal can't obey."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def _place(finding: Finding, sources: SourceMap) -> str:
    path = finding.paths[0] if finding.paths else ""
    if finding.file is not None:
        where = ":".join(str(p) for p in (finding.file, finding.line, finding.column) if p)
        return f"{where}   {path}".rstrip()
    location = sources.locate(path) if path else None
    if location is not None and location.file == SET_ORIGIN:
        return location.text
    return path


def _told(path: str, sources: SourceMap) -> str:
    """Return `key: value (file:line)` of another key of a finding, empty if it was not written."""
    node = sources.exact(path)
    if node is None or isinstance(node.value, (dict, list)):
        return ""
    return f"{path}: {_yaml_word(node.value)} ({origin(node.key)})"


def origin(location: Location) -> str:
    """Return `file:line`, or `--set`."""
    return SET_ORIGIN if location.file == SET_ORIGIN else f"{location.file}:{location.line}"


def _yaml_word(value: object) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _excerpt(finding: Finding, width: int) -> tuple[str, int, int] | None:
    """Return the source line, the column of the caret in it and the caret's length.

    Args:
        finding: The finding.
        width: Longest line; of a longer one the part around the caret is shown.
    """
    if finding.file is None or finding.line is None or finding.column is None:
        return None
    path = Path(finding.file)
    try:
        if not path.is_file():
            return None  # a pipe: reading it again would wait forever
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            lines = list(itertools.islice(file, finding.line))
    except OSError:
        return None  # gone since; the place is still named above
    if finding.line > len(lines):
        return None
    text = _visible(lines[finding.line - 1].rstrip("\n"))
    column = finding.column
    match = _TOKEN.match(text, column - 1)
    length = min(len(match[0]) if match else 1, width)
    # Of a long line as little is cut in front as brings the caret and what it is under into sight.
    cut = min(column - 1, max(0, min(column + length - 1, len(text)) - width))
    text, column = text[cut : cut + width], column - cut
    return text, column, min(length, width - column + 1)
