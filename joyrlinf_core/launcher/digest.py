"""First-failure digest: one block that says which rank failed first, why, and what to do."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from joyrlinf_core.checkpoint.store import whole_checkpoints
from joyrlinf_core.errors import ExitCode
from joyrlinf_core.launcher.heartbeats import Silence
from joyrlinf_core.launcher.stacks import main_stack
from joyrlinf_core.observability.disk import FULL_BYTES, free_bytes, no_space
from joyrlinf_core.observability.liveness import ProcessId
from joyrlinf_core.observability.rank_status import RankStatus
from joyrlinf_core.observability.run_dir import RunDir

TAIL_LINES = 20
TAIL_BYTES = 64 * 1024

_TORCHRUN_REPORT = re.compile(r"^[EW]\d{4} .*torch/distributed/", re.MULTILINE)
_OUT_OF_MEMORY = (
    "out of memory is the usual cause: check `dmesg`; fewer env.train.total_num_envs or a smaller "
    "actor.micro_batch_size need less"
)
_TORCHRUN_EXIT = re.compile(r"exitcode: (-?\d+)\) local_rank: (\d+)")


@dataclass(frozen=True)
class Digest:
    """What a user needs to see of a failed run.

    Attributes:
        headline: Rank and error in one line.
        detail: Traceback or last log lines; empty where the headline says everything.
        fix: What to do; may be empty.
        log: Where to read on.
        also: Ranks that failed afterwards, mostly because of the first.
        exit_code: What `joyrl` exits with.
        resume: How to go on from the newest whole checkpoint; empty where there is none.
        host: Where the log is; empty for a run on one node.
    """

    headline: str
    detail: str
    fix: str
    log: Path
    also: tuple[str, ...]
    exit_code: int
    resume: str = ""
    host: str = ""


def died_silently(statuses: list[RankStatus]) -> list[RankStatus]:
    """Return the ranks whose process is gone without an outcome."""
    return [s for s in statuses if s.state == "running" and not ProcessId.parse(s.process).alive]


def first_failure(
    run_dir: RunDir,
    statuses: list[RankStatus],
    silent: list[RankStatus],
    launcher_log: Path,
    torchrun_code: int | None = None,
    *,
    first_rank: int = 0,
) -> Digest:
    """Return the digest of a failed run.

    A rank that was killed leaves no message, but its peers do: they see a broken connection. So a
    silent death goes before every message, and among messages the earliest counts.

    Args:
        run_dir: The run directory.
        statuses: Statuses at the moment when the failure was noticed.
        silent: Those of them that had died silently at that moment.
        launcher_log: Output of torchrun.
        torchrun_code: Its exit code, minus the signal that ended it; None if that is not known.
        first_rank: The lowest rank of this node, local rank 0 to torchrun.
    """
    if silent:
        failed = _by_time(statuses)
        number = _exit_codes(launcher_log).get(silent[0].rank - first_rank)
        digest = _of_silent(run_dir, silent[0], failed, number)
    else:
        digest = _of_message(run_dir, _by_time(statuses), launcher_log, torchrun_code)
    return replace(digest, resume=_resume(run_dir))


def of_stuck(run_dir: RunDir, stuck: Sequence[Silence], waiting: Sequence[Silence]) -> Digest:
    """Return the digest of a run that did not get on; its workers have written their stacks.

    Args:
        run_dir: The run directory.
        stuck: Ranks that worked at something; the first one is to blame. If there are none, all
            wait for one another.
        waiting: Ranks that waited for others, the longest first.
    """
    first, *others = stuck or waiting
    lines = [f"rank {one.rank} {one.place} since {one.seconds:.0f} s" for one in waiting]
    log = _rank_log(run_dir, first.rank)
    headline = "no rank gets on: all wait for one another"
    if stuck:
        headline = f"rank {first.rank} is stuck: {first.place}, {first.silence}"
        if frames := main_stack(tail(log, lines=1000)):
            lines += [f"main thread of rank {first.rank}, most recent call first:", *frames]
    return Digest(
        headline=headline,
        detail="\n".join(lines),
        fix="the logs hold the stacks of all ranks; if something here may take so long, raise "
        "runner.stuck_after_seconds",
        log=log,
        also=tuple(str(one) for one in others) if stuck else (),
        exit_code=int(ExitCode.RUN_FAILED),
        resume=_resume(run_dir),
    )


def _resume(run_dir: RunDir) -> str:
    whole = whole_checkpoints(run_dir.checkpoints)
    if not whole:
        return ""
    return f"{whole[0].name} is whole; go on from it with: joyrl resume {run_dir.root}"


def _by_time(statuses: list[RankStatus]) -> list[RankStatus]:
    return sorted((s for s in statuses if s.state == "failed"), key=lambda s: s.time)


def _of_message(
    run_dir: RunDir, failed: list[RankStatus], launcher_log: Path, torchrun_code: int | None
) -> Digest:
    if failed:
        return _of_failed(run_dir, failed[0], failed[1:])
    headline, fix = "the workers ended before they could start", f"{launcher_log} tells why"
    if torchrun_code is not None and torchrun_code < 0:
        name = signal.Signals(-torchrun_code).name
        headline = f"torchrun was ended by {name} before the workers could start"
        fix = f"if it was not you: {_OUT_OF_MEMORY}"
    return Digest(
        headline=headline,
        detail=_before_torchrun_report(launcher_log),
        fix=fix,
        log=launcher_log,
        also=(),
        exit_code=int(ExitCode.RUN_FAILED),
    )


def tail(path: Path, lines: int = TAIL_LINES) -> str:
    """Return the last lines of a file; empty if there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.rstrip().splitlines()[-lines:])


