"""Starts torchrun and watches it until no process of the launch is left."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from joyrlinf_core.checkpoint.store import whole_checkpoints
from joyrlinf_core.errors import EnvironmentNotReadyError, ExitCode, RunFailedError, UsageError
from joyrlinf_core.launcher.command import WORKER, torchrun_command, worker_environment
from joyrlinf_core.launcher.digest import Digest, died_silently, first_failure
from joyrlinf_core.launcher.meeting_place import meeting_place
from joyrlinf_core.launcher.processes import Launch
from joyrlinf_core.launcher.stop_text import JobProgress
from joyrlinf_core.observability import worker_variables
from joyrlinf_core.observability.events import Record
from joyrlinf_core.observability.liveness import ProcessId
from joyrlinf_core.observability.rank_status import RankStatus, read_all
from joyrlinf_core.observability.reader import EventTail
from joyrlinf_core.observability.run_dir import RunDir
from joyrlinf_core.plan.run_plan import RunPlan

POLL_SECONDS = 0.1
GRACE_SECONDS = 5.0
"""How long the other ranks may take to end by themselves after the first failure."""

SILENCE_SECONDS = 600.0
"""After so long without any event the workers write their stacks into their logs."""

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Listener(Protocol):
    """Shows the user what happens; runs in the launcher's process."""

    def on_record(self, record: Record) -> None:
        """A worker wrote an event."""
        ...

    def on_notice(self, text: str) -> None:
        """The launcher has something to say."""
        ...

    def on_tick(self) -> None:
        """Called about ten times a second."""
        ...


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


def supervise(
    plan: RunPlan, run_dir: RunDir, listener: Listener, *, worker: Sequence[str] = WORKER
) -> Outcome:
    """Run the workers of a plan to their end.

    The first SIGINT, SIGTERM or SIGHUP asks the workers to finish their step, save and end, or ends
    them if they are still starting; the second ends them at once. No process of the launch is left
    when this returns.

    Args:
        plan: The plan; workers get this one, whatever `plan.json` of the run directory holds.
        run_dir: The run directory.
        listener: Gets the events.
        worker: Arguments for torchrun that name the program.

    Raises:
        UsageError: The plan has more than one node, or the run is still going.
        EnvironmentNotReadyError: torchrun could not be started.
    """
    if plan.placement.num_nodes > 1:
        raise UsageError(
            f"cluster.num_nodes is {plan.placement.num_nodes}, this command starts one node",
            fix="runs on several nodes are not started yet; set cluster.num_nodes: 1",
        )
    check_not_running(run_dir)
    for stale in (run_dir.stop_request, *run_dir.logs.glob("status_rank*.json")):
        stale.unlink(missing_ok=True)
    with meeting_place() as place, _caught_signals() as signals:
        outcome = _Supervisor(plan, run_dir, listener, worker, place, signals).run()
        return replace(outcome, stop_asked=signals.count > 0)


def is_running(run_dir: RunDir) -> bool:
    """Say whether a worker of an earlier launch still runs in this directory."""
    return any(
        status.state == "running" and ProcessId.parse(status.process).alive
        for status in read_all(run_dir.logs)
    )


def check_not_running(run_dir: RunDir) -> None:
    """Raise `UsageError` if workers of an earlier launch still run in this directory."""
    if is_running(run_dir):
        raise UsageError(
            f"{run_dir.root} is in use: its workers still run",
            fix="wait until they have ended, or stop the run with Ctrl-C in its terminal",
        )


