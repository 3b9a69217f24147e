"""The torchrun command of a node, and the environment that workers get."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from joyrlinf_core.plan.run_plan import RunPlan

WORKER = ("-m", "joyrlinf_core.worker")
"""What torchrun runs."""

LOOPBACK = "127.0.0.1"

MASTER = "$MASTER_ADDR"
"""Stands for the address of node 0 where it is not known; the shell puts it in."""


def torchrun_command(
    plan: RunPlan,
    run_dir: Path,
    *,
    node_rank: int = 0,
    master: tuple[str, int] | None = None,
    rendezvous: Path | None = None,
    worker: Sequence[str] = WORKER,
) -> list[str]:
    """Return the command that starts a run's workers on one node.

    On one node the ranks meet through a file: no port can be taken, and nothing listens on the
    network.

    Args:
        plan: The plan; gives the number of nodes and processes.
        run_dir: The run directory, as the worker is to see it.
        node_rank: This node; several nodes only.
        master: Address and port of node 0; several nodes only. None where they are not known yet.
        rendezvous: File that does not exist yet; None lets torchrun choose one. One node only.
        worker: Arguments for torchrun that name the program.
    """
    nodes, per_node = plan.placement.num_nodes, plan.placement.ranks_per_node
    command = [sys.executable, "-m", "torch.distributed.run"]
    command += ["--nnodes", str(nodes), "--nproc-per-node", str(per_node)]
    if nodes == 1:
        command += ["--rdzv-backend", "c10d", "--rdzv-conf", "store_type=file"]
        command += ["--rdzv-endpoint", str(rendezvous)] if rendezvous else []
        command += ["--local-addr", LOOPBACK]
    else:
        address, port = master or (MASTER, 29500)
        command += ["--node-rank", str(node_rank)]
        command += ["--master-addr", address, "--master-port", str(port)]
    return [*command, *worker, str(run_dir)]


def shell_line(command: Sequence[str]) -> str:
    """Return a command as a line for a shell that knows `MASTER_ADDR`."""
    return shlex.join(command).replace(f"'{MASTER}'", f'"{MASTER}"')


def worker_environment(plan: RunPlan, base: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that workers need beside those in `base`.

    Thread counts come from the plan whatever `base` says: they change results in the last digits,
    and no environment variable may change a run silently. Everything else gives way to the user.
    """
    threads = plan.config.cluster.cpu_threads or max(1, _cores() // plan.placement.ranks_per_node)
    defaults = {
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }
    if plan.placement.num_nodes == 1:
        loopback = "lo" if sys.platform == "linux" else "lo0"
        defaults |= {"GLOO_SOCKET_IFNAME": loopback, "NCCL_SOCKET_IFNAME": loopback}
        # With a file to meet at, torchrun must not open a TCP store as well.
        defaults["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    chosen = {name: value for name, value in defaults.items() if name not in base}
    return {**chosen, "OMP_NUM_THREADS": str(threads)}


def _cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
