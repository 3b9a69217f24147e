"""Lines of styled text: colours and line breaks on a terminal, plain everywhere else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from typing import TextIO

Segment = tuple[str, str]
"""(text, rich style); the style is empty for plain text."""

Line = list[Segment]


def has_colours(stream: TextIO) -> bool:
    """Say whether a stream is a terminal that wants colours."""
    dumb = os.environ.get("TERM") == "dumb" or bool(os.environ.get("NO_COLOR"))
    return stream.isatty() and not dumb


def width_of(stream: TextIO) -> int | None:
    """Return the columns of a terminal; None for a file or pipe, whose lines are not broken."""
    if not stream.isatty():
        return None
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    return columns or shutil.get_terminal_size().columns


def wrapped(line: Line, width: int | None, indent: int) -> list[Line]:
    """Break a line between words where it is wider than a terminal.

    Args:
        line: The line; a single word may still be too long.
        width: Columns; None does not break it.
        indent: Spaces in front of the second and later lines.
    """
    text = "".join(part for part, _ in line)
    lines: list[Line] = []
    start, room = 0, width or len(text)
    while len(text) - start > max(room, 1):
        # The break must come behind the first word of the line.
        word = start + len(text[start:]) - len(text[start:].lstrip())
        cut = text.rfind(" ", word + 1 if lines else max(word + 1, indent), start + room + 1)
        if cut < 0:
            cut = text.find(" ", max(word, start + room))
        if cut < 0:
            break
        lines.append(_part(line, start, cut))
        start = len(text) - len(text[cut:].lstrip())
        room = (width or 0) - indent
    lines.append(_part(line, start, len(text)))
    return [lines[0], *([(" " * indent, ""), *rest] for rest in lines[1:] if rest)]


def _part(line: Line, start: int, stop: int) -> Line:
    """Return the letters of a line from `start` to `stop`, with their styles."""
    found: Line = []
    at = 0
    for text, style in line:
        piece = text[max(start - at, 0) : max(stop - at, 0)]
        if piece:
            found.append((piece, style))
        at += len(text)
    return found


def write_lines(lines: Iterable[Line], stream: TextIO) -> None:
    """Write lines to a stream."""
    if not has_colours(stream):
        for line in lines:
            stream.write("".join(text for text, _ in line).rstrip() + "\n")
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False, soft_wrap=True)
    for line in lines:
        console.print(Text.assemble(*line))
