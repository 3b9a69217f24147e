"""Starts torchrun and watches it until no process of the launch is left.

On several nodes each launcher watches its own ranks. What it notices it tells all, itself too, and
acts on what it hears: so the launchers of all nodes decide alike, see `nodes/hub.py`.
"""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from joyrlinf_core.checkpoint.store import whole_checkpoints
from joyrlinf_core.errors import UsageError
from joyrlinf_core.launcher.command import WORKER
from joyrlinf_core.launcher.digest import died_silently, first_failure, of_stuck
from joyrlinf_core.launcher.heartbeats import Heartbeats
from joyrlinf_core.launcher.meeting_place import meeting_place
from joyrlinf_core.launcher.mps import shared_gpus
from joyrlinf_core.launcher.nodes.crew import Left, Post, exchange
from joyrlinf_core.launcher.nodes.endings import Ending, Outcome, State, Verdict, agreed
from joyrlinf_core.launcher.nodes.meeting import Team
from joyrlinf_core.launcher.nodes.ports import free_port
from joyrlinf_core.launcher.signals import Signals, caught_signals
from joyrlinf_core.launcher.stacks import write_stacks
from joyrlinf_core.launcher.stop_text import JobProgress
from joyrlinf_core.launcher.torchrun import Started, local_ranks, start
from joyrlinf_core.observability.events import Record, RunStarted
from joyrlinf_core.observability.liveness import ProcessId
from joyrlinf_core.observability.rank_status import RankStatus, read_all
from joyrlinf_core.observability.reader import EventTail
from joyrlinf_core.observability.run_dir import RunDir
from joyrlinf_core.plan.run_plan import RunPlan

POLL_SECONDS = 0.1
GRACE_SECONDS = 5.0
"""How long the other ranks may take to end by themselves after the first failure."""

ENDING_SECONDS = 30.0
"""How long the launchers of other nodes may take to end a launch that has failed or was stopped."""


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


def supervise(
    plan: RunPlan,
    run_dir: RunDir,
    listener: Listener,
    *,
    worker: Sequence[str] = WORKER,
    team: Team | None = None,
    owner: bool = True,
) -> Outcome:
    """Run the workers of a plan to their end.

    The first SIGINT, SIGTERM or SIGHUP asks the workers to finish their step, save and end, or ends
    them if they are still starting; the second ends them at once. No process of the launch is left
    on this node when this returns, and all nodes return the same.

    Args:
        plan: The plan; workers get this one, whatever `plan.json` of the run directory holds.
        run_dir: The run directory.
        listener: Gets the events of this node's ranks.
        worker: Arguments for torchrun that name the program.
        team: The nodes; None for a run on one.
        owner: Whether this node looks after what the nodes share in the run directory.

    Raises:
        UsageError: The run is still going.
        EnvironmentNotReadyError: torchrun could not be started, or CUDA MPS.
        NodeError: Another node could not start.
    """
    team = team or Team()
    check_not_running(run_dir)
    for rank in local_ranks(plan, team.crew.node):
        run_dir.rank_status(rank).unlink(missing_ok=True)
    if owner:
        run_dir.stop_request.unlink(missing_ok=True)
    with meeting_place() as place, shared_gpus(plan, place, run_dir, team.crew.node) as variables:
        # Nobody starts before all are here.
        offer = {"launch": uuid.uuid4().hex, "port": 0 if team.alone else free_port()}
        terms = exchange(team.crew, "start", offer)[0]
        with caught_signals() as signals:
            started = start(
                plan,
                run_dir,
                team,
                launch_id=terms["launch"],
                store_port=terms["port"],
                place=place,
                worker=worker,
                variables=variables,
            )
            try:
                return _Supervisor(plan, run_dir, listener, team, started, signals).run()
            finally:
                if owner:
                    # Workers that torchrun ended left a request behind, too.
                    run_dir.stop_request.unlink(missing_ok=True)


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


class _Ranks(NamedTuple):
    """One look at the ranks of this node.

    Attributes:
        statuses: What they have left, by rank.
        silent: Those of them whose process had gone before it left an outcome.
    """

    statuses: list[RankStatus]
    silent: list[RankStatus]


