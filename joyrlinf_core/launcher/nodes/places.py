"""Which directories the nodes share: found out with a file that node 0 leaves for the others.

A shared file system and disks of their own both work for a run directory. On disks of its own each
node has one of the same name, with the logs of its ranks.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from joyrlinf_core.errors import EnvironmentNotReadyError
from joyrlinf_core.launcher import run_directory
from joyrlinf_core.launcher.nodes.crew import Crew, exchange
from joyrlinf_core.launcher.nodes.meeting import Team
from joyrlinf_core.observability.run_dir import RunDir
from joyrlinf_core.plan.run_plan import RunPlan

SEE_SECONDS = 2.0
"""How long a file of node 0 may take to show up on a shared file system."""


@dataclass(frozen=True)
class RunPlace:
    """A run directory, as this node sees it.

    Attributes:
        run_dir: The directory.
        owner: Whether this node looks after what the nodes share in it: it is node 0, or does not
            see the directory of node 0.
    """

    run_dir: RunDir
    owner: bool = True


@contextmanager
def new_run(plan: RunPlan, team: Team) -> Iterator[RunPlace]:
    """Make the run directory of a job, under one name on all nodes.

    Raises:
        EnvironmentNotReadyError: The place can't be written, or is nearly full.
        NodeError: It can't be made on another node.
    """
    crew = team.crew
    made: RunDir | None = None
    try:
        if team.alone:
            place = RunPlace(run_directory.create(plan))
        elif crew.node == 0:
            made = run_directory.create(plan)
            with _left_behind(made.logs) as mark:
                exchange(crew, "run directory", [made.root.name, mark])
                exchange(crew, "run directory is there", None)
            place = RunPlace(made)
        else:
            name, mark = exchange(crew, "run directory", None)[0]
            there = RunDir((run_directory.parent_of(plan) / name).resolve())
            shared = _is_seen(there.logs / mark)
            made = None if shared else run_directory.create(plan, name=name)
            place = RunPlace(made or there, owner=not shared)
            exchange(crew, "run directory is there", None)
    except BaseException:
        if made is not None:
            shutil.rmtree(made.root, ignore_errors=True)
        raise
    yield place


@contextmanager
def old_run(run_dir: RunDir, team: Team) -> Iterator[RunPlace]:
    """Take a run directory that is there on all nodes.

    Raises:
        NodeError: A node can't go on.
    """
    if team.alone:
        yield RunPlace(run_dir)
        return
    seen = _same(run_dir.logs, team.crew)
    yield RunPlace(run_dir, owner=team.crew.node == 0 or not seen)


def check_policy_place(team: Team, target: Path, *, there: bool) -> bool:
    """Say whether a policy is there on all nodes; if not, node 0 must make it for all.

    Args:
        team: The nodes.
        target: Policy directory.
        there: Whether it is whole on this node.

    Raises:
        EnvironmentNotReadyError: It isn't, and what node 0 makes does not reach all nodes.
    """
    crew = team.crew
    states = exchange(crew, "policy", there)
    if all(states):
        return True
    target.parent.mkdir(parents=True, exist_ok=True)
    seen = exchange(crew, "policy place", _same(target.parent, crew))
    blind = [node for node in range(len(seen)) if not seen[node]]
    lacking = [node for node in range(len(states)) if not states[node]]
    if states[0] or blind:
        node = (lacking if states[0] else blind)[0]
        what = (
            "lacks the policy" if states[0] else "would lack the policy that is made on node 0 in"
        )
        raise EnvironmentNotReadyError(
            f"node {node}, {crew.hosts[node]}, {what} {target}",
            fix="set XDG_CACHE_HOME to a directory that all nodes share; or make it on one machine "
            "with `joyrl sft --output DIR`, copy it to every node and set actor.model.model_path",
        )
    return False


def _same(directory: Path, crew: Crew) -> bool:
    """Say whether this node sees the directory of node 0 in this place; all nodes have to ask."""
    if crew.node:
        mark = exchange(crew, "mark", None)[0]
        seen = _is_seen(directory / mark)
        exchange(crew, "mark seen", None)
        return seen
    with _left_behind(directory) as mark:
        exchange(crew, "mark", mark)
        exchange(crew, "mark seen", None)
    return True


@contextmanager
def _left_behind(directory: Path) -> Iterator[str]:
    """Leave a file with a name that no other place has; return the name."""
    path = directory / f".seen_by_all_nodes_{uuid.uuid4().hex}"
    try:
        path.touch()
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"can't write to {directory}: {error.strerror or error}",
            fix="free space or restore write permission there",
        ) from error
    try:
        yield path.name
    finally:
        path.unlink(missing_ok=True)


def _is_seen(path: Path) -> bool:
    deadline = time.monotonic() + SEE_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            return False
        with suppress(OSError):
            # Makes a network file system ask its server again.
            os.listdir(path.parent)  # noqa: PTH208
        time.sleep(0.1)
    return True
