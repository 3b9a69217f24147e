"""Paths inside a run directory, in one place.

`{log_path}/{experiment_name}/runs/YYYYMMDD_HHMMSS/` as in docs/architecture.md. Standard library
alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunDir:
    """A run directory and the names in it."""

    root: Path

    @property
    def config(self) -> Path:
        """Resolved config."""
        return self.root / "config.yaml"

    @property
    def plan(self) -> Path:
        """The plan that workers read."""
        return self.root / "plan.json"

    @property
    def events(self) -> Path:
        """Event stream."""
        return self.root / "events.jsonl"

    def node_events(self, node: int) -> Path:
        """Event stream of a node other than that of the metrics rank.

        Machines that share a file system can't append to one file without losing lines.
        """
        return self.logs / f"events_node{node}.jsonl"

    @property
    def perf_summary(self) -> Path:
        """Throughput and phase shares, rewritten each step."""
        return self.root / "perf_summary.json"

    @property
    def tensorboard(self) -> Path:
        """TensorBoard files."""
        return self.root / "tb"

    @property
    def logs(self) -> Path:
        """Logs, one file per node and rank, and `launcher.log`."""
        return self.root / "logs"

    @property
    def profiler(self) -> Path:
        """Traces."""
        return self.root / "profiler"

    @property
    def checkpoints(self) -> Path:
        """Checkpoints."""
        return self.root / "checkpoints"

    @property
    def stop_request(self) -> Path:
        """Exists when the run shall finish its step, save and end."""
        return self.root / "stop_requested"

    @property
    def lock(self) -> Path:
        """Locked by the launcher that works here; names its process and host."""
        return self.root / "launcher.lock"

    def rank_log(self, node: int, rank: int) -> Path:
        """Standard output and error of one worker."""
        return self.logs / f"node{node}_rank{rank}.log"

    def rank_status(self, rank: int) -> Path:
        """`status.json` of one worker: pid, state, exit code, error with traceback and time."""
        return self.logs / f"status_rank{rank}.json"

    def checkpoint(self, step: int) -> Path:
        """Directory of one checkpoint; the files lie in `actor/` below it."""
        return self.checkpoints / f"global_step_{step}"
