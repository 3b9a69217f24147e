"""The steps of `nccl-test`, the same list on every rank. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Literal

from joyrlinf_core.plan.placement import as_ranges

OperationName = Literal["connect", "p2p", "all_to_all", "broadcast", "all_reduce"]

FIRST_STEP = 1
"""Step 0 is the start of the workers, until all of them have met."""

THE_END = "the end"
"""Stands for a step when all steps are made."""


@dataclass(frozen=True)
class LinkGroup:
    """One process group with one of its backends.

    Attributes:
        name: What the run uses it for; `world` for all ranks.
        backend: `gloo` or `nccl`.
        on_device: Whether the tensors are on the GPU.
        ranks: Global ranks, ascending.
        root: Global rank that broadcasts.
        same_as: Name of an earlier group of the same ranks and backend, which was measured; this
            one is checked at the smallest size only. Empty for none.
    """

    name: str
    backend: str
    on_device: bool
    ranks: tuple[int, ...]
    root: int
    same_as: str = ""

    @property
    def label(self) -> str:
        """Name and backend, for people."""
        return f"{self.name} ({self.backend})"


@dataclass(frozen=True)
class LinkStep:
    """One operation at one size.

    Attributes:
        index: Number of the step.
        group: Number of its group.
        operation: What is done; `connect` is the first collective of a group.
        ranks: Global ranks that take part; the others wait.
        nbytes: Size that was asked for; 0 for `connect`.
        text: The step in words.
    """

    index: int
    group: int
    operation: OperationName
    ranks: tuple[int, ...]
    nbytes: int
    text: str


def without_repeats(groups: Sequence[LinkGroup]) -> tuple[LinkGroup, ...]:
    """Return the groups with `same_as` set."""
    first: dict[tuple[tuple[int, ...], str], str] = {}
    marked: list[LinkGroup] = []
    for group in groups:
        kind = group.ranks, group.backend
        marked.append(replace(group, same_as=first.get(kind, "")))
        first.setdefault(kind, group.name)
    return tuple(marked)


def make_steps(
    groups: Sequence[LinkGroup], sizes: Sequence[int], *, per_pair: bool
) -> tuple[LinkStep, ...]:
    """Return what is done, in order.

    Args:
        groups: Groups of at least two ranks.
        sizes: Bytes, ascending.
        per_pair: Every pair of a group, not only neighbours.
    """
    steps: list[LinkStep] = []

    def add(number: int, operation: OperationName, ranks: tuple[int, ...], nbytes: int) -> None:
        pair = f" {ranks[0]}-{ranks[1]}" if operation == "p2p" else ""
        size = f" {size_text(nbytes)}" if nbytes else ""
        text = f"{operation}{pair}{size} of {groups[number].label}"
        steps.append(LinkStep(len(steps) + FIRST_STEP, number, operation, ranks, nbytes, text))

    for number, group in enumerate(groups):
        chosen = sizes[:1] if group.same_as else sizes
        add(number, "connect", group.ranks, 0)
        for pair in pairs(group.ranks, every=per_pair and not group.same_as):
            for nbytes in chosen:
                add(number, "p2p", pair, nbytes)
        for operation in ("all_to_all", "broadcast", "all_reduce"):
            for nbytes in chosen:
                add(number, operation, group.ranks, nbytes)
    return tuple(steps)


def pairs(ranks: tuple[int, ...], *, every: bool) -> list[tuple[int, int]]:
    """Return every pair, or those of neighbours in a ring."""
    if every:
        return list(combinations(ranks, 2))
    ring = list(pairwise(ranks))
    return [*ring, (ranks[0], ranks[-1])] if len(ranks) > 2 else ring


def bus_factor(operation: OperationName, ranks: int) -> float:
    """Return bus bandwidth / algorithm bandwidth, as nccl-tests defines it.

    Algorithm bandwidth is buffer bytes / time. Bus bandwidth is what the busiest link carried, so
    that it compares with the link's own rate whatever the number of ranks n: each number of an
    all-reduce crosses it 2(n-1)/n times (reduce-scatter, then all-gather), (n-1)/n of an all-to-all
    buffer leave the rank, and a broadcast or a message crosses it once.
    """
    if operation == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if operation == "all_to_all" else 1.0


def size_text(nbytes: int) -> str:
    """Return for example `64 KiB`."""
    size, unit = float(nbytes), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if round(size, 1) < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.4g} {unit}"


def rank_text(ranks: tuple[int, ...]) -> str:
    """Return for example `rank 3`, or `ranks 0-2,5`."""
    return f"rank{'s' if len(ranks) > 1 else ''} {as_ranges(ranks)}"
