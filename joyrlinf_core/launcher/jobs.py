"""The jobs that commands start: train, sft, eval, resume. Pure Python; torch is in the workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from joyrlinf_core.config.schema import Config
from joyrlinf_core.errors import CheckpointError, ExitCode, UsageError
from joyrlinf_core.launcher import policy_cache, resuming, run_directory, run_lock
from joyrlinf_core.launcher.command import WORKER
from joyrlinf_core.launcher.requirements import check_ready
from joyrlinf_core.launcher.space import MIN_FREE_BYTES, OTHER_CACHE, check_space
from joyrlinf_core.launcher.supervisor import (
    Listener,
    Outcome,
    check_not_running,
    supervise,
)
from joyrlinf_core.launcher.weight_files import damaged
from joyrlinf_core.observability.run_dir import RunDir
from joyrlinf_core.plan.build import build_plan
from joyrlinf_core.plan.run_plan import Job, RunPlan


class ClosableListener(Listener, Protocol):
    """A listener that frees the terminal at the end of a job."""

    def close(self) -> None:
        """End the display."""
        ...


OpenListener = Callable[[RunPlan, RunDir], ClosableListener]
"""Opens the display of one job."""

Say = Callable[[str], None]
"""Tells the user something between jobs."""


@dataclass(frozen=True)
class JobResult:
    """A job that ran, or a policy that was there already.

    Attributes:
        plan: Its plan; None where nothing had to run.
        run_dir: Its run directory; None where nothing had to run.
        outcome: How it ended.
        policy: Policy directory that it made or used.
        checkpoint: Checkpoint that an evaluation measured; None where it was the policy itself.
    """

    plan: RunPlan | None
    run_dir: RunDir | None
    outcome: Outcome
    policy: Path | None = None
    checkpoint: Path | None = None

    @property
    def ok(self) -> bool:
        """Whether the job came to its end."""
        return self.outcome.exit_code == ExitCode.OK


class Jobs:
    """Starts jobs.

    Args:
        open_listener: Display of each job.
        say: Where short messages go.
        worker: Arguments for torchrun that name the program.
    """

    def __init__(
        self, open_listener: OpenListener, say: Say, worker: Sequence[str] = WORKER
    ) -> None:
        self._open_listener = open_listener
        self._say = say
        self._worker = worker

    def train(self, config: Config) -> JobResult:
        """Train; first make the policy of the `sft` section where no other policy is named."""
        check_ready(config)
        build_plan(config, "train")
        if needs_policy(config):
            made = self.cached_policy(config)
            if not made.ok or made.policy is None:
                return made
            if made.outcome.stop_asked:
                interrupted = Outcome(int(ExitCode.INTERRUPTED), "interrupted")
                return JobResult(made.plan, made.run_dir, interrupted, made.policy)
            config = with_policy(config, made.policy)
        elif config.actor.model.model_path is not None:
            _check_weights(Path(config.actor.model.model_path).expanduser())
        return self._run(config, "train")

    def cached_policy(self, config: Config) -> JobResult:
        """Return the policy of the `sft` section from the cache, or make it."""
        target = policy_cache.cached_policy(config)
        return self._make_policy(config, target, reuse=True, other_place=OTHER_CACHE)

    def sft(self, config: Config, output: Path | None) -> JobResult:
        """Make the policy of the `sft` section.

        Args:
            config: The config.
            output: Policy directory to write; must not exist. None: the cache.
        """
        check_ready(config)
        if output is None:
            return self.cached_policy(config)
        target = output.expanduser().absolute()
        if target.exists():
            raise UsageError(f"{output} exists", fix="name a directory that does not exist yet")
        return self._make_policy(config, target, reuse=False, other_place="another --output DIR")

    def evaluate(self, config: Config, *, policy: Path, checkpoint: Path | None) -> JobResult:
        """Evaluate a policy directory, or a checkpoint of a run that started from it."""
        check_ready(config)
        _check_weights(policy)
        args = {"policy": str(policy)}
        if checkpoint is not None:
            args["checkpoint"] = str(checkpoint)
        return self._run(config, "eval", args)

    def resume(self, config: Config, run_dir: RunDir, checkpoint: Path) -> JobResult:
        """Continue a run in its own directory from one of its checkpoints.

        Its config and plan are replaced only once the workers have loaded the checkpoint.
        """
        check_ready(config)
        with run_lock.held(run_dir):
            check_not_running(run_dir)
            resuming.check_fits(run_dir, config)
            runner = config.runner.model_copy(update={"resume_dir": str(checkpoint)})
            plan = build_plan(config.model_copy(update={"runner": runner}), "train")
            check_space(run_dir.root, what="a run", other_place="move the run to another disk")
            return self._supervise(plan, run_dir, resumed=True)

    def _make_policy(
        self, config: Config, target: Path, *, reuse: bool, other_place: str
    ) -> JobResult:
        def on_wait() -> None:
            self._say(f"another run is making the policy {target}; waiting for it")

        with policy_cache.reserved(target, on_wait):
            if reuse and target.exists():
                problems = config.actor.model.check_directory(target) + damaged(target)
                if not problems:
                    self._say(f"using the policy that was made earlier: {target}")
                    return JobResult(None, None, Outcome(int(ExitCode.OK), "completed"), target)
                self._say(f"the policy {target} is made anew: {'; '.join(problems)}")
            else:
                self._say("no policy for this config yet: behaviour cloning makes it first")
            check_space(
                target.parent,
                what="the policy",
                other_place=other_place,
                needed=_policy_bytes(config),
            )
            if target.exists():
                policy_cache.discard(target)
            partial = policy_cache.fresh_partial(target)
            made = self._run(config, "sft", {"output": str(partial), "policy": str(target)})
            if not made.ok:
                policy_cache.fresh_partial(target)
                return made
            partial.rename(target)
        return JobResult(made.plan, made.run_dir, made.outcome, target)

    def _run(self, config: Config, job: Job, args: Mapping[str, str] | None = None) -> JobResult:
        plan = build_plan(config, job, args)
        run_dir = run_directory.create(plan)
        with run_lock.held(run_dir):
            return self._supervise(plan, run_dir)

    def _supervise(self, plan: RunPlan, run_dir: RunDir, *, resumed: bool = False) -> JobResult:
        console = self._open_listener(plan, run_dir)
        listener = resuming.Accepting(console, run_dir, plan) if resumed else console
        try:
            outcome = supervise(plan, run_dir, listener, worker=self._worker)
        finally:
            console.close()
        policy = plan.args.get("policy") or plan.config.actor.model.model_path
        checkpoint = plan.args.get("checkpoint")
        return JobResult(
            plan,
            run_dir,
            outcome,
            Path(policy) if policy else None,
            Path(checkpoint) if checkpoint else None,
        )


def needs_policy(config: Config) -> bool:
    """Say whether a training run has to start from the policy of its `sft` section."""
    return config.sft is not None and config.actor.model.model_path is None


def with_policy(config: Config, policy: Path) -> Config:
    """Return the config with `actor.model.model_path` set."""
    model = config.actor.model.model_copy(update={"model_path": str(policy)})
    actor = config.actor.model_copy(update={"model": model})
    return config.model_copy(update={"actor": actor})


def _check_weights(policy: Path) -> None:
    """Raise `CheckpointError` if a weight file of a policy directory was cut short."""
    problems = damaged(policy)
    if problems:
        raise CheckpointError(
            "; ".join(problems), fix="copy the file again, or name another policy directory"
        )


def _policy_bytes(config: Config) -> int:
    """Return the space that the policy of the `sft` section needs, weights in float32."""
    footprint = config.actor.model.footprint(config.env.train, gradient_checkpointing=False)
    return max(MIN_FREE_BYTES, 4 * footprint.parameters if footprint is not None else 0)
