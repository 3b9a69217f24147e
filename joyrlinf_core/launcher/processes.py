"""Ends every process of a launch, whatever became of its parents."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from joyrlinf_core.observability import worker_variables
from joyrlinf_core.observability.liveness import ProcessId
from joyrlinf_core.observability.rank_status import read_all
from joyrlinf_core.observability.run_dir import RunDir


class Launch:
    """The processes of one launch: torchrun, the workers, and their simulators.

    torchrun gives each worker a session of its own, so no single process group holds them all.
    They are known by a variable that each inherits; where the system does not show environments,
    by the process groups of torchrun and of the workers' status files.

    Args:
        launch_id: Value of `worker_variables.LAUNCH_ID` in this launch.
        torchrun: Process id of torchrun, which leads its own session.
        run_dir: The run directory.
        ranks: Ranks of this node; the directory may hold statuses of other machines.
        since: When the launch began, seconds since the epoch; older statuses are of other launches.
    """

    def __init__(
        self, launch_id: str, torchrun: int, run_dir: RunDir, ranks: range, since: float
    ) -> None:
        self._marker = f"{worker_variables.LAUNCH_ID}={launch_id}".encode()
        self._torchrun = ProcessId.of(torchrun)
        self._run_dir = run_dir
        self._ranks = ranks
        self._since = since

    def alive(self) -> list[int]:
        """Return the ids of all processes that still run."""
        if Path("/proc/self/environ").exists():
            return [pid for pid in _all_pids() if self._is_ours(pid)]
        return [process.pid for process in self._leaders() if process.alive]

    def kill(self, wait_seconds: float = 5.0) -> None:
        """Kill everything at once; return when it is gone, or after `wait_seconds`."""
        deadline = time.monotonic() + wait_seconds
        while True:
            for process in self._leaders():
                if process.alive:
                    _signal_group(process.pid, signal.SIGKILL)
            remaining = self.alive()
            for pid in remaining:
                _signal(pid, signal.SIGKILL)
            if not remaining or time.monotonic() > deadline:
                return
            time.sleep(0.05)

    def signal_workers(self, number: signal.Signals) -> None:
        """Send a signal to every running worker, not to its simulators."""
        for process in self._workers():
            if process.alive:
                _signal(process.pid, number)

    def _workers(self) -> list[ProcessId]:
        return [
            ProcessId.parse(status.process)
            for status in read_all(self._run_dir.logs)
            if status.rank in self._ranks and status.time >= self._since
        ]

    def _leaders(self) -> list[ProcessId]:
        return [self._torchrun, *self._workers()]

    def _is_ours(self, pid: int) -> bool:
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        return self._marker in environment.split(b"\0")


def _all_pids() -> Iterable[int]:
    own = os.getpid()
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208
    return (pid for pid in pids if pid != own)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _signal_group(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return
