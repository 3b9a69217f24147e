"""Which node this is, of how many, and where node 0 is: options, then variables, then Slurm."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from joyrlinf_core.errors import UsageError

DEFAULT_PORT = 29500
PORTS_FOR_SLURM = 1000
"""Slurm jobs that share a node get ports of their own: the default plus the job's number modulo
this."""

DEFAULT_TIMEOUT = 300.0

_BRACKET = re.compile(r"\[([^\[\],-]+)[^\[\]]*\]")


@dataclass(frozen=True)
class NodeOptions:
    """What the command line says of the nodes; None where it says nothing.

    Attributes:
        nnodes: Number of nodes.
        node_rank: This node, counted from 0.
        master_addr: Name or address of node 0.
        master_port: Port where the launchers meet.
        timeout: How long the nodes wait for one another before the start, seconds.
    """

    nnodes: int | None = None
    node_rank: int | None = None
    master_addr: str | None = None
    master_port: int | None = None
    timeout: float = DEFAULT_TIMEOUT


@dataclass(frozen=True)
class NodeSettings:
    """The same, complete: this node of a run on several."""

    nnodes: int
    node_rank: int
    master_addr: str
    master_port: int
    timeout: float


@dataclass(frozen=True)
class _Number:
    """A number and who said it."""

    value: int
    source: str


def node_settings(
    options: NodeOptions, num_nodes: int, ranks_per_node: int, environ: Mapping[str, str]
) -> NodeSettings | None:
    """Return where this node stands; None for a run on one node.

    Args:
        options: The command line; goes before variables, and these before Slurm's.
        num_nodes: `cluster.num_nodes`.
        ranks_per_node: Processes that the plan starts on each node.
        environ: The environment.

    Raises:
        UsageError: Something is missing, is no number, or contradicts the config.
    """
    nodes = _nnodes(options, num_nodes, environ)
    if nodes is not None and nodes.value != num_nodes:
        raise UsageError(
            f"{nodes.source} is {nodes.value}, but cluster.num_nodes is {num_nodes}",
            fix=f"--nnodes {num_nodes}, or --set cluster.num_nodes={nodes.value}",
        )
    _check_processes(ranks_per_node, environ)
    if num_nodes == 1:
        _check_alone(options)
        return None
    rank = _first(
        _option("--node-rank", options.node_rank),
        _variable("NODE_RANK", environ),
        _variable("SLURM_NODEID", environ),
    )
    master = options.master_addr or environ.get("MASTER_ADDR") or _first_host(environ)
    if rank is None or not master:
        lacking = [] if rank else ["--node-rank K (counted from 0)"]
        lacking += [] if master else ["--master-addr HOST (of node 0)"]
        raise UsageError(
            f"cluster.num_nodes is {num_nodes}, and nothing says "
            f"{'where node 0 is' if rank else 'which of them this one is'}",
            fix=f"start the same command on every node, each with {' and '.join(lacking)}; "
            "docs/multi-node.md shows it",
        )
    if not 0 <= rank.value < num_nodes:
        raise UsageError(
            f"{rank.source} is {rank.value}, but {num_nodes} nodes are numbered 0-{num_nodes - 1}",
            fix="give each node its own number, counted from 0",
        )
    _check_tasks(num_nodes, environ)
    return NodeSettings(num_nodes, rank.value, master, _port(options, environ), options.timeout)


def _nnodes(options: NodeOptions, num_nodes: int, environ: Mapping[str, str]) -> _Number | None:
    step = _variable("SLURM_STEP_NUM_NODES", environ)
    # An allocation says where a command may run, not where it does: a run on one node fits any.
    allocation = _variable("SLURM_NNODES", environ) if num_nodes > 1 else None
    return _first(
        _option("--nnodes", options.nnodes), _variable("NNODES", environ), step, allocation
    )


def _port(options: NodeOptions, environ: Mapping[str, str]) -> int:
    port = _first(_option("--master-port", options.master_port), _variable("MASTER_PORT", environ))
    if port is None:
        job = _variable("SLURM_JOB_ID", environ)
        return DEFAULT_PORT + (job.value % PORTS_FOR_SLURM if job else 0)
    if not 0 < port.value < 2**16:
        raise UsageError(f"{port.source} is {port.value}, no port", fix="a number in 1-65535")
    return port.value


def _check_processes(ranks_per_node: int, environ: Mapping[str, str]) -> None:
    processes = _variable("NPROC_PER_NODE", environ)
    if processes is not None and processes.value != ranks_per_node:
        raise UsageError(
            f"NPROC_PER_NODE is {processes.value}, but the plan has {ranks_per_node} ranks on "
            "each node",
            fix=f"unset NPROC_PER_NODE, or --set cluster.gpus_per_node={processes.value} with a "
            "placement on as many ranks",
        )


def _check_alone(options: NodeOptions) -> None:
    if options.node_rank:
        raise UsageError(
            f"--node-rank is {options.node_rank}, but cluster.num_nodes is 1",
            fix="--set cluster.num_nodes=N for a run on several nodes",
        )


def _check_tasks(num_nodes: int, environ: Mapping[str, str]) -> None:
    tasks = _variable("SLURM_STEP_NUM_TASKS", environ)
    if tasks is not None and tasks.value > num_nodes:
        raise UsageError(
            f"Slurm starts this command {tasks.value} times on {num_nodes} nodes; once on each is "
            "enough, it starts the ranks itself",
            fix="srun --ntasks-per-node=1",
        )


def _first_host(environ: Mapping[str, str]) -> str:
    """Return the first host of Slurm's list, such as `gpu[003-005,8],login1`; empty without one."""
    hosts = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST") or ""
    # A comma ends the first entry unless it stands inside brackets.
    entry = re.match(r"(?:[^,\[\]]|\[[^\]]*\])*", hosts.strip())
    return _BRACKET.sub(r"\1", entry.group()) if entry else ""


def _option(name: str, value: int | None) -> _Number | None:
    return None if value is None else _Number(value, name)


def _variable(name: str, environ: Mapping[str, str]) -> _Number | None:
    text = environ.get(name, "").strip()
    if not text:
        return None
    if not re.fullmatch(r"\d{1,9}", text):
        raise UsageError(f"the variable {name} is {text!r}, no number", fix=f"unset {name}")
    return _Number(int(text), name)


def _first(*numbers: _Number | None) -> _Number | None:
    return next((number for number in numbers if number is not None), None)
