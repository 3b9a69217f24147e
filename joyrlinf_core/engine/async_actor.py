"""`AsyncActor`: an actor that trains on what has arrived, and publishes each version it makes.

Threads: the main one updates, `receive` takes batches in, `weights` sends versions out (first actor
only), `scalars` hears of rollouts and evaluations (metrics rank only).
"""

from __future__ import annotations

import queue
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joyrlinf_core.batch.metrics import decode
from joyrlinf_core.comm.scalars import ScalarChannel
from joyrlinf_core.comm.trajectories.exchange import TrajectoryExchange
from joyrlinf_core.comm.weights.channel import WeightHeader
from joyrlinf_core.engine.actor_role import ActorRole
from joyrlinf_core.engine.learning_watch import LearningWatch
from joyrlinf_core.engine.metrics import reduce_metrics
from joyrlinf_core.engine.policies import load_policy
from joyrlinf_core.engine.threads import ServiceThread
from joyrlinf_core.errors import RunFailedError
from joyrlinf_core.observability.activity import waiting
from joyrlinf_core.observability.events import EvalResult, Finished, RunStarted, Step
from joyrlinf_core.observability.timers import PhaseTimer
from joyrlinf_core.profiler.ranges import annotate
from joyrlinf_core.profiler.schedule import StepProfiler

if TYPE_CHECKING:
    from joyrlinf_core.batch.metrics import Metrics
    from joyrlinf_core.comm.trajectories.exchange import Received
    from joyrlinf_core.engine.context import JobContext
    from joyrlinf_core.engine.links import Links


