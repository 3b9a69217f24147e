"""The synchronous loop: rollout -> hand-over -> update -> weights -> eval -> log -> save.

Every rank goes through it in step with the others and does what its roles ask for. Where rollout
and actor are the same ranks, nothing is handed over and one copy of the weights serves both.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from joyrlinf_core.comm.trajectories.exchange import TrajectoryExchange
from joyrlinf_core.comm.weights.channel import WeightHeader
from joyrlinf_core.engine.actor_role import ActorRole
from joyrlinf_core.engine.learning_watch import LearningWatch
from joyrlinf_core.engine.links import Links
from joyrlinf_core.engine.metrics import reduce_metrics
from joyrlinf_core.engine.policies import load_policy
from joyrlinf_core.engine.rollout_role import RolloutRole
from joyrlinf_core.engine.stopping import JobStopped
from joyrlinf_core.engine.vec_envs import serve_vec_envs
from joyrlinf_core.observability.events import EvalResult, Finished, RunStarted, Step
from joyrlinf_core.observability.timers import PhaseTimer
from joyrlinf_core.profiler.ranges import annotate
from joyrlinf_core.profiler.schedule import StepProfiler

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from joyrlinf_core.batch.metrics import Metric
    from joyrlinf_core.engine.context import JobContext


class SyncRunner:
    """One RL run on all ranks.

    Args:
        context: This worker.
    """

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._config = context.plan.config
        self._links = Links(context)
        self._collectives = self._links.world
        self._timer = PhaseTimer(annotate)
        self._profiler = StepProfiler(
            self._config.profiler,
            context.run_dir.profiler,
            context.rank,
            role="sync",
            use_cuda=context.device.type == "cuda",
        )
        self._started = time.perf_counter()
        self._seconds_before = 0.0
        self._step = 0
        self._saved_step = -1
        self._next_episode = 0
        self._exchange = self._build_exchange()
        roles = context.plan.ranks[context.rank].roles
        context.emitter.phase("load", 0)
        self._actor = self._rollout = None
        policy = None
        if "actor" in roles:
            policy = load_policy(context)
            self._actor = ActorRole(context, policy, self._links, self._timer)
        context.emitter.phase("simulators", 0)
        self._watch = LearningWatch(self._config.algorithm.dead_signal_steps, context.emitter)
        with ExitStack() as opened:
            serve_vec_envs(context, self._links, opened)
            if "rollout" in roles:
                if policy is None or context.rank in context.plan.traffic.weight_receivers:
                    policy = load_policy(context)
                self._rollout = RolloutRole(
                    context, policy, self._links, self._timer, opened, self._actor
                )
            # Not before: to make their roles, actors and those who act meet in another group.
            if self._config.runner.resume_dir:
                self._restore(Path(self._config.runner.resume_dir))
            # Had anything above failed, they would be closed now; `run` closes them instead.
            self._simulators = opened.pop_all()
        self._send_weights()

    def run(self) -> str:
        """Train to the last step, the time limit or a stop request; return how it ended."""
        runner = self._config.runner
        with self._simulators:
            self._announce()
            # A run that is stopped before its first step starts again as quickly without a save.
            if runner.eval_at_start and self._step == 0 and not self._stop_requested():
                self._evaluate("start")
            with self._profiler:
                status = self._train()
            if self._step and self._saved_step != self._step:
                self._save()
            if status == "completed" and runner.eval_at_end and not self._evaluate("end"):
                # Everything is saved; a resumed run makes up for the evaluation.
                status = "stopped"
            if self._collectives.is_main:
                self._context.emitter.emit(
                    Finished(status=status, step=self._step, seconds=self._elapsed())
                )
            return status

    def _train(self) -> str:
        """Train until the steps or the time are over, or a stop is asked for; return which."""
        runner = self._config.runner
        while self._step < runner.max_steps:
            if self._stop_requested():
                return "stopped"
            self._profiler.begin(self._step + 1)
            self._train_step()
            due = runner.save_interval > 0 and self._step % runner.save_interval == 0
            if self._out_of_time():
                break
            if due and self._step < runner.max_steps:
                self._save()
            self._profiler.end(self._step)
        # A stop request during the last step leaves no step to resume.
        return "completed"

    def _stop_requested(self) -> bool:
        return self._collectives.any(flag=self._context.stop_requested())

    def _train_step(self) -> None:
        started = time.perf_counter()
        emitter, step = self._context.emitter, self._step
        tensors, own = self._collect(step)
        received = None
        if self._exchange is not None:
            with self._timer("hand_over"):
                received = self._exchange.exchange(tensors, step, oldest=step, newest=step)
                tensors = None if received is None else received.tensors
        if self._actor is not None:
            assert tensors is not None, "every actor gets columns"
            emitter.phase("update", step)
            own = {**own, **self._actor.update(tensors, step)}
        if received is not None:
            received.release()
        metrics = reduce_metrics(own, self._collectives)
        self._step += 1
        self._send_weights()
        if self._collectives.is_main:
            self._watch.observe(self._step, metrics)
        if self._interval_due(self._config.runner.val_check_interval):
            with self._timer("eval"):
                self._evaluate("interval")
        seconds = time.perf_counter() - started
        if self._collectives.is_main:
            emitter.emit(
                Step(
                    step=self._step,
                    metrics=metrics,
                    timings=self._timer.pop(),
                    seconds=seconds,
                )
            )

    def _interval_due(self, interval: int) -> bool:
        # The last step's evaluation is the one of the end, where that is on.
        last = self._step == self._config.runner.max_steps and self._config.runner.eval_at_end
        return interval > 0 and self._step % interval == 0 and not last

    def _out_of_time(self) -> bool:
        limit = self._config.runner.max_seconds
        return limit is not None and self._collectives.any(flag=self._elapsed() > limit)

    def _elapsed(self) -> float:
        return self._seconds_before + time.perf_counter() - self._started

    def _build_exchange(self) -> TrajectoryExchange | None:
        """Return the way of rollouts to other ranks; None where each stays in its process."""
        context = self._context
        if all(shard.in_process for shard in context.plan.shards):
            return None
        group = self._links.get("trajectories")
        return TrajectoryExchange(context.plan, context.rank, group, context.device)

    def _collect(self, step: int) -> tuple[Mapping[str, Tensor] | None, Mapping[str, Metric]]:
        """Play a rollout if this rank acts; move the episode counter on, alike on all ranks."""
        tensors, counters = None, {}
        first, epochs = self._next_episode, self._context.plan.batch.rollout_epochs
        if self._rollout is not None:
            self._context.emitter.phase("rollout", step, total=self._context.plan.batch.t_eff)
            rollout = self._rollout.rollout
            batch, counters = rollout.collect(step, version=lambda: step, first_episode=first)
            tensors = batch.tensors()
        self._next_episode = first + epochs
        if self._config.env.train.auto_reset:
            # Ranks get different numbers of episodes done; none may be played twice on resuming.
            own = 0 if self._rollout is None else self._rollout.rollout.next_episode
            self._next_episode = int(self._collectives.max(own))
        return tensors, counters

    def _send_weights(self) -> None:
        """Bring the weights of this step to those who act with a copy of their own."""
        header = WeightHeader(self._step)
        with self._timer("weights"):
            if self._actor is not None:
                self._actor.stage(header)
                self._actor.send()
            if self._rollout is not None and self._rollout.receiver is not None:
                self._rollout.receiver.receive()
                self._rollout.receiver.apply()

    def _evaluate(self, label: str) -> bool:
        """Return whether the evaluation came to its end, the same on all ranks."""
        result = None
        if self._rollout is not None and self._rollout.evaluator is not None:
            with suppress(JobStopped):
                result = self._rollout.evaluator.run(self._step, label)
        first = self._context.plan.placement.rollout_ranks[0]
        told = self._collectives.gather_json(None if result is None else asdict(result))[first]
        if told is not None and self._collectives.is_main:
            self._context.emitter.emit(EvalResult(**told))
        return told is not None

    def _save(self) -> None:
        """Write a checkpoint of this step."""
        self._context.emitter.phase("save", self._step)
        if self._actor is not None:
            progress = {"next_episode": self._next_episode, "seconds": self._elapsed()}
            self._actor.save(self._step, progress)
        self._saved_step = self._step
        self._collectives.barrier()

    def _restore(self, directory: Path) -> None:
        """Continue from a checkpoint; ranks that do not learn are told where."""
        own = None if self._actor is None else self._actor.restore(directory)
        told = self._collectives.gather_json(own)
        self._step, progress = told[self._context.plan.placement.metrics_rank]
        self._saved_step = self._step
        self._next_episode = int(progress["next_episode"])
        self._seconds_before = progress["seconds"]

    def _announce(self) -> None:
        if self._actor is None or not self._collectives.is_main:
            return
        config = self._config
        self._context.emitter.emit(
            RunStarted(
                job="train",
                run_dir=str(self._context.run_dir.root),
                world_size=self._collectives.world_size,
                start_step=self._step,
                total_steps=config.runner.max_steps,
                facts={
                    "device": str(self._context.device),
                    "simulator": config.env.train.check_ready(),
                    "gradients": "sharded (FSDP2)" if self._actor.sharded else "replicated",
                    "policy": config.actor.model.model_type,
                },
            )
        )
