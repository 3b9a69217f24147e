"""Who keeps the others waiting: judged by the events of each rank. Standard library alone.

A rank that hangs soon stops all others. Those wait for it and say so (`Alive.waits_for`), so the
silent rank that does not wait is the one to blame. Where all wait, they wait for one another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from joyrlinf_core.observability.events import Alive, Phase, Record

UNMEASURED = frozenset({"start", "load", "simulators", "save"})
"""Phases that give no sign of life until they are over, and may take long on a slow disk."""

UNMEASURED_FACTOR, UNMEASURED_SECONDS = 3.0, 300.0
"""In them a rank may be silent so many times longer, and at least so long."""

WARNING_SHARE, WARNING_SECONDS = 0.1, 30.0
"""A warning comes after this share of the limit, and not before so many seconds."""

_ACTIVITIES = {
    "start": "starting",
    "load": "loading the policy",
    "simulators": "starting simulators",
    "eval": "evaluation",
    "demos": "demonstrations",
    "sft": "SFT",
}
_UNITS = {"rollout": "chunk", "eval": "episode", "demos": "episode"}
_COUNTED_FROM_ONE = frozenset({"rollout", "update"})
"""Phases that make the step after those that are finished."""


@dataclass
class _Rank:
    """What is known of one rank.

    Attributes:
        phase: Its last one; None before its first.
        doing: What it works at inside the phase.
        beside: Another thread does, while the main one waits: not a part of the phase.
        waits_for: What it waits for; empty if it works.
        moved: When it last got on.
        warned: Seconds of silence that were warned of; 0 if none were.
    """

    moved: float
    phase: Phase | None = None
    doing: str = ""
    beside: bool = False
    waits_for: str = ""
    warned: float = 0.0

    def place(self) -> str:
        """Return in words where it is."""
        if self.waits_for:
            return f"waits for {self.waits_for}"
        if self.beside:
            return self.doing
        if self.phase is None:
            return "starting"
        inner = self.doing.rpartition("/")[2]
        text = phase_text(self.phase)
        return f"{text}, {inner}" if inner and inner != self.phase.phase else text


@dataclass(frozen=True)
class Silence:
    """A rank that has been silent for too long.

    Attributes:
        rank: Global rank.
        seconds: For how long.
        place: Where it is.
    """

    rank: int
    seconds: float
    place: str

    def __str__(self) -> str:
        return f"rank {self.rank}: {self.place}, {self.silence}"

    @property
    def silence(self) -> str:
        """The seconds in words."""
        return f"no sign of life for {self.seconds:.0f} s"


class Heartbeats:
    """Listens to the ranks of this node.

    Args:
        ranks: Global ranks.
        limit: `runner.stuck_after_seconds`; 0 never takes a rank for stuck.
        clock: Seconds.
    """

    def __init__(
        self, ranks: range, limit: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._limit = limit
        self._ranks = {rank: _Rank(clock()) for rank in ranks}

    def add(self, record: Record) -> None:
        """Take one event."""
        rank = self._ranks.get(record.rank)
        if rank is None:
            return
        rank.moved = self._clock()
        event = record.event
        if isinstance(event, Alive):
            rank.moved -= max(0.0, event.idle)
            rank.doing, rank.beside, rank.waits_for = event.doing, event.beside, event.waits_for
        elif isinstance(event, Phase):
            rank.phase, rank.doing, rank.beside, rank.waits_for = event, "", False, ""

    def stuck(self, ended: Collection[int]) -> list[Silence]:
        """Return the ranks that work, as far as they told, but do not get on; the longest first.

        Args:
            ended: Ranks that are through.
        """
        found = [
            self._silence(number)
            for number, rank in self._left(ended)
            if self._limit and not rank.waits_for and self._age(rank) > self._limit_of(rank)
        ]
        return sorted(found, key=lambda one: -one.seconds)

    def waiting(self, ended: Collection[int]) -> list[Silence]:
        """Return the ranks that wait for others, the longest first."""
        found = [self._silence(number) for number, rank in self._left(ended) if rank.waits_for]
        return sorted(found, key=lambda one: -one.seconds)

    def all_wait(self, ended: Collection[int]) -> bool:
        """Return whether every rank that is left has waited too long for others."""
        return self._limit > 0 and all(
            rank.waits_for and self._age(rank) > self._limit for _, rank in self._left(ended)
        )

    def warnings(self, ended: Collection[int]) -> list[str]:
        """Return what is to be said now of ranks that may be stuck, and of those that go on."""
        lines: list[str] = []
        for number, rank in self._left(ended):
            age, limit = self._age(rank), self._limit_of(rank)
            early = max(WARNING_SHARE * limit, WARNING_SECONDS)
            if rank.warned and age < WARNING_SECONDS:
                lines.append(f"rank {number} goes on after {rank.warned:.0f} s or more")
                rank.warned = 0.0
            elif self._limit and not rank.waits_for and max(early, 2 * rank.warned) < age < limit:
                rank.warned = age
                end = f"the run ends at {limit:.0f} s (runner.stuck_after_seconds)"
                lines.append(f"{self._silence(number)}; {end}")
        return lines

    def _left(self, ended: Collection[int]) -> Iterable[tuple[int, _Rank]]:
        return [(number, rank) for number, rank in self._ranks.items() if number not in ended]

    def _age(self, rank: _Rank) -> float:
        return self._clock() - rank.moved

    def _limit_of(self, rank: _Rank) -> float:
        unmeasured = rank.phase is None or rank.phase.phase in UNMEASURED
        if unmeasured and not rank.beside:
            return max(UNMEASURED_FACTOR * self._limit, UNMEASURED_SECONDS)
        return self._limit

    def _silence(self, number: int) -> Silence:
        rank = self._ranks[number]
        return Silence(number, self._age(rank), rank.place())


def phase_text(phase: Phase) -> str:
    """Return a phase in words, as in `rollout of step 12, chunk 3/6`."""
    text = _ACTIVITIES.get(phase.phase, phase.phase.replace("_", " "))
    step = phase.step + (phase.phase in _COUNTED_FROM_ONE)
    if step:
        text += f" of step {step}"
    if phase.total and phase.phase in _UNITS:
        text += f", {_UNITS[phase.phase]} {phase.done}/{phase.total}"
    return text
