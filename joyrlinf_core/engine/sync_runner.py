"""The synchronous co-located loop: rollout -> learner.update -> eval -> log -> save.

Every rank plays all three roles in turn on one copy of the weights.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from joyrlinf_core.checkpoint.manager import CheckpointManager, fitting
from joyrlinf_core.checkpoint.manifest import config_hash
from joyrlinf_core.comm.collectives import Collectives
from joyrlinf_core.engine.evaluator import Evaluator
from joyrlinf_core.engine.learner import Learner
from joyrlinf_core.engine.learning_watch import LearningWatch
from joyrlinf_core.engine.metrics import reduce_metrics
from joyrlinf_core.engine.rollout import Rollout
from joyrlinf_core.engine.stopping import JobStopped
from joyrlinf_core.engine.vec_envs import build_vec_envs, can_share
from joyrlinf_core.errors import RunFailedError
from joyrlinf_core.observability.events import (
    CheckpointSaved,
    Finished,
    RunStarted,
    Step,
    Warned,
)
from joyrlinf_core.observability.timers import PhaseTimer
from joyrlinf_core.profiler.ranges import annotate
from joyrlinf_core.profiler.schedule import StepProfiler

if TYPE_CHECKING:
    from joyrlinf_core.engine.context import JobContext
    from joyrlinf_core.envs.base import VecEnv


class SyncRunner:
    """One RL run on all ranks.

    Args:
        context: This worker.
    """

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._config = context.plan.config
        self._collectives = Collectives(context.device)
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
        model = self._config.actor.model
        if model.model_path is None:
            raise RunFailedError("actor.model.model_path is not set", fix="set it, or add `sft`")
        context.emitter.phase("load", 0)
        self._policy = model.load(Path(model.model_path))
        self._policy.set_precision(self._config.actor.precision)
        self._policy.set_gradient_checkpointing(enabled=self._config.actor.gradient_checkpointing)
        self._learner = Learner(context, self._policy, self._collectives, self._timer)
        self._checkpoints = CheckpointManager(
            context.run_dir.checkpoints,
            keep=self._config.runner.keep_checkpoints,
            plan=context.plan,
        )
        self._step = 0
        self._saved_step = -1
        self._next_episode = 0
        if self._config.runner.resume_dir:
            self._restore(Path(self._config.runner.resume_dir))
        context.emitter.phase("simulators", self._step)
        self._watch = LearningWatch(self._config.algorithm.dead_signal_steps, context.emitter)
        with ExitStack() as opened:
            envs = build_vec_envs(context, self._config.env.train, opened)
            self._rollout = Rollout(
                context, self._policy, envs, self._timer, lockstep=self._learner.sharded
            )
            self._evaluator = self._build_evaluator(envs, opened) if self._evaluates else None
            # Had anything above failed, they would be closed now; `run` closes them instead.
            self._simulators = opened.pop_all()

    @property
    def _evaluates(self) -> bool:
        runner = self._config.runner
        return runner.val_check_interval > 0 or runner.eval_at_start or runner.eval_at_end

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
        emitter.phase("rollout", step, total=self._context.plan.batch.t_eff)
        batch, counters = self._rollout.collect(
            step, version=step, first_episode=self._next_episode
        )
        self._next_episode += self._context.plan.batch.rollout_epochs
        if self._config.env.train.auto_reset:
            # Ranks get different numbers of episodes done; none may be played twice on resuming.
            self._next_episode = int(self._collectives.max(self._rollout.next_episode))
        emitter.phase("update", step)
        own = counters | self._learner.update(batch, step)
        metrics = reduce_metrics(own, self._collectives)
        self._step += 1
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

    def _build_evaluator(self, train_envs: list[VecEnv], opened: ExitStack) -> Evaluator:
        envs = train_envs
        if not can_share(self._config.env.train, self._config.eval_env):
            envs = build_vec_envs(self._context, self._config.eval_env, opened)
        return Evaluator(
            self._context,
            self._policy,
            envs,
            self._collectives,
            lockstep=self._learner.sharded,
        )

    def _evaluate(self, label: str) -> bool:
        """Return whether the evaluation came to its end, the same on all ranks."""
        if self._evaluator is not None:
            try:
                self._evaluator.run(self._step, label)
            except JobStopped:
                return False
        return True

    def _save(self) -> None:
        """Write a checkpoint of this step."""
        self._context.emitter.phase("save", self._step)
        with annotate("save"):
            self._write_checkpoint()
        self._saved_step = self._step
        self._collectives.barrier()

    def _write_checkpoint(self) -> None:
        started = time.perf_counter()
        state = self._learner.state()
        if self._collectives.is_main:
            progress = {"next_episode": self._next_episode, "seconds": self._elapsed()}
            path = self._checkpoints.save(self._step, state, progress)
            seconds = time.perf_counter() - started
            self._context.emitter.emit(
                CheckpointSaved(step=self._step, path=str(path), seconds=seconds)
            )

    def _restore(self, directory: Path) -> None:
        """Continue from a checkpoint; random streams are named by step and need no state."""
        checkpoint = self._checkpoints.load(directory)
        known = checkpoint.meta.config_hash == config_hash(self._config)
        if not known and self._collectives.is_main:
            self._context.emitter.emit(
                Warned(
                    code="JR603",
                    message=f"{directory} was written under another config",
                    fix="look at what `joyrl resume` lists as different; the new values are used",
                )
            )
        with fitting(directory):
            self._learner.load(checkpoint)
        self._step = self._saved_step = checkpoint.step
        self._next_episode = int(str(checkpoint.progress["next_episode"]))
        self._seconds_before = float(str(checkpoint.progress["seconds"]))

    def _announce(self) -> None:
        if not self._collectives.is_main:
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
                    "gradients": "sharded (FSDP2)" if self._learner.sharded else "replicated",
                    "policy": config.actor.model.model_type,
                },
            )
        )
