"""Reads the fenced blocks and links of a Markdown page."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\s*$")
_SOURCE = re.compile(r"<!-- from: (?P<path>\S+) -->")
_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        page: File name.
        line: Line of the opening fence, 1-based.
        language: Word behind the fence.
        text: What is in it.
        source: File that a `<!-- from: path -->` comment right above names, or empty.
    """

    page: str
    line: int
    language: str
    text: str
    source: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    found: list[Block] = []
    start, language, indent, inside = 0, "", "", []
    lines = page.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        fence = _FENCE.match(line)
        if fence and not start:
            start, language, indent, inside = number, fence["language"], fence["indent"], []
        elif fence and start:
            source = _SOURCE.search(lines[start - 2]) if start > 1 else None
            text = "\n".join(inside) + "\n"
            found.append(Block(page.name, start, language, text, source["path"] if source else ""))
            start = 0
        elif start:
            inside.append(line.removeprefix(indent))
    assert not start, f"{page.name}:{start}: block is not closed"
    return found


def commands(block: Block) -> Iterator[list[str]]:
    """Yield the commands of a shell block as words, comments and line continuations resolved."""
    for line in block.text.replace("\\\n", " ").splitlines():
        if words := shlex.split(line, comments=True):
            yield words


def local_links(page: Path) -> list[str]:
    """Return the link targets of a page that are files of the project."""
    targets = [match["target"] for match in _LINK.finditer(page.read_text(encoding="utf-8"))]
    return [t.partition("#")[0] for t in targets if "://" not in t and not t.startswith("#")]
