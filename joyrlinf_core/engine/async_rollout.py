"""`AsyncRollout`: a rollout rank that generates without waiting for updates.

Batch number i, counted from 0, is what the update from weight version i to i + 1 trains on. Batch i
begins once this rank holds weights of version i - `max_staleness` or newer, so no sample is ever
too old and none is thrown away. New weights are taken at chunk boundaries, always the newest.

Threads: `rollout` (the main one) plays, `send` hands batches and reports over, `weights` receives.
"""

from __future__ import annotations

import queue
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from joyrlinf_core.batch.metrics import Metric, decode, encode, merge
from joyrlinf_core.comm.collectives import Collectives
from joyrlinf_core.comm.scalars import ScalarChannel
from joyrlinf_core.comm.trajectories.exchange import TrajectoryExchange
from joyrlinf_core.engine.policies import load_policy
from joyrlinf_core.engine.rollout_role import RolloutRole
from joyrlinf_core.engine.stopping import JobStopped
from joyrlinf_core.engine.threads import ServiceThread
from joyrlinf_core.observability.activity import waiting
from joyrlinf_core.observability.timers import PhaseTimer
from joyrlinf_core.profiler.ranges import annotate
from joyrlinf_core.profiler.schedule import StepProfiler

if TYPE_CHECKING:
    from contextlib import ExitStack

    from joyrlinf_core.batch.rollout import RolloutBatch
    from joyrlinf_core.engine.context import JobContext
    from joyrlinf_core.engine.links import Links

WAIT_SECONDS = 24 * 3600.0
"""Longer than any update; a dead actor is noticed by the launcher, not by this."""


class _Played(NamedTuple):
    """A batch, and what is told about it; without a batch only the telling counts."""

    batch: RolloutBatch | None
    index: int
    metrics: dict[str, Metric]
    next_episode: int


