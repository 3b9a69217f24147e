"""A few lines on a node that has no metrics to show: they are on another one."""

from __future__ import annotations

from typing import TextIO

from joyrlinf_core.observability.events import Record, RunStarted, Warned
from joyrlinf_core.observability.run_dir import RunDir
from joyrlinf_core.plan.run_plan import RunPlan


class FollowConsole:
    """Says where to look, and what goes wrong here.

    Args:
        plan: The plan.
        run_dir: The run directory.
        speaker: The node that shows the job.
        stream: Where to.
    """

    def __init__(self, plan: RunPlan, run_dir: RunDir, speaker: str, stream: TextIO) -> None:
        self._job = plan.job
        self._stream = stream
        self._say(f"run directory {run_dir.root}; its console is on {speaker}")

    def on_record(self, record: Record) -> None:
        """Write that the workers are up, and warnings of this node's ranks."""
        event = record.event
        if isinstance(event, RunStarted):
            self._say(f"the {event.world_size} workers of all nodes are up")
        elif isinstance(event, Warned):
            fix = f"\n  fix: {event.fix}" if event.fix else ""
            self._say(f"rank {record.rank}: warning[{event.code}]: {event.message}{fix}")

    def on_notice(self, text: str) -> None:
        """Write a message of the launcher."""
        self._say(text)

    def on_tick(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing stays open."""

    def _say(self, line: str) -> None:
        self._stream.write(f"{self._job}: {line}\n")
        self._stream.flush()
