"""Sees from the workers' heartbeats that a rank keeps the others waiting. No torch.

All ranks go from step to step together, so a rank that hangs soon stops all: when none has got on
for the time-out, those that are behind, or did not come out of the operation, are the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from joyrlinf_core.diagnostics.links.steps import THE_END, LinkStep, rank_text
from joyrlinf_core.errors import RunFailedError
from joyrlinf_core.observability.events import Phase, Record

START_SECONDS = 120.0
"""Workers may take so long to start and to meet, and to end, whatever the time-out: importing torch
from a cold network disk does."""

_LOG = "the log tells what it does; --timeout SECONDS waits longer"
_NETWORK = "check the network and interfaces between them; --timeout SECONDS waits longer"


class StalledError(RunFailedError):
    """A rank keeps the others waiting.

    Attributes:
        ranks: Those ranks; empty where all wait for one another.
        step: The step that does not end.
    """

    def __init__(self, message: str, ranks: tuple[int, ...], step: int, *, fix: str) -> None:
        super().__init__(message, fix=fix)
        self.ranks = ranks
        self.step = step


class Watch:
    """Listens to the events of a launch, and ends it with `StalledError`.

    Args:
        world: Number of ranks.
        timeout: Seconds.
        read_steps: Returns the steps by index; empty while the workers have not written them.
        on_step: Told of each step that the first rank enters.
        clock: Seconds.
    """

    def __init__(
        self,
        world: int,
        timeout: float,
        read_steps: Callable[[], Mapping[int, LinkStep]],
        on_step: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._world = world
        self._timeout = timeout
        self._read_steps = read_steps
        self._on_step = on_step
        self._clock = clock
        self._seen: dict[int, Phase] = {}
        self._last_progress = clock()

    def restart(self) -> None:
        """Count the time from now on."""
        self._last_progress = self._clock()

    def on_record(self, record: Record) -> None:
        """Take a heartbeat."""
        event = record.event
        if not isinstance(event, Phase):
            return
        before = self._seen.get(record.rank)
        if before is not None and (event.step, event.done) <= (before.step, before.done):
            return  # said again, by the thread that says that a process lives
        front = max((phase.step for phase in self._seen.values()), default=0)
        self._seen[record.rank] = event
        self._last_progress = self._clock()
        if event.step > front:
            self._on_step(event.phase)

    def on_notice(self, text: str) -> None:
        """Take a notice of the launcher: it speaks of training runs."""

    def on_tick(self) -> None:
        """Look whether anyone got on.

        Raises:
            StalledError: Nobody did, for too long.
        """
        front = max(self._seen.values(), key=lambda phase: phase.step, default=None)
        testing = front is not None and front.step > 0 and front.phase != THE_END
        limit = self._timeout if testing else max(self._timeout, START_SECONDS)
        if self._clock() - self._last_progress > limit:
            raise stalled(self._seen, self._world, self._read_steps(), limit)

    def last_seen(self, rank: int) -> str:
        """Return in words where a rank was, for a rank that died; empty before the first step."""
        phase = self._seen.get(rank)
        return "" if phase is None or phase.step == 0 else _last_seen(phase)


def stalled(
    seen: Mapping[int, Phase], world: int, steps: Mapping[int, LinkStep], seconds: float
) -> StalledError:
    """Return the error that names who keeps whom waiting.

    Args:
        seen: Last heartbeat of each rank that sent one.
        world: Number of ranks.
        steps: Steps by index; may be empty.
        seconds: How long nobody has got on.
    """
    since = f"since {seconds:.0f} s"
    missing = tuple(rank for rank in range(world) if rank not in seen)
    if missing:
        if len(missing) == world:
            message = f"no rank has started within {seconds:.0f} s"
            return StalledError(message, missing, 0, fix=_LOG)
        message = f"{rank_text(missing)} did not start within {seconds:.0f} s; the others wait"
        return StalledError(message, missing, 0, fix=_LOG)
    front = max(phase.step for phase in seen.values())
    where = next(phase.phase for phase in seen.values() if phase.step == front)
    behind = tuple(rank for rank in range(world) if seen[rank].step < front)
    if behind:
        message = f"{rank_text(behind)} did not reach {where}; the others wait {since}"
        last = "; ".join(f"rank {rank} {_last_seen(seen[rank])}" for rank in behind[:4])
        return StalledError(f"{message}. Last seen: {last}", behind, front, fix=_LOG)
    members = steps[front].ranks if front in steps else tuple(range(world))
    least = min(seen[rank].done for rank in members)
    inside = tuple(rank for rank in members if seen[rank].done == least)
    if front == 0:
        message = f"all ranks have started, but have not met {since}"
    elif all(_ended(seen[rank]) for rank in members):
        message = f"all ranks are through {where}, but have not exchanged results {since}"
    elif inside == members:
        message = f"{rank_text(inside)} are in {where}, and none has come out {since}"
    else:
        verb = "is" if len(inside) == 1 else "are"
        message = f"{rank_text(inside)} {verb} stuck in {where}; the others wait {since}"
        return StalledError(message, inside, front, fix=_LOG)
    return StalledError(message, (), front, fix=_NETWORK)


def _ended(phase: Phase) -> bool:
    return phase.total > 0 and phase.done >= phase.total


def _last_seen(phase: Phase) -> str:
    if phase.step == 0:
        return "at its start"
    return f"{'after' if _ended(phase) else 'in'} {phase.phase}"