def _of_failed(run_dir: RunDir, first: RankStatus, others: list[RankStatus]) -> Digest:
    log = _rank_log(run_dir, first.rank)
    failure = first.failure
    if failure is None:
        raise AssertionError("a failed status has a failure")
    named = f"{failure.type}: " if failure.traceback else ""
    headline, *more = failure.message.splitlines() or [""]
    if more and more[0].startswith("Traceback"):
        headline += f" {more[-1]}"  # of a simulator; its last line says what happened
    return Digest(
        headline=f"rank {first.rank}: {named}{headline}",
        detail=failure.traceback or "\n".join(more),
        fix=failure.fix,
        log=log,
        also=tuple(_one_line(status) for status in others),
        exit_code=first.exit_code or int(ExitCode.RUN_FAILED),
    )


def _of_silent(
    run_dir: RunDir, first: RankStatus, failed: list[RankStatus], number: int | None
) -> Digest:
    log = _rank_log(run_dir, first.rank)
    if free_bytes(run_dir.root) < FULL_BYTES:
        # Not even the status of the rank could be written.
        return Digest(
            headline=f"rank {first.rank}: {no_space(run_dir.root)}",
            detail="",
            fix="free space there, or start with runner.logger.log_path on another disk",
            log=log,
            also=tuple(_one_line(status) for status in failed),
            exit_code=int(ExitCode.RUN_FAILED),
        )
    reason, fix = "its process is gone", "the last lines of its log may tell why"
    if number == -signal.SIGKILL:
        reason, fix = "it was killed (SIGKILL)", _OUT_OF_MEMORY
    elif number is not None and number < 0:
        reason = f"it crashed ({signal.Signals(-number).name})"
    return Digest(
        headline=f"rank {first.rank} died without a message: {reason}",
        detail=tail(log),
        fix=fix,
        log=log,
        also=tuple(_one_line(status) for status in failed),
        exit_code=int(ExitCode.RUN_FAILED),
    )


def _rank_log(run_dir: RunDir, rank: int) -> Path:
    found = sorted(run_dir.logs.glob(f"node*_rank{rank}.log"))
    return found[-1] if found else run_dir.rank_log(0, rank)


def _before_torchrun_report(launcher_log: Path) -> str:
    """Return the end of what the workers printed; torchrun's own report follows it and is long."""
    text = tail(launcher_log, lines=1000)
    report = _TORCHRUN_REPORT.search(text)
    printed = text[: report.start()].rstrip() if report else text
    return "\n".join((printed or text).splitlines()[-TAIL_LINES:])


def _exit_codes(launcher_log: Path) -> dict[int, int]:
    """Return local rank -> exit code (minus the signal) from torchrun's report."""
    matches = _TORCHRUN_EXIT.findall(tail(launcher_log, lines=200))
    return {int(rank): int(code) for code, rank in matches}


def _one_line(status: RankStatus) -> str:
    failure = status.failure
    message = failure.message.strip().splitlines() if failure and failure.message else [""]
    return f"rank {status.rank}: {failure.type if failure else ''}: {message[0]}"
