"""The jobs that commands start: train, sft, eval, resume. Pure Python; torch is in the workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from joyrlinf_core.config.schema import Config
from joyrlinf_core.errors import ConfigError, ExitCode, UsageError
from joyrlinf_core.launcher import policy_cache, run_directory
from joyrlinf_core.launcher.command import WORKER
from joyrlinf_core.launcher.supervisor import (
    Listener,
    Outcome,
    check_not_running,
    supervise,
)
from joyrlinf_core.observability.run_dir import RunDir
from joyrlinf_core.plan.batching import eval_episodes
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
    """

    plan: RunPlan | None
    run_dir: RunDir | None
    outcome: Outcome
    policy: Path | None = None

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
        check_ready(config, "train")
        build_plan(config, "train")
        if needs_policy(config):
            made = self.cached_policy(config)
            if not made.ok or made.policy is None:
                return made
            config = with_policy(config, made.policy)
        return self._run(config, "train")

    def cached_policy(self, config: Config) -> JobResult:
        """Return the policy of the `sft` section from the cache, or make it."""
        target = policy_cache.cached_policy(config)
        return self._make_policy(config, target, reuse=True)

    def sft(self, config: Config, output: Path | None) -> JobResult:
        """Make the policy of the `sft` section.

        Args:
            config: The config.
            output: Policy directory to write; must not exist. None: the cache.
        """
        check_ready(config, "sft")
        if output is None:
            return self.cached_policy(config)
        target = output.expanduser().absolute()
        if target.exists():
            raise UsageError(f"{output} exists", fix="name a directory that does not exist yet")
        return self._make_policy(config, target, reuse=False)

    def evaluate(self, config: Config, *, policy: Path, checkpoint: Path | None) -> JobResult:
        """Evaluate a policy directory, or a checkpoint of a run that started from it."""
        check_ready(config, "eval")
        args = {"policy": str(policy)}
        if checkpoint is not None:
            args["checkpoint"] = str(checkpoint)
        return self._run(config, "eval", args)

    def resume(self, config: Config, run_dir: RunDir, checkpoint: Path) -> JobResult:
        """Continue a run in its own directory from one of its checkpoints."""
        check_ready(config, "train")
        runner = config.runner.model_copy(update={"resume_dir": str(checkpoint)})
        plan = build_plan(config.model_copy(update={"runner": runner}), "train")
        run_directory.check_space(run_dir.root)
        check_not_running(run_dir)
        run_directory.write_inputs(run_dir, plan)
        return self._supervise(plan, run_dir)

    def _make_policy(self, config: Config, target: Path, *, reuse: bool) -> JobResult:
        def on_wait() -> None:
            self._say(f"another run is making the policy {target}; waiting for it")

        with policy_cache.reserved(target, on_wait):
            if reuse and not config.actor.model.check_directory(target):
                self._say(f"using the policy that was made earlier: {target}")
                return JobResult(None, None, Outcome(int(ExitCode.OK), "completed"), target)
            self._say("no policy for this config yet: behaviour cloning makes it first")
            partial = policy_cache.fresh_partial(target)
            made = self._run(config, "sft", {"output": str(partial), "policy": str(target)})
            if not made.ok:
                policy_cache.fresh_partial(target)
                return made
            partial.rename(target)
        return JobResult(made.plan, made.run_dir, made.outcome, target)

    def _run(self, config: Config, job: Job, args: Mapping[str, str] | None = None) -> JobResult:
        plan = build_plan(config, job, args)
        return self._supervise(plan, run_directory.create(plan))

    def _supervise(self, plan: RunPlan, run_dir: RunDir) -> JobResult:
        listener = self._open_listener(plan, run_dir)
        try:
            outcome = supervise(plan, run_dir, listener, worker=self._worker)
        finally:
            listener.close()
        policy = plan.config.actor.model.model_path
        return JobResult(plan, run_dir, outcome, Path(policy) if policy else None)


def needs_policy(config: Config) -> bool:
    """Say whether a training run has to start from the policy of its `sft` section."""
    return config.sft is not None and config.actor.model.model_path is None


def with_policy(config: Config, policy: Path) -> Config:
    """Return the config with `actor.model.model_path` set."""
    model = config.actor.model.model_copy(update={"model_path": str(policy)})
    actor = config.actor.model_copy(update={"model": model})
    return config.model_copy(update={"actor": actor})


def check_ready(config: Config, job: Job) -> None:
    """Check that the simulators can run here and what is asked, before anything is started.

    Raises:
        ConfigError: More held-out episodes are asked for than there are.
        EnvironmentNotReadyError: Something is missing; the error names its fix.
    """
    evaluation = config.eval_env
    wanted, available = eval_episodes(config, job), evaluation.num_eval_episodes_available
    if available is not None and wanted > available:
        raise ConfigError(
            message=f"env.eval.num_episodes is {wanted}, but {evaluation.type} has {available} "
            "held-out episodes",
            fix=f"--episodes {available} or fewer; a few hundred give a narrow interval",
        )
    config.env.train.check_ready()
    if config.env.eval is not None and config.env.eval.type != config.env.train.type:
        config.env.eval.check_ready()


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return (key, old value, new value) of every key that two configs, as JSON, differ in."""
    before, after = dict(_flat(old, "")), dict(_flat(new, ""))
    keys = [*before, *(key for key in after if key not in before)]
    return [
        (key, before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)
    ]


def _flat(value: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for key, item in value.items():
        path = f"{prefix}{key}"
        nested = isinstance(item, dict) and item
        rows += _flat(item, f"{path}.") if nested else [(path, item)]
    return rows
