"""What `joyrl nccl-test` prints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import TextIO

from joyrlinf_cli.render.table import heading, table
from joyrlinf_cli.render.text import Line
from joyrlinf_core.diagnostics.links.facts import BACKEND_VARIABLES, RankFacts
from joyrlinf_core.diagnostics.links.hardware import Link
from joyrlinf_core.diagnostics.links.report import (
    Failure,
    GroupResult,
    LinkReport,
    PairResult,
    ResultRow,
)
from joyrlinf_core.diagnostics.links.steps import rank_text, size_text
from joyrlinf_core.plan.placement import as_ranges

_UNITS = "GB/s: 1e9 bytes of the buffer a second; bus GB/s: what the busiest link carried of it"


@contextmanager
def step_display(stream: TextIO) -> Iterator[Callable[[str], None]]:
    """Give a function that shows the current step on one line of a terminal, else nowhere."""
    if not stream.isatty():
        yield lambda _text: None
        return

    def show(text: str) -> None:
        stream.write(f"\r\x1b[K{text[:100]}")
        stream.flush()

    try:
        yield show
    finally:
        stream.write("\r\x1b[K")
        stream.flush()


def report_json(report: LinkReport) -> str:
    """Return the report as one JSON document."""
    return json.dumps({"schema": 1, **report.to_json()}, indent=2)


def report_lines(report: LinkReport) -> list[Line]:
    """Return the report as tables, one a group."""
    if report.world_size == 1:
        return [[("one rank: nothing travels between processes, nothing to test", "")]]
    lines = _fact_lines(report.facts)
    for result in report.groups:
        lines += _group_lines(result)
    if report.groups:
        lines += [[], [(f"  {_UNITS}", "dim")], [_verdict(report)]]
    return lines


def failure_lines(failure: Failure) -> list[Line]:
    """Return why a test failed."""
    lines: list[Line] = [[("error: ", "bold red"), (failure.message, "")]]
    lines += [[(f"  | {line}", "")] for line in failure.detail.rstrip().splitlines()]
    if failure.fix:
        lines.append([(f"  fix: {failure.fix}", "")])
    if failure.log:
        lines.append([(f"  log: {failure.log}", "")])
    return lines


def _verdict(report: LinkReport) -> tuple[str, str]:
    rows = [row for result in report.groups for row in result.rows]
    wrong = sum(bool(row.errors) for row in rows)
    slow = sum(pair.slow for result in report.groups for pair in result.pairs)
    parts = [f"numbers wrong in {wrong} of {len(rows)} measurements" if wrong else ""]
    parts += [f"{len(rows)} measurements, all numbers right" if rows and not wrong else ""]
    parts += [f"{slow} slow pairs" if slow > 1 else "1 slow pair" if slow else ""]
    parts += [f"{report.steps_left} steps not made" if report.steps_left else ""]
    bad = wrong or report.failure
    style = "bold red" if bad else "bold yellow" if slow else "green"
    return "; ".join(part for part in parts if part) or "nothing was measured", style


def _fact_lines(facts: Sequence[RankFacts]) -> list[Line]:
    if not facts:
        return []
    first = facts[0]
    nodes = len({one.node for one in facts})
    nccl = f", NCCL {first.nccl}" if first.nccl else ""
    where = f"{nodes} nodes" if nodes > 1 else "1 node"
    lines: list[Line] = [[(f"{len(facts)} ranks on {where}, torch {first.torch}{nccl}", "bold")]]

    def alike(one: RankFacts) -> tuple[object, ...]:
        return one.node, one.host, one.device, tuple(sorted(one.variables.items()))

    for (node, host, device, variables), group in groupby(facts, key=alike):
        named = rank_text(tuple(one.rank for one in group))
        lines.append([(f"  {named}: {device}, node {node} ({host})", "")])
        shown = dict(variables)  # type: ignore[call-overload]
        shown = {name: shown.get(name, "not set") for name in (*BACKEND_VARIABLES, *shown)}
        lines.append([("    " + ", ".join(f"{k} {v}" for k, v in shown.items()), "dim")])
    return lines


def _group_lines(result: GroupResult) -> list[Line]:
    group = result.group
    where = "GPU" if group.on_device else "CPU"
    text = f"{group.name}: {group.backend}, ranks {as_ranges(group.ranks)}, {where} tensors"
    lines = heading(text)
    told = [f"link: {_link_text(result.link)}"]
    if result.connect_seconds is not None:
        told.append(f"first collective {_seconds_text(result.connect_seconds)}")
    lines.append([("  " + "; ".join(told), "dim")])
    if not result.rows:
        return [*lines, [("  nothing was measured", "")]]
    if group.same_as and not any(row.errors for row in result.rows):
        text = f"ranks and backend of {group.same_as}: checked, not measured again; numbers right"
        return [*lines, [(f"  {text}", "")]]
    headers = ["operation", "size", "latency", "GB/s", "bus GB/s", "of link", "numbers"]
    rows = [_cells(row, result.link) for row in _table_rows(result)]
    lines += table(headers, rows, right=headers[1:6])
    if len(result.pairs) > 1:
        lines += [[], *_pair_lines(result.pairs)]
    return lines


def _table_rows(result: GroupResult) -> list[ResultRow]:
    """Return the rows, of the pairs only the slowest at each size, and those with wrong numbers."""
    shown: list[ResultRow] = []
    worst: dict[int, ResultRow] = {}
    for row in result.rows:
        if row.operation != "p2p":
            shown.append(row)
        elif row.nbytes not in worst or row.seconds > worst[row.nbytes].seconds:
            worst[row.nbytes] = row
    wrong = [row for row in result.rows if row.operation == "p2p" and row.errors]
    of_pairs = {id(row): row for row in (*worst.values(), *wrong)}
    return [*sorted(of_pairs.values(), key=lambda row: row.nbytes), *shown]


def _cells(row: ResultRow, link: Link) -> list[str]:
    name = row.operation
    if row.operation == "p2p":
        name = f"p2p {row.ranks[0]}-{row.ranks[1]}"
    share = f"{row.bus_rate / link.bytes_per_second:.0%}" if link.bytes_per_second else "-"
    wrong = ", ".join(f"rank {rank}" for rank in row.errors)
    return [
        name,
        size_text(row.nbytes),
        _seconds_text(row.seconds),
        _rate(row.algorithm_rate),
        _rate(row.bus_rate),
        share,
        f"WRONG on {wrong}" if wrong else "right",
    ]


def _pair_lines(pairs: Sequence[PairResult]) -> list[Line]:
    headers = ["pair", "link", "latency", "at", "GB/s", "of best", ""]
    rows = [
        [
            f"{pair.ranks[0]}-{pair.ranks[1]}",
            _link_text(pair.link),
            _seconds_text(pair.latency),
            size_text(pair.nbytes),
            _rate(pair.rate),
            f"{pair.share:.0%}",
            "SLOW" if pair.slow else "",
        ]
        for pair in pairs
    ]
    return table(headers, rows, right=headers[2:6])


def _link_text(link: Link) -> str:
    if link.bytes_per_second is None:
        return link.name if link.name == "unknown" else f"{link.name}, speed unknown"
    return f"{link.name}, {link.bytes_per_second / 1e9:.3g} GB/s"


def _rate(bytes_per_second: float) -> str:
    rate = bytes_per_second / 1e9
    if rate < 0.01:
        return "<0.01"
    return f"{rate:.2f}" if rate < 9.995 else f"{rate:.1f}" if rate < 99.95 else f"{rate:.0f}"


def _seconds_text(seconds: float) -> str:
    for unit, factor in (("us", 1e6), ("ms", 1e3)):
        if seconds * factor < 999.5:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"