class _Supervisor:
    """One launch on this node, from start to outcome."""

    def __init__(
        self,
        plan: RunPlan,
        run_dir: RunDir,
        listener: Listener,
        team: Team,
        started: Started,
        signals: Signals,
    ) -> None:
        place, node = plan.placement, team.crew.node
        self._run_dir = run_dir
        self._listener = listener
        self._crew = team.crew
        self._alone = team.alone
        self._started = started
        self._signals = signals
        self._ranks = local_ranks(plan, node)
        self._speaker = place.node_of(place.metrics_rank)
        events = run_dir.events if node == self._speaker else run_dir.node_events(node)
        self._tail = EventTail(events, from_end=True)
        self._progress = JobProgress(plan.job, place.metrics_rank)
        self._signals_told = 0
        self._stop_level = 0
        self._stop_told = False
        self._up = False
        self._verdict: Verdict = ""
        self._left: Left | None = None
        self._heartbeats = Heartbeats(self._ranks, plan.config.runner.stuck_after_seconds)
        self._idle_nodes: set[int] = set()

    def run(self) -> Outcome:
        try:
            ending = self._watch()
        finally:
            self._started.launch.kill()
            self._started.process.wait()
        self._pass_events_on()
        outcome = self._agree(ending)
        asked = self._stop_level > 0 or (self._alone and self._signals.count > 0)
        return replace(outcome, stop_asked=asked)

    def _watch(self) -> Ending:
        while True:
            ended = self._started.process.poll() is not None
            self._pass_events_on()
            self._listener.on_tick()
            ranks = self._look()
            failed = any(s.state == "failed" for s in ranks.statuses) or bool(ranks.silent)
            if failed:
                self._crew.post("failed", {})
            self._tell_signals()
            self._hear()
            if self._verdict == "stop":
                return self._ending("killed")
            if failed or self._verdict == "failure":
                return self._failed(ranks)
            if ended:
                return self._ended(ranks)
            if self._stop_level and not self._stop_told:
                self._request_stop()
            if (ending := self._stuck(ranks.statuses)) is not None:
                return ending
            time.sleep(POLL_SECONDS)

    def _look(self) -> _Ranks:
        """Return what the ranks of this node say, and which of them are gone."""
        statuses = self._statuses()
        gone = {status.rank for status in died_silently(statuses)}
        if not gone:
            return _Ranks(statuses, [])
        # They may have ended well after the first look; what they left is final by now.
        statuses = self._statuses()
        silent = [s for s in statuses if s.rank in gone and s.state == "running"]
        return _Ranks(statuses, silent)

    def _statuses(self) -> list[RankStatus]:
        return [s for s in read_all(self._run_dir.logs) if s.rank in self._ranks]

    def _pass_events_on(self) -> None:
        for record in self._tail.poll():
            self._progress.add(record)
            self._heartbeats.add(record)
            self._listener.on_record(record)
            if isinstance(record.event, RunStarted):
                self._crew.post("started", record.to_json())

    def _tell_signals(self) -> None:
        """Tell all nodes of signals that came here."""
        count = min(self._signals.count, 2)
        if count > self._signals_told:
            self._signals_told = count
            self._crew.post("stop", {"level": count})

    def _hear(self) -> None:
        """Take what all nodes said, in the order in which all nodes hear it."""
        for news in self._crew.poll():
            if isinstance(news, Left):
                self._left = self._left or news
                self._decide("failure")
            elif news.topic == "failed":
                self._decide("failure")
            elif news.topic == "stuck":
                if news.node != self._crew.node:
                    self._write_stacks(self._statuses())
                self._decide("failure")
            elif news.topic == "idle":
                keep = self._idle_nodes.add if news.body["is"] else self._idle_nodes.discard
                keep(news.node)
            elif news.topic == "started":
                self._take_start(news)
            elif news.topic == "stop":
                self._take_stop(news)

    def _take_start(self, news: Post) -> None:
        self._up = True
        record = Record.from_json(news.body)
        if news.node != self._crew.node and record is not None:
            self._progress.add(record)
            self._listener.on_record(record)

    def _take_stop(self, news: Post) -> None:
        self._stop_level = max(self._stop_level, int(news.body["level"]))
        if news.node != self._crew.node:
            host = self._crew.hosts[news.node]
            self._listener.on_notice(f"stop asked for on node {news.node}, {host}")
        if self._stop_level > 1:
            self._listener.on_notice("stopping now")
        elif not self._up:
            self._listener.on_notice(self._progress.stop_text())
        if self._stop_level > 1 or not self._up:
            self._decide("stop")

    def _decide(self, verdict: Verdict) -> None:
        self._verdict = self._verdict or verdict

    def _request_stop(self) -> None:
        self._stop_told = True
        try:
            self._run_dir.stop_request.touch()
        except OSError:
            # No room for a file: the workers understand a signal, too.
            self._started.launch.signal_workers(signal.SIGTERM)
        text = "the workers finish what they are at, then they save and end"
        if self._crew.node == self._speaker:
            text = self._progress.stop_text()
        self._listener.on_notice(f"{text}; press again to stop now")

    def _stuck(self, statuses: list[RankStatus]) -> Ending | None:
        """Name the rank that keeps all others waiting; None while all is well."""
        ended = {status.rank for status in statuses if status.state != "running"}
        for line in self._heartbeats.warnings(ended):
            self._listener.on_notice(line)
        idle, node = self._heartbeats.all_wait(ended), self._crew.node
        if idle != (node in self._idle_nodes):
            self._crew.post("idle", {"is": idle})
        stuck, waiting = self._heartbeats.stuck(ended), self._heartbeats.waiting(ended)
        if not stuck and not (waiting and len(self._idle_nodes) == len(self._crew.hosts)):
            return None
        self._crew.post("stuck", {})
        self._write_stacks(statuses)
        digest = of_stuck(self._run_dir, stuck, waiting)
        age = max(one.seconds for one in (*stuck, *waiting))
        return replace(self._ending("failed"), digest=digest, age=age)

    def _write_stacks(self, statuses: list[RankStatus]) -> None:
        running = [status.rank for status in statuses if status.state == "running"]
        logs = [self._run_dir.rank_log(self._crew.node, rank) for rank in running]
        write_stacks(self._started.launch, logs)

    def _failed(self, ranks: _Ranks, *, too_early: bool = False) -> Ending:
        """Give the other ranks a moment to end by themselves, then name the first failure here."""
        noticed = time.time()
        statuses, silent = ranks
        if self._left is None:
            self._wait_for_torchrun()
        if silent and self._started.process.poll() is None:
            # torchrun says how a rank died only once the others are gone, too.
            self._started.launch.signal_workers(signal.SIGKILL)
            self._wait_for_torchrun()
        messages = [s for s in statuses if s.state == "failed"]
        if not (silent or messages or too_early):
            # Another node was first; what was said here since then is a consequence.
            statuses = self._statuses()
            messages = [s for s in statuses if s.state == "failed"]
            if not messages:
                return self._ending("halted")
        code = self._started.process.poll()
        digest = first_failure(
            self._run_dir,
            statuses,
            silent,
            self._started.log,
            code,
            first_rank=self._ranks.start,
        )
        since = noticed if silent else min((s.time for s in messages), default=noticed)
        return replace(
            self._ending("failed"), digest=digest, silent=bool(silent), age=time.time() - since
        )

    def _wait_for_torchrun(self) -> None:
        deadline = time.monotonic() + GRACE_SECONDS
        while self._started.process.poll() is None and time.monotonic() < deadline:
            self._pass_events_on()
            self._tell_signals()
            self._hear()
            if self._stop_level > 1 or self._left is not None:
                return
            time.sleep(POLL_SECONDS)

    def _ended(self, ranks: _Ranks) -> Ending:
        """Decide by what the workers left: torchrun's own code says less."""
        states = {status.state for status in ranks.statuses}
        if len(ranks.statuses) < len(self._ranks) or not states <= {"completed", "stopped"}:
            self._crew.post("failed", {})
            return self._failed(ranks, too_early=True)
        return self._ending("stopped" if "stopped" in states else "completed")

    def _ending(self, state: State) -> Ending:
        whole = whole_checkpoints(self._run_dir.checkpoints)
        return Ending(state, str(self._run_dir.root), whole[0].name if whole else "")

    def _agree(self, ending: Ending) -> Outcome:
        """Wait until the launch has ended on every node; return what it comes to."""
        early = ending.state not in ("completed", "stopped")
        limit = ENDING_SECONDS if early else None
        self._crew.put("ending", ending.to_json(), limit=limit)
        while True:
            self._tell_signals()
            self._hear()
            if (values := self._crew.answer()) is not None:
                break
            self._listener.on_tick()
            time.sleep(POLL_SECONDS)
        return agreed(values, self._crew.hosts, verdict=self._verdict, speaker=self._speaker)
