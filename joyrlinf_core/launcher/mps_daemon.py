"""One control daemon of CUDA MPS, known by the private directory of its launch.

The daemon starts an MPS server, the process that owns the GPUs, and both inherit a variable that no
other process has. By it they are found again whatever became of the process that started them.
Nothing here is ever said to another daemon: each command goes to the pipe of this one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from joyrlinf_core.observability.liveness import ProcessId

CONTROL = "nvidia-cuda-mps-control"
PIPE = "CUDA_MPS_PIPE_DIRECTORY"
LOG = "CUDA_MPS_LOG_DIRECTORY"
MARK = "JOYRL_MPS"
"""Variable of daemon and server: the private directory of their launch."""

SOCKET_PATH_BYTES = 107
"""Longest path of a socket on Linux."""

QUIT_SECONDS = 5.0
KILL_SECONDS = 5.0
_LONGEST_SOCKET = "control_privileged"
_PID_FILE = f"{CONTROL}.pid"
_POLL_SECONDS = 0.05
_START = f'trap "" HUP INT TERM; exec {CONTROL} -d'
"""A scheduler sends SIGTERM to every process of a job. Workers that then save need the daemon."""

_COMM = CONTROL[:15]
"""How the kernel names daemon and server."""


class MpsDaemon:
    """The daemon of a launch on this node.

    Args:
        place: Private directory of the launch.
    """

    def __init__(self, place: Path) -> None:
        self._mark = f"{MARK}={place}".encode()
        self.pipe = place / "mps"
        self.logs = place / "mps-logs"
        self.variables: Mapping[str, str] = {PIPE: str(self.pipe), LOG: str(self.logs)}
        """What clients need."""

    @property
    def path_fits(self) -> bool:
        """Whether the names of its sockets are short enough."""
        return len(os.fsencode(self.pipe / _LONGEST_SOCKET)) <= SOCKET_PATH_BYTES

    def start(self, devices: str, seconds: float) -> int | None:
        """Start it; only its answers show whether it works.

        Args:
            devices: CUDA_VISIBLE_DEVICES of the server.
            seconds: How long the command may take.

        Returns:
            Exit code of the command, None if it took too long.

        Raises:
            OSError: No process can be started.
        """
        self.pipe.mkdir()
        self.logs.mkdir()
        environment = {
            **os.environ,
            **self.variables,
            "CUDA_VISIBLE_DEVICES": devices,
            MARK: str(self.pipe.parent),
        }
        # The daemon inherits the output, so that a pipe would stay open as long as it runs.
        with (self.logs / "start.log").open("wb") as output:
            process = subprocess.Popen(
                ["sh", "-c", _START],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return None

    def ask(self, command: str, seconds: float) -> str | None:
        """Return the answer to a command of its control program; None if there is none."""
        try:
            done = subprocess.run(
                [CONTROL],
                input=command + "\n",
                capture_output=True,
                text=True,
                timeout=max(seconds, 0.1),
                check=False,
                env={**os.environ, **self.variables},
                start_new_session=True,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode == 0 else None

    def processes(self) -> list[ProcessId]:
        """Return daemon and server, as far as they run: the daemon first."""
        daemon = self._daemon()
        marked = {pid for pid in _pids() if self._mark in _environment(pid)}
        # A process may hide its environment; then the daemon's own file and its children tell.
        children = {pid for pid in _pids() if daemon is not None and _parent(pid) == daemon}
        others = sorted((marked | children) - {daemon, os.getpid()})
        pids = others if daemon is None else [daemon, *others]
        return [process for process in map(ProcessId.of, pids) if process.alive]

    def clients(self) -> bool:
        """Say whether a process that was given the pipe still runs."""
        pipe = f"{PIPE}={self.pipe}".encode()
        environments = (_environment(pid) for pid in _pids())
        return any(pipe in found and self._mark not in found for found in environments)

    def stop(self) -> None:
        """End daemon and server: first it is asked to, then both are killed."""
        known = self.processes()
        if known:
            self.ask("quit", QUIT_SECONDS)
        _wait(known, QUIT_SECONDS)
        deadline = time.monotonic() + KILL_SECONDS
        # The daemon goes first: it would start a new server.
        while remaining := [p for p in (*known, *self.processes()) if p.alive]:
            for process in dict.fromkeys(remaining):
                _kill(process)
            if time.monotonic() > deadline:
                return
            time.sleep(_POLL_SECONDS)

    def last_line(self) -> str:
        """Return the last line of its log, or of what it printed; empty where it said nothing."""
        for name in ("server.log", "control.log", "start.log"):
            lines = [line for line in self.log(name).splitlines() if line.strip()]
            if lines:
                return lines[-1].strip()
        return ""

    def log(self, name: str) -> str:
        """Return the text of one of its logs; empty without it."""
        try:
            return (self.logs / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def _daemon(self) -> int | None:
        """Return the process that its pid file names, if it is one of MPS."""
        try:
            pid = int((self.pipe / _PID_FILE).read_text(encoding="ascii"))
            command = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace")
        except (OSError, ValueError):
            return None
        return pid if command.strip() == _COMM else None


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _parent(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[1])


def _wait(processes: list[ProcessId], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(process.alive for process in processes) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _kill(process: ProcessId) -> None:
    try:
        os.kill(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