class _Supervisor:
    """One launch, from start to outcome."""

    def __init__(
        self,
        plan: RunPlan,
        run_dir: RunDir,
        listener: Listener,
        worker: Sequence[str],
        place: Path,
        signals: _Signals,
    ) -> None:
        self._run_dir = run_dir
        self._listener = listener
        self._world_size = plan.placement.world_size
        self._signals = signals
        self._log = run_dir.logs / "launcher.log"
        self._tail = EventTail(run_dir.events, from_end=True)
        self._progress = JobProgress(plan.job)
        self._stop_told = False
        (place / "plan.json").write_text(plan.model_dump_json(), encoding="utf-8")
        launch_id = uuid.uuid4().hex
        since = time.time()
        environment = {
            **os.environ,
            **worker_environment(plan, os.environ),
            worker_variables.LAUNCHER: str(ProcessId.of(os.getpid())),
            worker_variables.LAUNCHED_AT: repr(since),
            worker_variables.LAUNCH_ID: launch_id,
            worker_variables.PLAN: str(place / "plan.json"),
            worker_variables.STORE: str(place / "store"),
        }
        command = torchrun_command(
            plan, run_dir.root, rendezvous=place / "rendezvous", worker=worker
        )
        self._process = _start(command, environment, self._log)
        self._launch = Launch(launch_id, self._process.pid, run_dir, since)

    def run(self) -> Outcome:
        try:
            outcome = self._watch()
        finally:
            self._launch.kill()
            self._process.wait()
            # Workers that torchrun ended left a request behind, too.
            self._run_dir.stop_request.unlink(missing_ok=True)
        self._pass_events_on()
        return outcome

    def _watch(self) -> Outcome:
        last_event = time.monotonic()
        while True:
            ended = self._process.poll() is not None
            if self._pass_events_on():
                last_event = time.monotonic()
            self._listener.on_tick()
            statuses = read_all(self._run_dir.logs)
            if died_silently(statuses):
                # It may have ended well between the two looks; its status is final by now.
                statuses = read_all(self._run_dir.logs)
            if any(s.state == "failed" for s in statuses) or died_silently(statuses):
                return self._failed(statuses)
            if ended:
                return self._ended(statuses)
            if self._signals.count and not self._stop_told:
                self._request_stop()
                if not self._progress.started:
                    return self._stopped()
            if self._signals.count > 1:
                self._listener.on_notice("stopping now")
                return self._stopped()
            if time.monotonic() - last_event > SILENCE_SECONDS:
                last_event = time.monotonic()
                self._dump_stacks()
            time.sleep(POLL_SECONDS)

    def _pass_events_on(self) -> bool:
        records = self._tail.poll()
        for record in records:
            self._progress.add(record)
            self._listener.on_record(record)
        return bool(records)

    def _request_stop(self) -> None:
        self._stop_told = True
        try:
            self._run_dir.stop_request.touch()
        except OSError:
            # No room for a file: the workers understand a signal, too.
            self._launch.signal_workers(signal.SIGTERM)
        again = "; press again to stop now" if self._progress.started else ""
        self._listener.on_notice(self._progress.stop_text() + again)

    def _dump_stacks(self) -> None:
        self._launch.signal_workers(signal.SIGUSR1)
        self._listener.on_notice(
            f"no sign of life for {SILENCE_SECONDS / 60:.0f} min; the stacks of all ranks are now "
            f"in {self._run_dir.logs}"
        )

    def _failed(self, statuses: list[RankStatus]) -> Outcome:
        """Give the other ranks a moment to end by themselves, then name the first failure."""
        silent = died_silently(statuses)
        self._wait_for_torchrun()
        if silent and self._process.poll() is None:
            # torchrun says how a rank died only once the others are gone, too.
            self._launch.signal_workers(signal.SIGKILL)
            self._wait_for_torchrun()
        code = self._process.poll()
        digest = first_failure(self._run_dir, statuses, silent, self._log, code)
        return Outcome(digest.exit_code, "failed", digest)

    def _wait_for_torchrun(self) -> None:
        deadline = time.monotonic() + GRACE_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            self._pass_events_on()
            if self._signals.count > 1:
                return
            time.sleep(POLL_SECONDS)

    def _ended(self, statuses: list[RankStatus]) -> Outcome:
        """Decide by what the workers left: torchrun's own code says less."""
        states = {status.state for status in statuses}
        if len(statuses) < self._world_size or not states <= {"completed", "stopped"}:
            return self._failed(statuses)
        if "stopped" not in states:
            return Outcome(int(ExitCode.OK), "completed")
        return self._stopped()

    def _stopped(self) -> Outcome:
        if whole_checkpoints(self._run_dir.checkpoints):
            return Outcome(int(ExitCode.STOPPED_WITH_CHECKPOINT), "stopped")
        return Outcome(int(ExitCode.INTERRUPTED), "interrupted")


class _Signals:
    """Counts stop signals."""

    def __init__(self) -> None:
        self.count = 0

    def on_signal(self, _number: int, _frame: object) -> None:
        self.count += 1


@contextmanager
def _caught_signals() -> Iterator[_Signals]:
    signals = _Signals()
    # A signal that the parent ignores, as nohup does with SIGHUP, stays ignored.
    caught = [s for s in STOP_SIGNALS if signal.getsignal(s) is not signal.SIG_IGN]
    before: list[tuple[signal.Signals, Callable[..., object] | int | None]] = [
        (number, signal.signal(number, signals.on_signal)) for number in caught
    ]
    try:
        yield signals
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _start(command: list[str], environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
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
