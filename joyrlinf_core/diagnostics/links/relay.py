"""Heartbeats of ranks on other machines, for the launcher of this one.

A launcher reads the event file of its own machine. So that each of them can tell which rank of all
it is that the others wait for, one rank of a machine writes down there what the others say.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from joyrlinf_core.observability.emitter import Emitter
from joyrlinf_core.observability.events import Phase

if TYPE_CHECKING:
    from joyrlinf_core.comm.beats import Beats
    from joyrlinf_core.engine.context import JobContext

LOOK_SECONDS = 0.5


class Relay:
    """Tells the other machines how far this rank is, and writes down how far theirs are.

    Args:
        context: This worker, of a run on several machines.
    """

    def __init__(self, context: JobContext) -> None:
        from joyrlinf_core.comm.beats import Beats

        self._own = Beats(context.rank)
        place = context.plan.placement
        node = place.node_of(context.rank)
        if context.plan.ranks[context.rank].local_rank == 0:
            speaker = place.node_of(place.metrics_rank)
            run_dir = context.run_dir
            path = run_dir.events if node == speaker else run_dir.node_events(node)
            others = [rank for rank in range(place.world_size) if place.node_of(rank) != node]
            emitters = {rank: Emitter(run_dir, rank, path=path) for rank in others}
            # A connection of its own: it is used by another thread.
            arguments = (Beats(context.rank), emitters)
            threading.Thread(target=_write_down, args=arguments, name="relay", daemon=True).start()

    def tell(self, phase: Phase) -> None:
        """Say how far this rank is."""
        self._own.tell(json.dumps(asdict(phase)))


def _write_down(beats: Beats, emitters: dict[int, Emitter]) -> None:
    while True:
        try:
            heard = beats.hear(emitters)
        except RuntimeError:
            return  # the store, and with it node 0, has gone: the launchers see that themselves
        for rank, text in heard.items():
            emitters[rank].emit(Phase(**json.loads(text)))
        time.sleep(LOOK_SECONDS)
