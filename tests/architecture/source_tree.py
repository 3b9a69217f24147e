"""The project's own Python files, for the tests of this folder."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("joyrlinf_cli", "joyrlinf_core")


def product_files() -> list[Path]:
    """Return every Python file that the wheel holds."""
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def all_files() -> list[Path]:
    """Return the same and every test."""
    return product_files() + sorted((ROOT / "tests").rglob("*.py"))


def name_of(path: Path) -> str:
    """Return a path as messages show it."""
    return path.relative_to(ROOT).as_posix()


def module_of(path: Path) -> str:
    """Return the dotted name of a file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield (name, lines) of every function in a file, decorators not counted."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield f"{name_of(path)}:{node.name}", node.end_lineno - node.lineno + 1
