"""A simulator in its own process: the parent's handle and the child's loop.

The child is a fresh interpreter (`python -m`), not a `multiprocessing` spawn, which would import
the parent's main script and with it torch. Parent and child share a socket and the memory of
`SharedArrays`; a message is a small pickle. When either side dies the other reads the end of the
socket: the child leaves, the parent raises.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joyrlinf_core.errors import SimulatorCrashError

if TYPE_CHECKING:
    from joyrlinf_core.config.schema import EnvConfig
    from joyrlinf_core.envs.base import Frame, Simulator
    from joyrlinf_core.envs.shared_arrays import SharedArrays, Sizes

_CLOSE_TIMEOUT_S = 5.0
_ONE_THREAD = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


class SimulatorProcess:
    """Parent's side. The constructor returns at once; `recv` waits for the simulator.

    Args:
        config: Env section, built in the child.
        index: Number of the process in its vector env, for messages.
        slots: Slots of the vector env that this process holds.
        memory: Sizes and arrays shared with the child; None for a process that only demonstrates.
    """

    def __init__(
        self,
        config: EnvConfig,
        *,
        index: int,
        slots: range,
        memory: tuple[Sizes, SharedArrays] | None = None,
    ) -> None:
        self.slots = slots
        self._name = f"simulator process {index} (slots {slots.start}-{slots.stop - 1})"
        ours, theirs = socket.socketpair()
        passed = [theirs.fileno()]
        if memory is not None:
            passed.append(memory[1].fd)
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, *map(str, passed)],
            pass_fds=passed,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            # stdout belongs to the results of the command.
            stdout=2,
        )
        theirs.close()
        self.connection = Connection(ours.detach())
        # The paths go first: without them the child may be unable to unpickle the config.
        self._send(sys.path)
        self._send((config, slots, memory[0] if memory is not None else None))

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def send(self, method: str, *args: Any) -> None:
        """Ask for `_Server.<method>(*args)`; does not wait."""
        self._send((method, args))

    def recv(self) -> Any:
        """Wait for the answer to the oldest message, the start-up being the first.

        Raises:
            SimulatorCrashError: The process raised (with its traceback) or died (with the reason).
        """
        try:
            ok, value = self.connection.recv()
        except (EOFError, ConnectionError) as error:
            raise SimulatorCrashError(
                f"{self._name} {self._how_it_died()}",
                fix="its last words are in the log; a kill by signal 9 is most often the "
                "kernel out of memory: lower env.train.total_num_envs or num_workers",
            ) from error
        if not ok:
            raise SimulatorCrashError(f"{self._name} raised an exception:\n{value}")
        return value

    def hang_up(self) -> None:
        """Tell the process to leave; does not wait."""
        self.connection.close()

    def wait(self, seconds: float) -> None:
        """Wait until it left, and kill it when it does not."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _send(self, message: Any) -> None:
        try:
            self.connection.send(message)
        except ConnectionError:
            # `recv` reads the reason, which may be an exception that the child still sent.
            return

    def _how_it_died(self) -> str:
        try:
            code = self._process.wait(_CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return "closed its connection"
        if code >= 0:
            return f"ended with exit code {code}"
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"


def close_all(processes: list[SimulatorProcess]) -> None:
    """End processes, all at once."""
    for process in processes:
        process.hang_up()
    deadline = time.monotonic() + _CLOSE_TIMEOUT_S
    for process in processes:
        # One time-out for all: those that are left may all be in a long step.
        process.wait(max(0.0, deadline - time.monotonic()))


def _environment() -> dict[str, str]:
    environment = dict(os.environ)
    environment.update(dict.fromkeys(_ONE_THREAD, "1"))
    root = str(Path(__file__).resolve().parents[2])
    path = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = f"{root}{os.pathsep}{path}" if path else root
    return environment


class _Server:
    """Child's side: the methods that the parent may call."""

    def __init__(self, simulator: Simulator, first_slot: int, arrays: SharedArrays | None) -> None:
        self._simulator = simulator
        self._first = first_slot
        self._arrays = arrays

    def reset(self, slots: list[int], episodes: list[Any]) -> None:
        """Start episodes; the frames go to shared memory."""
        frame = self._simulator.reset([slot - self._first for slot in slots], episodes)
        self._write(slots, frame)

    def chunk_step(self, slots: list[int], chunk: int, final_frames: bool) -> None:  # noqa: FBT001
        """Execute the actions that lie in shared memory."""
        arrays = self._arrays
        if arrays is None:
            raise TypeError("this process shares no memory with its parent")
        result = self._simulator.chunk_step(
            [slot - self._first for slot in slots],
            arrays.actions[slots, :chunk],
            final_frames=final_frames,
        )
        arrays.rewards[slots, :chunk] = result.rewards
        arrays.terminations[slots, :chunk] = result.terminations
        arrays.truncations[slots, :chunk] = result.truncations
        arrays.success[slots] = result.success
        arrays.steps[slots] = result.steps
        self._write(slots, result.frame)

    def demonstrate(self, episode: Any, options: dict[str, Any]) -> Any:
        """Return a `Demonstration`."""
        return self._simulator.demonstrate(episode, **options)

    def _write(self, slots: list[int], frame: Frame) -> None:
        if self._arrays is None:
            raise TypeError("this process shares no memory with its parent")
        self._arrays.images[slots] = frame.images
        self._arrays.state[slots] = frame.state
        self._arrays.task[slots] = frame.task


def serve(connection: Connection, memory_fd: int | None) -> None:
    """Build the simulator that the parent names, then answer until the parent hangs up."""
    simulator: Simulator | None = None
    try:
        sys.path[:] = connection.recv()
        config, slots, sizes = connection.recv()
        arrays = None
        if memory_fd is not None:
            from joyrlinf_core.envs.shared_arrays import SharedArrays

            arrays = SharedArrays(sizes, memory_fd)
        built = simulator = config.build(len(slots))
        server = _Server(built, slots.start, arrays)
        connection.send((True, None))
        while True:
            method, args = connection.recv()
            connection.send((True, getattr(server, method)(*args)))
    except (EOFError, ConnectionError):
        # The parent hung up, or is gone.
        return
    except Exception:
        # The parent raises it with this traceback, unless it has given up on this process.
        with suppress(ConnectionError):
            connection.send((False, traceback.format_exc()))
    finally:
        if simulator is not None:
            simulator.close()


def main() -> None:
    """Entry point of the child process; arguments are file descriptors."""
    # Ctrl-C reaches the whole terminal group; only the launcher decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    fds = [int(argument) for argument in sys.argv[1:]]
    serve(Connection(fds[0]), fds[1] if len(fds) > 1 else None)


if __name__ == "__main__":
    main()
