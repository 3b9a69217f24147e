"""Aligned tables of plain text, with bold headers on a terminal."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from joyrlinf_cli.render.text import Line


def table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[str] = ()
) -> list[Line]:
    """Return a table.

    Args:
        headers: One a column; all empty for a table without headers.
        rows: Cells, as many as headers.
        right: Headers of the columns that are aligned to the right.
    """
    widths = [max(len(cell) for cell in column) for column in zip(headers, *rows, strict=True)]
    to_right = [header in right for header in headers]

    def line(cells: Sequence[str], style: str) -> Line:
        padded = [
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(cells, widths, to_right, strict=True)
        ]
        return [("  " + "  ".join(padded).rstrip(), style)]

    head = [line(headers, "bold")] if any(headers) else []
    return [*head, *(line(row, "") for row in rows)]


def heading(text: str) -> list[Line]:
    """Return an empty line and a heading."""
    return [[], [(text, "bold cyan")]]


def shown_bytes(nbytes: float) -> str:
    """Return bytes in the unit that keeps the number below a thousand, with three digits."""
    size, unit = float(nbytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 999.5:
            break
        size, unit = size / 1024, larger
    return f"{size:.3g} {unit}" if size < 999.5 else f"{size:.0f} {unit}"
