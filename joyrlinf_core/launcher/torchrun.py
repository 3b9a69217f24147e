"""Starts the processes of one launch on this node."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from joyrlinf_core.errors import EnvironmentNotReadyError, RunFailedError
from joyrlinf_core.launcher.command import torchrun_command, worker_environment
from joyrlinf_core.launcher.nodes.meeting import Team
from joyrlinf_core.launcher.processes import Launch
from joyrlinf_core.observability import worker_variables
from joyrlinf_core.observability.liveness import ProcessId
from joyrlinf_core.observability.run_dir import RunDir
from joyrlinf_core.plan.run_plan import RunPlan


@dataclass(frozen=True)
class Started:
    """A launch that was started.

    Attributes:
        process: torchrun.
        launch: All processes.
        log: Output of torchrun.
    """

    process: subprocess.Popen[bytes]
    launch: Launch
    log: Path


def local_ranks(plan: RunPlan, node: int) -> range:
    """Return the global ranks of a node."""
    size = plan.placement.ranks_per_node
    return range(node * size, (node + 1) * size)


def start(
    plan: RunPlan,
    run_dir: RunDir,
    team: Team,
    *,
    launch_id: str,
    store_port: int,
    place: Path,
    worker: Sequence[str],
    variables: Mapping[str, str],
) -> Started:
    """Start torchrun.

    Args:
        plan: The plan; workers get this one, whatever `plan.json` of the run directory holds.
        run_dir: The run directory.
        team: The nodes.
        launch_id: Of this launch, the same on all nodes.
        store_port: Port of node 0 for torch's own store; several nodes only.
        place: Private directory for files through which the processes meet.
        worker: Arguments for torchrun that name the program.
        variables: What workers need of this launch beside what plan and nodes give.

    Raises:
        EnvironmentNotReadyError: torchrun is not there.
        RunFailedError: It could not be started.
    """
    node = team.crew.node
    # Nodes of one machine, as in tests, must not take each other's processes for their own.
    launch_id = launch_id if team.alone else f"{launch_id}-node{node}"
    since = time.time()
    (place / "plan.json").write_text(plan.model_dump_json(), encoding="utf-8")
    environment = {
        **os.environ,
        **worker_environment(plan, os.environ),
        **team.variables,
        **variables,
        worker_variables.LAUNCHER: str(ProcessId.of(os.getpid())),
        worker_variables.LAUNCHED_AT: repr(since),
        worker_variables.LAUNCH_ID: launch_id,
        worker_variables.PLAN: str(place / "plan.json"),
    }
    if team.alone:
        environment[worker_variables.STORE] = str(place / "store")
    command = torchrun_command(
        plan,
        run_dir.root,
        node_rank=node,
        master=None if team.alone else (team.master, store_port),
        rendezvous=place / "rendezvous",
        worker=worker,
    )
    log = run_dir.logs / ("launcher.log" if team.alone else f"launcher_node{node}.log")
    process = _start(command, environment, log)
    launch = Launch(launch_id, process.pid, run_dir, local_ranks(plan, node), since)
    return Started(process, launch, log)


def _start(
    command: Sequence[str], environment: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    try:
        with log.open("wb") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
    except FileNotFoundError as error:
        raise EnvironmentNotReadyError(f"can't start {command[0]}: {error}") from error
    except OSError as error:
        raise RunFailedError(
            f"can't start the workers: {error}", fix="free memory and space, then try again"
        ) from error