class AsyncActor:
    """One actor of an asynchronous run.

    Args:
        context: This worker.
        links: Process groups.
    """

    def __init__(self, context: JobContext, links: Links) -> None:
        self._context = context
        self._config = context.plan.config
        self._links = links
        self._collectives = links.actor
        self._timer = PhaseTimer(annotate)
        self._profiler = StepProfiler(
            self._config.profiler,
            context.run_dir.profiler,
            context.rank,
            role="actor",
            use_cuda=context.device.type == "cuda",
        )
        self._started = time.perf_counter()
        self._seconds_before = 0.0
        self._saved_step = -1
        self.step = 0
        self.next_episode = 0
        self._exchange = TrajectoryExchange(
            context.plan, context.rank, links.get("trajectories"), context.device
        )
        context.emitter.phase("load", 0)
        self._role = ActorRole(context, load_policy(context), links, self._timer)
        if self._config.runner.resume_dir:
            self.step, progress = self._role.restore(Path(self._config.runner.resume_dir))
            self._saved_step = self.step
            self.next_episode = int(progress["next_episode"])
            self._seconds_before = progress["seconds"]
        self._watch = LearningWatch(self._config.algorithm.dead_signal_steps, context.emitter)
        self._inbox: queue.Queue[Received | None] = queue.Queue()
        self._reports: queue.Queue[dict[str, Any]] = queue.Queue()
        self._staged: queue.Queue[WeightHeader] = queue.Queue()
        self._labels: dict[int, str] = {}
        self._evaluated_end = False

    def run(self) -> str:
        """Train to the last step, the time limit or a stop request; return how it ended."""
        runner = self._config.runner
        threads = self._start_threads()
        self._announce()
        self._publish("start" if runner.eval_at_start and self.step == 0 else None)
        with self._profiler:
            status = self._train()
        with waiting("the end of the rollout"):
            while self._inbox.get() is not None:
                continue  # batches that were on their way when the end was decided
        if self.step and self._saved_step != self.step:
            self._save()
        with waiting("the end of the rollout"):
            for thread in threads:
                thread.join()
        evaluated = self._collectives.any(flag=self._evaluated_end)
        if status == "completed" and runner.eval_at_end and not evaluated:
            # Everything is saved; a resumed run makes up for the evaluation.
            status = "stopped"
        if self._collectives.is_main:
            self._context.emitter.emit(Finished(status, step=self.step, seconds=self._elapsed()))
        return status

    def _train(self) -> str:
        """Train until the steps or the time are over, or a stop is asked for; return which."""
        runner = self._config.runner
        over = self.step >= runner.max_steps
        while not over:
            if self._collectives.any(flag=self._context.stop_requested()):
                self._hand_out(WeightHeader(self.step, stop=True))
                return "stopped"
            self._profiler.begin(self.step + 1)
            over = self._train_step()
            if not over and runner.save_interval > 0 and self.step % runner.save_interval == 0:
                self._save()
            self._profiler.end(self.step)
        if runner.eval_at_end:
            self._publish("end")
        self._hand_out(WeightHeader(self.step, stop=True))
        return "completed"

    def _train_step(self) -> bool:
        """Make one update; return whether it was the last one."""
        started = time.perf_counter()
        runner, step = self._config.runner, self.step
        self._context.emitter.phase("wait_for_batch", step)
        with self._timer("wait_for_batch"), waiting("a batch"):
            received = self._inbox.get()
        if received is None or received.index != step:
            got = "the end" if received is None else f"batch {received.index}"
            raise RunFailedError(f"an actor expected batch {step} and got {got}")
        self._context.emitter.phase("update", step)
        own = self._role.update(received.tensors, step)
        received.release()
        self.step += 1
        last = self.step == runner.max_steps or self._out_of_time()
        if not last:
            interval = runner.val_check_interval
            self._publish("interval" if interval > 0 and self.step % interval == 0 else None)
        self._report(own, started)
        return last

    def _report(self, own: Metrics, started: float) -> None:
        """Emit a finished step with what the rollout ranks told about its batch."""
        told: Metrics = {}
        if self._collectives.is_main:
            with self._timer("wait_for_report"), waiting("the report of a batch"):
                report = self._reports.get()
            self.next_episode = int(report["next_episode"])
            told = decode(report["metrics"])
        metrics = reduce_metrics({**own, **told}, self._collectives)
        if self._collectives.is_main:
            self._watch.observe(self.step, metrics)
            seconds, timings = time.perf_counter() - started, self._timer.pop()
            self._context.emitter.emit(Step(self.step, metrics, timings, seconds))

    def _publish(self, evaluate: str | None) -> None:
        """Send the weights of this step; called on all actors.

        Args:
            evaluate: Label of the evaluation that the rollout ranks are to make of them, or None.
        """
        if evaluate is not None:
            self._labels[self.step] = evaluate
        self._hand_out(WeightHeader(self.step, evaluate=evaluate is not None))

    def _hand_out(self, header: WeightHeader) -> None:
        with self._timer("weights"):
            self._role.stage(header)
            if self._collectives.is_main:
                self._staged.put(header)

    def _start_threads(self) -> list[ServiceThread]:
        bodies = {"receive": self._receive}
        if self._collectives.is_main:
            bodies |= {"weights": self._send_weights, "scalars": self._hear}
        threads = [ServiceThread(name, body, self._context) for name, body in bodies.items()]
        for thread in threads:
            thread.start()
        return threads

    def _receive(self) -> None:
        """Body of the thread `receive`."""
        while (received := self._exchange.receive()) is not None:
            self._inbox.put(received)
        self._inbox.put(None)

    def _send_weights(self) -> None:
        """Body of the thread `weights`."""
        stop = False
        while not stop:
            stop = self._staged.get().stop
            self._role.send()

    def _hear(self) -> None:
        """Body of the thread `scalars`."""
        place = self._context.plan.placement
        channel = ScalarChannel(
            self._links.get("scalars"),
            source=place.rollout_ranks[0],
            destination=self._context.rank,
        )
        while "end" not in (told := channel.receive()):
            if "index" in told:
                self._reports.put(told)
            elif told["eval"] is not None:
                label = self._labels[told["eval"]["step"]]
                self._evaluated_end = label == "end"
                self._context.emitter.emit(EvalResult(**told["eval"] | {"label": label}))

    def _save(self) -> None:
        """Write a checkpoint of this step; called on all actors."""
        self._context.emitter.phase("save", self.step)
        progress = {"next_episode": self.next_episode, "seconds": self._elapsed()}
        self._role.save(self.step, progress)
        self._saved_step = self.step
        self._collectives.barrier()

    def _out_of_time(self) -> bool:
        limit = self._config.runner.max_seconds
        return limit is not None and self._collectives.any(flag=self._elapsed() > limit)

    def _elapsed(self) -> float:
        return self._seconds_before + time.perf_counter() - self._started

    def _announce(self) -> None:
        if not self._collectives.is_main:
            return
        context, config = self._context, self._config
        context.emitter.emit(
            RunStarted(
                job="train",
                run_dir=str(context.run_dir.root),
                world_size=context.world_size,
                start_step=self.step,
                total_steps=config.runner.max_steps,
                facts={
                    "device": str(context.device),
                    "simulator": config.env.train.check_ready(),
                    "gradients": "sharded (FSDP2)" if self._role.sharded else "replicated",
                    "policy": config.actor.model.model_type,
                    "pipeline": f"async, staleness at most {config.algorithm.max_staleness}",
                },
            )
        )
