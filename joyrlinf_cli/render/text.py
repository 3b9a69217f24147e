"""Lines of styled text: colours on a terminal, plain everywhere else."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TextIO

Segment = tuple[str, str]
"""(text, rich style); the style is empty for plain text."""

Line = list[Segment]


def has_colours(stream: TextIO) -> bool:
    """Say whether a stream is a terminal that wants colours."""
    dumb = os.environ.get("TERM") == "dumb" or bool(os.environ.get("NO_COLOR"))
    return stream.isatty() and not dumb


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
