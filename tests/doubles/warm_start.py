"""Launches whose ranks need not import torch: a server forks them from a process that has.

Launcher, workers and what they do are the real ones. torchrun alone is played by `agent`, which
starts the ranks through the server, ends the others when one fails, and reports as torchrun does.

The ranks show the variable by which the launcher finds its processes, as if they had been started
with it. They are children of the server, not of the agent.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LAUNCH_ID = "JOYRL_LAUNCH_ID"
"""As in `worker_variables`, which the agent does not import: it shall start quickly."""

NO_LAUNCH = "0" * 32
"""In place of a launch id, of the same length."""

ENDING_SECONDS = 30.0
"""As long as torchrun waits for ranks that it has asked to end."""

PRELOADED = (
    "torch.utils.tensorboard.writer",
    "torch._dynamo",
    "joyrlinf_core.engine.async_runner",
    "joyrlinf_core.engine.sync_runner",
    "joyrlinf_core.policies.openpi.policy",
    "joyrlinf_core.algorithms.losses.actor",
    "joyrlinf_core.observability.sinks.tensorboard",
    "tests.doubles.faulty_worker",
    "tests.doubles.reach",
)


@contextmanager
def serving(directory: Path) -> Iterator[Path]:
    """Run a server; yield its socket.

    Args:
        directory: Where the socket goes; its path must be short.
    """
    path = directory / "warm"
    environment = {**os.environ, LAUNCH_ID: NO_LAUNCH}
    command = [sys.executable, "-m", "tests.doubles.warm_start", "serve", str(path)]
    process = subprocess.Popen(command, env=environment, cwd=Path(__file__).parents[2])
    try:
        deadline = time.monotonic() + 300
        while not path.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the server of warm starts did not start")
            time.sleep(0.05)
        yield path
    finally:
        process.kill()
        process.wait()


def command(server: Path, ranks: int, run_dir: Path) -> list[str]:
    """Return what the launcher starts in place of torchrun."""
    return [sys.executable, "-S", __file__, "agent", str(server), str(ranks), str(run_dir)]


@dataclass
class _Group:
    """Ranks of one launch, as the server sees them."""

    connection: socket.socket
    ranks: dict[int, int] = field(default_factory=dict)
    """Process id -> local rank."""


def serve(path: str) -> None:
    """Fork ranks when an agent asks for them, and tell it how they ended."""
    for name in PRELOADED:
        importlib.import_module(name)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{path}.new")
    listener.listen()
    listener.settimeout(0.02)
    Path(f"{path}.new").rename(path)
    groups: list[_Group] = []
    while True:
        with contextlib.suppress(TimeoutError):
            group = _Group(listener.accept()[0])
            groups.append(group)
            _fork_all(group, listener)
        while (ended := _reap()) is not None:
            pid, code = ended
            for group in groups:
                if pid in group.ranks:
                    with contextlib.suppress(OSError):  # the agent may be gone
                        _tell(group.connection, [group.ranks[pid], code])


def _reap() -> tuple[int, int] | None:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, os.waitstatus_to_exitcode(status)) if pid else None


def _fork_all(group: _Group, listener: socket.socket) -> None:
    message, descriptors, _, _ = socket.recv_fds(group.connection, 2**20, 2)
    asked = json.loads(message)
    for rank in range(asked["ranks"]):
        pid = os.fork()
        if not pid:
            listener.close()
            group.connection.close()
            _become_rank(asked, rank, descriptors)
        group.ranks[pid] = rank
    for descriptor in descriptors:
        os.close(descriptor)
    _tell(group.connection, {rank: pid for pid, rank in group.ranks.items()})


def _become_rank(asked: dict[str, Any], rank: int, descriptors: list[int]) -> None:
    code = 1
    try:
        os.setsid()
        for number, descriptor in zip((1, 2), descriptors, strict=True):
            os.dup2(descriptor, number)
        os.environ.clear()
        os.environ.update(asked["environment"])
        ranks = str(asked["ranks"])
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=ranks, GROUP_RANK="0")
        _show_launch(os.environ[LAUNCH_ID])
        from tests.doubles import faulty_worker

        code = faulty_worker.main(Path(asked["run_dir"]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _show_launch(launch_id: str) -> None:
    """Show a launch id in the environment that the system shows of this process."""
    shown = Path("/proc/self/environ").read_bytes()
    place = shown.index(f"{LAUNCH_ID}={NO_LAUNCH}".encode()) + len(LAUNCH_ID) + 1
    values = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    env_start = int(values[47])  # field 50 of proc(5); the first one here is field 3
    assert len(launch_id) == len(NO_LAUNCH)
    with Path("/proc/self/mem").open("r+b", buffering=0) as memory:
        memory.seek(env_start + place)
        memory.write(launch_id.encode())


def agent(server: str, ranks: str, run_dir: str) -> int:
    """Play torchrun; return its exit code."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(server)
    asked = {"environment": dict(os.environ), "ranks": int(ranks), "run_dir": run_dir}
    socket.send_fds(connection, [json.dumps(asked).encode()], [1, 2])
    told = _messages(connection)
    pids = {int(rank): pid for rank, pid in next(told).items()}
    codes: dict[int, int] = {}
    for rank, code in told:
        codes[rank] = code
        del pids[rank]
        if code and len(codes) == 1 + list(codes.values()).count(0):
            for pid in pids.values():
                os.kill(pid, signal.SIGTERM)
            signal.signal(signal.SIGALRM, lambda *_: [os.kill(p, 9) for p in pids.values()])
            signal.setitimer(signal.ITIMER_REAL, ENDING_SECONDS)
        if not pids:
            break
    for rank, code in codes.items():
        if code:
            print(f"failed (exitcode: {code}) local_rank: {rank} (pid: 0) of binary: warm")
    return int(any(codes.values()))


def _tell(connection: socket.socket, value: Any) -> None:
    connection.sendall(json.dumps(value).encode() + b"\n")


def _messages(connection: socket.socket) -> Iterator[Any]:
    for line in connection.makefile("rb"):
        yield json.loads(line)


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    if what == "serve":
        serve(*arguments)
    else:
        sys.exit(agent(*arguments))
