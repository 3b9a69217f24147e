"""How a launch ended on each node, and what all launchers make of it: the same everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from joyrlinf_core.errors import ExitCode
from joyrlinf_core.launcher.digest import Digest
from joyrlinf_core.launcher.nodes.crew import Left, Value

State = Literal["completed", "stopped", "killed", "halted", "failed"]

Verdict = Literal["", "stop", "failure"]
"""What ended a launch early: the first of a request to stop at once and a failure."""


@dataclass(frozen=True)
class Outcome:
    """How a launch ended.

    Attributes:
        exit_code: Exit code of the command.
        state: In words.
        digest: Only for `failed`.
        stop_asked: A stop was asked for, perhaps too late to change how this launch ended.
    """

    exit_code: int
    state: str
    digest: Digest | None = None
    stop_asked: bool = False


@dataclass(frozen=True)
class Ending:
    """How a launch ended on one node.

    Attributes:
        state: `killed` on request, `halted` because of another node.
        run_dir: Run directory there.
        checkpoint: Name of the newest whole checkpoint there; empty without one.
        digest: The first failure there; only for `failed`.
        silent: It is a rank that died without a message.
        age: Seconds since that failure.
    """

    state: State
    run_dir: str
    checkpoint: str = ""
    digest: Digest | None = None
    silent: bool = False
    age: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        value = asdict(self)
        if self.digest is not None:
            value["digest"]["log"] = str(self.digest.log)
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Ending:
        """Read what `to_json` returned."""
        digest = value["digest"]
        if digest is not None:
            place = {"log": Path(digest["log"]), "also": tuple(digest["also"])}
            digest = Digest(**{**digest, **place})
        return cls(**{**value, "digest": digest})


def agreed(
    values: Sequence[Value], hosts: Sequence[str], *, verdict: Verdict, speaker: int
) -> Outcome:
    """Return the outcome of a launch; equal arguments give an equal one on every node.

    Args:
        values: The endings of all nodes, as they were exchanged.
        hosts: Host of each node.
        verdict: What ended it early, if anything did.
        speaker: Node of the metrics rank, which has the checkpoints.
    """
    endings = {
        node: Ending.from_json(one.value) for node, one in enumerate(values) if one.left is None
    }
    states = {ending.state for ending in endings.values()}
    gone = [one.left for one in values if one.left is not None]
    if states == {"completed"} and not gone:
        return Outcome(int(ExitCode.OK), "completed")
    failed = verdict != "stop" and (gone or states & {"failed", "halted"})
    if not failed:
        if any(ending.checkpoint for ending in endings.values()):
            return Outcome(int(ExitCode.STOPPED_WITH_CHECKPOINT), "stopped")
        return Outcome(int(ExitCode.INTERRUPTED), "interrupted")
    digest = _first_of_all(values, endings, gone, hosts)
    if len(hosts) > 1:
        digest = replace(digest, resume=_resume(endings, speaker, hosts))
    return Outcome(digest.exit_code, "failed", digest)


def _first_of_all(
    values: Sequence[Value], endings: Mapping[int, Ending], gone: list[Left], hosts: Sequence[str]
) -> Digest:
    """Return the failure that caused the others.

    As among the ranks of one node: a silent death goes first, as its peers see a connection break
    and say so; then a node that has gone; among messages the earliest counts.
    """
    found: list[tuple[tuple[int, float], Digest]] = []
    for node, ending in endings.items():
        if ending.digest is not None:
            when = values[node].at - ending.age
            digest = _placed(ending.digest, node, hosts)
            found.append(((0 if ending.silent else 2, when), digest))
    found += [((1, float(left.node)), _of_left(left, endings, hosts)) for left in gone]
    found.sort(key=lambda one: one[0])
    first, *others = (digest for _, digest in found)
    also = (*first.also, *_also(others))
    return replace(first, also=also)


def _placed(digest: Digest, node: int, hosts: Sequence[str]) -> Digest:
    """Say on which of several nodes a failure was."""
    if len(hosts) == 1:
        return digest
    prefix = f"node {node}, {hosts[node]}: "
    also = tuple(prefix + line for line in digest.also)
    return replace(digest, headline=prefix + digest.headline, host=hosts[node], also=also)


def _also(others: Iterable[Digest]) -> list[str]:
    lines: list[str] = []
    for digest in others:
        lines += [digest.headline.splitlines()[0], *digest.also]
    return lines


def _of_left(left: Left, endings: Mapping[int, Ending], hosts: Sequence[str]) -> Digest:
    error = left.error
    roots = [ending.run_dir for ending in endings.values()]
    name = f"node{left.node}_rank*.log"
    return Digest(
        headline=error.message if error else f"node {left.node}, {hosts[left.node]}: ended early",
        detail="",
        fix=error.fix if error else "its terminal tells why",
        log=Path(roots[0] if roots else ".") / "logs" / name,
        also=(),
        exit_code=int(error.exit_code if error else ExitCode.RUN_FAILED),
        host=hosts[left.node],
    )


def _resume(endings: Mapping[int, Ending], speaker: int, hosts: Sequence[str]) -> str:
    """Say how to go on: every node starts the same command, with the same checkpoint."""
    ending = endings.get(speaker)
    if ending is None or not ending.checkpoint:
        return ""
    return (
        f"{ending.checkpoint} is whole on node {speaker}, {hosts[speaker]}; go on from it with, on "
        f"every node: joyrl resume {ending.run_dir}"
    )
