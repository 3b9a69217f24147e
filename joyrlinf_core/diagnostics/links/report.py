"""What `nccl-test` found: rates by group, operation and size, and slow pairs. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from joyrlinf_core.diagnostics.links.facts import IN_MEMORY, RankFacts
from joyrlinf_core.diagnostics.links.hardware import UNKNOWN, Link
from joyrlinf_core.diagnostics.links.journal import Measurements
from joyrlinf_core.diagnostics.links.steps import (
    LinkGroup,
    LinkStep,
    OperationName,
    bus_factor,
    rank_text,
)

SLOW_SHARE = 0.5
"""A pair with less than this share of the best pair over the same kind of link is marked."""

MIN_RATE_BYTES = 2**20
"""Smaller messages measure latency; they tell nothing of a link's rate."""


@dataclass(frozen=True)
class ResultRow:
    """One operation at one size.

    Attributes:
        operation: Name.
        ranks: Global ranks that took part.
        nbytes: Bytes of the buffer.
        seconds: Of one call.
        calls: Calls that were timed.
        algorithm_rate: Bytes of the buffer / time.
        bus_rate: The same times `bus_factor`.
        errors: What was wrong with the numbers, by rank.
    """

    operation: OperationName
    ranks: tuple[int, ...]
    nbytes: int
    seconds: float
    calls: int
    algorithm_rate: float
    bus_rate: float
    errors: dict[str, str]


@dataclass(frozen=True)
class PairResult:
    """One pair of ranks.

    Attributes:
        ranks: The two.
        link: What connects them.
        latency: Seconds of its smallest message.
        nbytes: Its largest message.
        rate: Bytes per second of that one.
        share: Of the best pair over the same kind of link.
        slow: Whether it is far below that one.
    """

    ranks: tuple[int, ...]
    link: Link
    latency: float
    nbytes: int
    rate: float
    share: float
    slow: bool


@dataclass(frozen=True)
class GroupResult:
    """One group.

    Attributes:
        group: The group.
        link: The slowest known link between its pairs; unknown if one of them is.
        connect_seconds: Of the first collective, which makes the connections.
        rows: By operation and size.
        pairs: By pair.
    """

    group: LinkGroup
    link: Link
    connect_seconds: float | None
    rows: tuple[ResultRow, ...]
    pairs: tuple[PairResult, ...]


@dataclass(frozen=True)
class Failure:
    """Why a test did not end well.

    Attributes:
        message: In a line.
        ranks: Who is to blame; empty where that is not known.
        detail: A traceback, or the last lines of a log; may be empty.
        fix: What to do; may be empty.
        log: Where to read on; empty for nowhere.
    """

    message: str
    ranks: tuple[int, ...] = ()
    detail: str = ""
    fix: str = ""
    log: str = ""


@dataclass(frozen=True)
class LinkReport:
    """Everything that a test gave.

    Attributes:
        world_size: Ranks.
        nodes: Machines.
        facts: By rank; empty if the test ended before.
        groups: Tested groups, with what was measured before the end.
        steps_left: Steps that were not made.
        failure: Why it ended early, or what was wrong; None if all is well.
        exit_code: Of the command.
    """

    world_size: int
    nodes: int
    facts: tuple[RankFacts, ...]
    groups: tuple[GroupResult, ...]
    steps_left: int
    failure: Failure | None
    exit_code: int

    def to_json(self) -> dict[str, object]:
        """Return the report as JSON-able values."""
        return {"ok": self.exit_code == 0, **asdict(self)}


def group_results(measured: Measurements) -> tuple[GroupResult, ...]:
    """Return what was measured, by group."""
    return tuple(
        _group_result(measured, number, group) for number, group in enumerate(measured.groups)
    )


def _group_result(measured: Measurements, number: int, group: LinkGroup) -> GroupResult:
    steps = {step.index: step for step in measured.steps if step.group == number}
    rows: list[ResultRow] = []
    connect: float | None = None
    for row in measured.rows:
        step = steps.get(row.step)
        if step is None:
            continue
        if step.operation == "connect":
            connect = row.seconds
            if not row.errors:
                continue
        rate = row.nbytes / max(row.seconds, 1e-9)
        bus = rate * bus_factor(step.operation, len(step.ranks))
        rows.append(
            ResultRow(
                step.operation, step.ranks, row.nbytes, row.seconds, row.calls, rate, bus,
                row.errors,
            )
        )  # fmt: skip
    links = _links(measured, steps.values(), group.backend)
    pairs = compare_pairs(rows, links)
    return GroupResult(group, slowest(links.values()), connect, tuple(rows), pairs)


def _links(
    measured: Measurements, steps: Iterable[LinkStep], backend: str
) -> dict[tuple[int, ...], Link]:
    pairs = {step.ranks for step in steps if step.operation == "p2p"}
    return {pair: measured.links.get((pair[0], pair[1], backend), UNKNOWN) for pair in pairs}


def slowest(links: Iterable[Link]) -> Link:
    """Return the link that bounds operations over all of them."""
    known = list(dict.fromkeys(links))
    if not known:
        return UNKNOWN
    if len(known) == 1:
        return known[0]
    blind = [link for link in known if link.bytes_per_second is None]
    return blind[0] if blind else min(known, key=lambda link: link.bytes_per_second or 0.0)


def compare_pairs(
    rows: Sequence[ResultRow], links: dict[tuple[int, ...], Link]
) -> tuple[PairResult, ...]:
    """Return the pairs of one group, each compared with the best over the same kind of link.

    Args:
        rows: Of the group.
        links: What connects each pair.
    """
    by_pair: dict[tuple[int, ...], list[ResultRow]] = {}
    for row in rows:
        if row.operation == "p2p":
            by_pair.setdefault(row.ranks, []).append(row)
    largest = {pair: max(own, key=lambda row: row.nbytes) for pair, own in by_pair.items()}
    best: dict[tuple[Link, int], float] = {}
    for pair, row in largest.items():
        kind = links.get(pair, UNKNOWN), row.nbytes
        best[kind] = max(best.get(kind, 0.0), row.algorithm_rate)
    results: list[PairResult] = []
    for pair, own in by_pair.items():
        link, row = links.get(pair, UNKNOWN), largest[pair]
        share = row.algorithm_rate / best[link, row.nbytes]
        # Between processes of one machine Gloo is as fast as their cores, not as a link.
        slow = share < SLOW_SHARE and row.nbytes >= MIN_RATE_BYTES and link not in IN_MEMORY
        latency = min(own, key=lambda one: one.nbytes).seconds
        results.append(PairResult(pair, link, latency, row.nbytes, row.algorithm_rate, share, slow))
    return tuple(results)


def wrong_numbers(groups: Sequence[GroupResult]) -> Failure | None:
    """Return the failure of a test in which wrong numbers arrived; None if none did."""
    for result in groups:
        for row in result.rows:
            for rank, error in row.errors.items():
                what = f"{row.operation} of {row.nbytes} bytes in {result.group.label}"
                between = f" ({rank_text(row.ranks)})" if row.operation == "p2p" else ""
                return Failure(
                    f"rank {rank} got wrong numbers from {what}{between}: {error}",
                    ranks=(int(rank),),
                    fix="hardware, driver or backend corrupts data: run again with "
                    "NCCL_P2P_DISABLE=1, then without one of the machines",
                )
    return None