class AsyncRollout:
    """One rollout rank of an asynchronous run.

    Args:
        context: This worker.
        links: Process groups.
        opened: Closes the envs.
    """

    def __init__(self, context: JobContext, links: Links, opened: ExitStack) -> None:
        self._context = context
        self._config = context.plan.config
        self._links = links
        self._timer = PhaseTimer(annotate)
        self._profiler = StepProfiler(
            self._config.profiler,
            context.run_dir.profiler,
            context.rank,
            role="rollout",
            use_cuda=context.device.type == "cuda",
        )
        self._exchange = TrajectoryExchange(
            context.plan, context.rank, links.get("trajectories"), context.device
        )
        self._reports = Collectives(links.get("reports"))
        self._scalars: ScalarChannel | None = None
        if links.rollout.is_main:
            self._scalars = ScalarChannel(
                links.get("scalars"),
                source=context.rank,
                destination=context.plan.placement.metrics_rank,
            )
        context.emitter.phase("load", 0)
        policy = load_policy(context)
        context.emitter.phase("simulators", 0)
        self._role = RolloutRole(context, policy, links, self._timer, opened)
        assert self._role.receiver is not None, "async ranks act with weights of their own"
        self._receiver = self._role.receiver
        self._start = self._first_episode = 0
        self._version = -1
        self._due = False
        self._outbox: queue.Queue[_Played | dict[str, Any] | None] = queue.Queue()
        self._played = 0

    def run(self, step: int, next_episode: int) -> None:
        """Generate until every batch is made or the actors ask for the end.

        Args:
            step: First batch.
            next_episode: Number of its first episode.
        """
        self._start, self._first_episode, self._played = step, next_episode, step
        send = ServiceThread("send", self._send, self._context)
        weights = ServiceThread("weights", self._receive_weights, self._context)
        with self._profiler:
            send.start()
            weights.start()
            try:
                for index in range(self._start, self._config.runner.max_steps):
                    oldest = index - self._config.algorithm.max_staleness
                    # Not without any: after a resume, the policy's files are older than the run.
                    self._wait_for_weights(max(self._start, oldest))
                    self._profiler.begin(index + 1)
                    self._play(index)
                    self._profiler.end(index + 1)
                self._wait_for_weights(None)
            except JobStopped:
                self._end_alike()
            self._outbox.put(None)
            with waiting("the actors to take the last batch"):
                send.join()
                weights.join()

    def _play(self, index: int) -> None:
        began = time.perf_counter()
        plan, rollout = self._context.plan.batch, self._role.rollout
        self._context.emitter.phase("rollout", index, total=plan.t_eff)
        first = self._first_episode + (index - self._start) * plan.rollout_epochs
        batch, counters = rollout.collect(index, version=self._take, first_episode=first)
        next_episode = first + plan.rollout_epochs
        if self._config.env.train.auto_reset:
            next_episode = rollout.next_episode
        seconds = {"rollout": time.perf_counter() - began} | self._timer.pop()
        timings = {f"{name}_seconds": Metric(value) for name, value in seconds.items()}
        self._outbox.put(_Played(batch, index, counters | timings, next_episode))
        self._played = index + 1

    def _wait_for_weights(self, version: int | None) -> None:
        """Wait until this version or a newer one acts; None waits for the end of the run.

        Raises:
            JobStopped: The run ends.
        """
        with self._timer("rollout/wait_for_weights"):
            while True:
                self._apply()
                self._evaluate_if_due()
                if version is not None and self._version >= version:
                    return
                self._context.emitter.phase("wait_for_weights", max(0, self._version))
                if not self._receiver.wait_for(self._version + 1, WAIT_SECONDS):
                    raise JobStopped

    def _take(self) -> int:
        """Put the newest weights into the policy; return the version that acts now.

        Raises:
            JobStopped: The run ends.
        """
        self._apply()
        if self._receiver.stopped:
            raise JobStopped
        return self._version

    def _apply(self) -> bool:
        """Put the newest weights into the policy; return whether there were any."""
        header = self._receiver.apply()
        if header is None:
            return False
        self._version = header.version
        self._due = header.evaluate
        return True

    def _evaluate_if_due(self) -> None:
        """Evaluate the weights if that was asked for; until then none newer are taken."""
        if not self._due:
            return
        self._due = False
        told: dict[str, Any] = {"eval": None}
        assert self._role.evaluator is not None, "the actors ask where evaluation is on"
        try:
            # The actors know what it is for, and name it.
            told["eval"] = asdict(self._role.evaluator.run(self._version, ""))
        except JobStopped:
            pass
        finally:
            self._receiver.release()
        if self._links.rollout.is_main:
            self._outbox.put(told)

    def _end_alike(self) -> None:
        """Make the evaluations that are due, and as many reports as every other rollout rank.

        Some may have finished a batch that others have just given up; nobody trains on it.
        """
        self._role.rollout.abandon()
        self._evaluate_if_due()
        while self._apply():
            self._evaluate_if_due()
        most = int(self._links.rollout.max(self._played))
        for index in range(self._played, most):
            self._outbox.put(_Played(None, index, {}, 0))

    def _send(self) -> None:
        """Body of the thread `send`."""
        while (item := self._outbox.get()) is not None:
            if isinstance(item, dict):
                self._tell(item)
                continue
            # First, as the batch may be one that others have given up: actors take it only once
            # these have sent their END, and those send it only once all have reported.
            own = {"metrics": encode(item.metrics), "next_episode": item.next_episode}
            parts = self._reports.gather_json(own)
            metrics = encode(merge(decode(part["metrics"]) for part in parts))
            next_episode = max(part["next_episode"] for part in parts)
            self._tell({"index": item.index, "metrics": metrics, "next_episode": next_episode})
            if item.batch is not None:
                versions = item.batch.versions[item.batch.played]
                oldest, newest = int(versions.min()), int(versions.max())
                with self._timer("rollout/send"):
                    self._exchange.send(item.batch.tensors(), item.index, oldest, newest)
        self._exchange.send_end()
        self._tell({"end": True})

    def _tell(self, value: dict[str, Any]) -> None:
        if self._scalars is not None:
            self._scalars.send(value)

    def _receive_weights(self) -> None:
        """Body of the thread `weights`."""
        while not self._receiver.receive().stop:
            pass
