"""What the workers of `nccl-test` write for the launcher, a line as soon as it is known. No torch.

A test that ends early leaves what it has measured.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from joyrlinf_core.diagnostics.links.facts import PairLinks, RankFacts
from joyrlinf_core.diagnostics.links.hardware import Link
from joyrlinf_core.diagnostics.links.steps import LinkGroup, LinkStep
from joyrlinf_core.observability.run_dir import RunDir


@dataclass(frozen=True)
class Row:
    """What one step gave.

    Attributes:
        step: Number of the step.
        nbytes: Bytes of the buffer.
        seconds: Of one call, on the slowest rank; of a message in one direction for `p2p`.
        calls: Number of calls over which that is the mean; the best of several such means.
        errors: What was wrong with the numbers that arrived, by rank as text.
    """

    step: int
    nbytes: int
    seconds: float
    calls: int
    errors: dict[str, str]


@dataclass(frozen=True)
class Measurements:
    """Everything in a journal; empty while nothing was written.

    Attributes:
        facts: By rank.
        groups: Tested groups.
        steps: What is to be done.
        links: What connects the measured pairs.
        rows: What was done so far.
    """

    facts: tuple[RankFacts, ...] = ()
    groups: tuple[LinkGroup, ...] = ()
    steps: tuple[LinkStep, ...] = ()
    links: PairLinks = field(default_factory=dict)
    rows: tuple[Row, ...] = ()


class Journal:
    """Writes.

    Args:
        run_dir: The directory of the launch.
    """

    def __init__(self, run_dir: RunDir) -> None:
        self._path = _path(run_dir)

    def begin(
        self,
        facts: Sequence[RankFacts],
        groups: Sequence[LinkGroup],
        steps: Sequence[LinkStep],
        links: PairLinks,
    ) -> None:
        """Write what is to be done."""
        self._write(
            {
                "facts": [asdict(one) for one in facts],
                "groups": [asdict(one) for one in groups],
                "steps": [asdict(one) for one in steps],
                "links": [[*key, asdict(link)] for key, link in links.items()],
            }
        )

    def add(self, row: Row) -> None:
        """Write what a step gave."""
        self._write(asdict(row))

    def _write(self, value: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(value) + "\n")


def read_journal(run_dir: RunDir) -> Measurements:
    """Return what was written so far."""
    try:
        text = _path(run_dir).read_text(encoding="utf-8")
    except FileNotFoundError:
        return Measurements()
    # The last line may be half-written; what follows its end is no line yet.
    lines = text[: text.rfind("\n") + 1].splitlines()
    if not lines:
        return Measurements()
    head = json.loads(lines[0])
    groups = (_with_tuples(one, "ranks") for one in head["groups"])
    steps = (_with_tuples(one, "ranks") for one in head["steps"])
    return Measurements(
        facts=tuple(RankFacts(**one) for one in head["facts"]),
        groups=tuple(LinkGroup(**one) for one in groups),
        steps=tuple(LinkStep(**one) for one in steps),
        links={(a, b, backend): Link(**link) for a, b, backend, link in head["links"]},
        rows=tuple(Row(**json.loads(line)) for line in lines[1:]),
    )


def _with_tuples(value: dict[str, Any], *names: str) -> dict[str, Any]:
    return {**value, **{name: tuple(value[name]) for name in names}}


def _path(run_dir: RunDir) -> Path:
    return run_dir.root / "links.jsonl"
