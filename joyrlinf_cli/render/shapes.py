"""What `joyrl shape-check` prints."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from joyrlinf_cli.render.findings import count, write_findings
from joyrlinf_cli.render.table import shown_bytes, table
from joyrlinf_cli.render.text import Line, write_lines
from joyrlinf_core.config.loader import LoadedConfig
from joyrlinf_core.diagnostics.shape_check import shape_check
from joyrlinf_core.diagnostics.shapes.report import Check, ShapeReport, Sizes, TensorRow
from joyrlinf_core.errors import Finding
from joyrlinf_core.plan.build import build_plan, check_loaded

_HINT = (
    "A check fails because of an advantage estimator or a loss of your own (algorithm.adv_type, "
    "algorithm.loss_type), or because of a bug in joyrl: please report it with the lines above."
)
_STYLES = {"ok": "green", "failed": "bold red", "skipped": "dim"}


@dataclass(frozen=True)
class ShapeResult:
    """A config that was checked; `report` is None if it has an error."""

    loaded: LoadedConfig
    findings: tuple[Finding, ...]
    report: ShapeReport | None

    @classmethod
    def of(cls, loaded: LoadedConfig) -> ShapeResult:
        """Check a loaded config."""
        findings = check_loaded(loaded)
        if loaded.config is None or any(finding.severity == "error" for finding in findings):
            return cls(loaded, findings, None)
        return cls(loaded, findings, shape_check(build_plan(loaded.config, None)))

    @property
    def ok(self) -> bool:
        """Whether the config has no error and no check failed."""
        return self.report is not None and self.report.ok


def write_json(results: Sequence[ShapeResult]) -> None:
    """Write one JSON document to standard output."""
    files = [
        {
            "file": result.loaded.source,
            "findings": [finding.to_json() for finding in result.findings],
            "shapes": None if result.report is None else result.report.to_json(),
        }
        for result in results
    ]
    ok = all(result.ok for result in results)
    print(json.dumps({"schema": 1, "ok": ok, "files": files}, indent=2))


def write_text(result: ShapeResult) -> None:
    """Write findings, tensors and checks to standard output."""
    write_findings(result.findings, result.loaded.source_map, sys.stdout)
    source, report = result.loaded.source, result.report
    if report is None:
        print(f"{source}: {count(result.findings)}")
        return
    width = shutil.get_terminal_size(fallback=(120, 24)).columns
    lines: list[Line] = [
        *_title_lines(source, _sizes(report.planned), width),
        *_row_lines(report.rows, width),
        *(line for note in report.notes for line in _wrapped(note, "  ", width)),
        [],
        *_check_lines(report.checks, width),
        [(f"{source}: ", "bold"), (_summary(report), "" if report.ok else "bold red")],
    ]
    if not report.ok:
        lines += _wrapped(_HINT, "  ", width)
    write_lines(lines, sys.stdout)


def _title_lines(source: str, text: str, width: int) -> list[Line]:
    if len(source) + 2 + len(text) <= width:
        return [[(f"{source}: ", "bold"), (text, "")]]
    return [[(f"{source}:", "bold")], *_wrapped(text, "  ", width)]


def _sizes(sizes: Sizes) -> str:
    actors = f"{sizes.actors} actor{'s' if sizes.actors > 1 else ''}"
    return (
        f"one of {actors} has N = T {sizes.t} x B {sizes.columns} = {sizes.samples}; "
        f"G {sizes.group_size}, C {sizes.chunk}, D {sizes.action_dim}, m {sizes.micro_batch}"
    )


def _row_lines(rows: Sequence[TensorRow], width: int) -> list[Line]:
    """Return the table of tensors in the first of its forms that fits; the last one, if none does.

    The second form has no axes, the third has stages on lines of their own.
    """
    headers = ["stage", "tensor", "axes", "shape", "type", "bytes"]
    cells: list[list[str]] = []
    stacked: list[list[str]] = []
    for stage, group in groupby(rows, key=lambda row: row.stage):
        stacked.append([stage, "", "", ""])
        for number, row in enumerate(group):
            own = _cells(row)
            cells.append(["" if number else stage, *own])
            stacked.append([f"  {own[0]}", *own[2:]])
    full = table(headers, cells, right=("bytes",))
    without_axes = [row[:2] + row[3:] for row in cells]
    short = table(headers[:2] + headers[3:], without_axes, right=("bytes",))
    narrow = table(["tensor", *headers[3:]], stacked, right=("bytes",))
    for lines in (full, short):
        if max(len(line[0][0]) for line in lines) <= width:
            return lines
    return narrow


def _cells(row: TensorRow) -> list[str]:
    more = ", ..." if len(row.axes) < len(row.shape) else ""
    return [
        row.tensor,
        f"[{', '.join(row.axes)}{more}]",
        str(list(row.shape)),
        row.dtype,
        "view" if row.is_view else shown_bytes(row.nbytes),
    ]


def _check_lines(checks: Sequence[Check], width: int) -> list[Line]:
    name_width = max((len(check.name) for check in checks), default=0)
    lines: list[Line] = []
    for check in checks:
        head = f"  {check.status:<7}  "
        beside = f"{check.name:<{name_width}}  {check.detail}"
        if len(head) + len(beside) <= width:
            lines.append([(head, _STYLES[check.status]), (beside, "")])
            continue
        lines.append([(head, _STYLES[check.status]), (check.name, "")])
        lines += _wrapped(check.detail, " " * (len(head) + 2), width)
    return lines


def _wrapped(text: str, indent: str, width: int) -> list[Line]:
    room = max(width, len(indent) + 20)
    wrapped = textwrap.wrap(text, room, initial_indent=indent, subsequent_indent=indent)
    return [[(line, "")] for line in wrapped]


def _summary(report: ShapeReport) -> str:
    parts: list[str] = []
    for status in ("failed", "ok", "skipped"):
        number = sum(check.status == status for check in report.checks)
        if number:
            parts.append(f"{number} {status}")
    return f"{', '.join(parts)} of {len(report.checks)} checks"
