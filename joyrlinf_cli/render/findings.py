"""Findings as text: code, place, the line with a caret, fix."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from joyrlinf_cli.render.text import Line, write_lines
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
    for finding in findings:
        lines.extend(finding_lines(finding, sources))
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


def finding_lines(finding: Finding, sources: SourceMap) -> list[Line]:
    """Return the lines of one finding."""
    style = _STYLES[finding.severity]
    lines: list[Line] = [
        [(f"{finding.severity}[{finding.code}]", style), (f": {finding.message}", "bold")]
    ]
    number = str(finding.line) if finding.line else ""
    pad = " " * len(number)
    place = _place(finding, sources)
    if place:
        lines.append([(f"{pad}--> ", "blue"), (place, "")])
    excerpt = _excerpt(finding)
    if excerpt is not None:
        text, column, length = excerpt
        lines.append([(f"{pad} |", "blue")])
        lines.append([(f"{number} | ", "blue"), (text, "")])
        lines.append([(f"{pad} | ", "blue"), (" " * (column - 1) + "^" * length, style)])
    for path in finding.paths[1:]:
        told = _told(path, sources)
        if told:
            lines.append([(f"{pad} = ", "blue"), (f"with: {told}", "")])
    if finding.fix:
        lines.append([(f"{pad} = ", "blue"), ("fix:", "bold green"), (f" {finding.fix}", "")])
    lines.append([])
    return [[(_visible(text), style) for text, style in line] for line in lines]


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


def _excerpt(finding: Finding) -> tuple[str, int, int] | None:
    """Return the source line, the column of the caret in it and the caret's length."""
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
    if column > _WIDTH // 2:
        cut = column - _WIDTH // 2
        text, column = text[cut:], column - cut
    match = _TOKEN.match(text, column - 1)
    length = len(match[0]) if match else 1
    return text[:_WIDTH], column, min(length, _WIDTH - column + 1)
