"""`launcher.mps`: two processes share each GPU, through an MPS daemon of this launch alone.

Without MPS, kernels of two processes take turns on a GPU; with it they run side by side. A process
that finds no daemon would quietly run without, so everything is checked before a worker starts.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from joyrlinf_core.errors import EnvironmentNotReadyError
from joyrlinf_core.launcher import gpus
from joyrlinf_core.launcher.mps_daemon import CONTROL, MpsDaemon
from joyrlinf_core.launcher.mps_guard import DONE
from joyrlinf_core.observability.run_dir import RunDir
from joyrlinf_core.plan.run_plan import RunPlan

ANSWER_SECONDS = 10.0
"""How long the daemon may take to start and answer."""

SERVER_SECONDS = 60.0
"""How long its server may take to open the GPUs."""

GUARD_SECONDS = 5.0
_POLL_SECONDS = 0.1
_GUARD = "joyrlinf_core.launcher.mps_guard"
_WITHOUT = "launcher.mps: false, with one process a GPU"


def check_ready(plan: RunPlan) -> None:
    """Check that GPUs can be shared on this machine, if the plan wants that.

    Raises:
        EnvironmentNotReadyError: They can't.
    """
    if plan.config.launcher.mps:
        _devices(plan)


@contextmanager
def shared_gpus(plan: RunPlan, place: Path, run_dir: RunDir, node: int) -> Iterator[dict[str, str]]:
    """Run a daemon for the workers of this node, if the plan wants one; it is gone at the end.

    Its logs go to the run directory.

    Args:
        plan: The plan.
        place: Private directory of the launch.
        run_dir: The run directory.
        node: This node.

    Yields:
        Variables that the workers need for it.

    Raises:
        EnvironmentNotReadyError: It could not be started.
    """
    if not plan.config.launcher.mps:
        yield {}
        return
    devices = _devices(plan)
    daemon = MpsDaemon(place)
    if not daemon.path_fits:
        raise EnvironmentNotReadyError(
            f"the path {daemon.pipe} is too long for the sockets of CUDA MPS",
            fix="set TMPDIR to a shorter directory, for example /tmp",
        )
    guard = _start_guard(place)
    try:
        _start(daemon, devices)
        yield {**daemon.variables, gpus.VISIBLE: devices}
    finally:
        daemon.stop()
        _dismiss(guard)
        _keep_logs(daemon, run_dir, "" if plan.placement.num_nodes == 1 else f"_node{node}")


def _devices(plan: RunPlan) -> str:
    """Return the GPUs of each node's ranks as CUDA_VISIBLE_DEVICES names them, by device number.

    Numbers would mean different GPUs to the server and to its clients, which count those that the
    server has.
    """
    if shutil.which(CONTROL) is None:
        raise EnvironmentNotReadyError(
            f"launcher.mps: {CONTROL} is not on the PATH",
            fix=f"install the compute tools of the NVIDIA driver on this machine; or {_WITHOUT}",
        )
    installed = gpus.installed()
    if not installed:
        raise EnvironmentNotReadyError(
            "launcher.mps: no GPU on this machine (nvidia-smi lists none)",
            fix=f"see that `nvidia-smi -L` lists GPUs (in a container: --gpus all); or {_WITHOUT}",
        )
    needed = 1 + max(rank.device for rank in plan.ranks)
    named = os.environ.get(gpus.VISIBLE)
    seen = gpus.visible(installed, named)[:needed]
    if len(seen) < needed:
        processes = plan.placement.ranks_per_node
        shown = "" if named is None else f", and {gpus.VISIBLE}={named} shows {len(seen)}"
        raise EnvironmentNotReadyError(
            f"launcher.mps: {processes} processes a node, two on each GPU, need {needed} GPUs; "
            f"this machine has {len(installed)}{shown}",
            fix=f"cluster.gpus_per_node: {2 * len(seen)} at most"
            if seen
            else f"set {gpus.VISIBLE} to GPUs that `nvidia-smi -L` lists",
        )
    for gpu in seen:
        if gpu.compute_mode == "Prohibited":
            raise EnvironmentNotReadyError(
                f"launcher.mps: the compute mode of GPU {gpu.index} ({gpu.name}) is Prohibited: "
                "no process may use it",
                fix=f"sudo nvidia-smi -i {gpu.index} -c DEFAULT; or leave it out of {gpus.VISIBLE}",
            )
    return ",".join(gpu.uuid for gpu in seen)


def _start(daemon: MpsDaemon, devices: str) -> None:
    """Start daemon and server; raise unless both are up."""
    deadline = time.monotonic() + ANSWER_SECONDS
    try:
        code = daemon.start(devices, ANSWER_SECONDS)
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"launcher.mps: can't start {CONTROL}: {error}", fix=f"mend that; or {_WITHOUT}"
        ) from error
    if code:
        raise _failed(daemon, f"`{CONTROL} -d` ended with exit code {code}")
    while daemon.ask("get_server_list", deadline - time.monotonic()) is None:
        if time.monotonic() > deadline:
            raise _failed(
                daemon, f"{CONTROL} was started but does not answer within {ANSWER_SECONDS:.0f} s"
            )
        time.sleep(_POLL_SECONDS)
    daemon.ask(f"start_server -uid {os.getuid()}", SERVER_SECONDS)
    deadline = time.monotonic() + SERVER_SECONDS
    while not _server_is_up(daemon):
        if time.monotonic() > deadline:
            raise _failed(daemon, f"its server is not up after {SERVER_SECONDS:.0f} s")
        time.sleep(_POLL_SECONDS)


def _server_is_up(daemon: MpsDaemon) -> bool:
    """Say whether the server takes clients; raise if it has given up."""
    if ended := re.search(r"[Ss]erver \d+ exited.*", daemon.log("control.log")):
        raise _failed(daemon, f"its server can't use the GPUs ({ended[0].strip()})")
    servers = re.findall(
        r"^\s*(\d+)\s*$", daemon.ask("get_server_list", ANSWER_SECONDS) or "", re.M
    )
    if not servers:
        return False
    # Old drivers don't know this command; there, a server that is listed is all that can be known.
    status = daemon.ask(f"get_server_status {servers[0]}", ANSWER_SECONDS) or ""
    if "FAULT" in status:
        raise _failed(daemon, "its server is in a fault")
    return "INITIALIZING" not in status


def _failed(daemon: MpsDaemon, what: str) -> EnvironmentNotReadyError:
    line = daemon.last_line() or "nothing"
    return EnvironmentNotReadyError(
        f"launcher.mps: CUDA MPS can't be started: {what}; the last line of its log: {line}",
        fix=f"its logs are kept in the logs of the run (docs/mps.md); or {_WITHOUT}",
    )


def _start_guard(place: Path) -> subprocess.Popen[bytes]:
    """Start the process that stops the daemon should this one be killed."""
    return subprocess.Popen(
        [sys.executable, "-m", _GUARD, str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _dismiss(guard: subprocess.Popen[bytes]) -> None:
    try:
        guard.communicate(DONE, timeout=GUARD_SECONDS)
    except subprocess.TimeoutExpired:
        guard.kill()
        guard.wait()


def _keep_logs(daemon: MpsDaemon, run_dir: RunDir, suffix: str) -> None:
    for name in ("control", "server"):
        if text := daemon.log(f"{name}.log"):
            path = run_dir.logs / f"mps_{name}{suffix}.log"
            with suppress(OSError):  # a full disk does not change how the run ended
                path.write_text(text, encoding="utf-8")
