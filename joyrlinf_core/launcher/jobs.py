"""The jobs that commands start: train, sft, eval, resume. Pure Python; torch is in the workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from joyrlinf_core.config.schema import Config
from joyrlinf_core.errors import CheckpointError, ExitCode, UsageError
from joyrlinf_core.launcher import mps, policy_cache, resuming, run_lock
from joyrlinf_core.launcher.command import WORKER
from joyrlinf_core.launcher.nodes.crew import exchange
from joyrlinf_core.launcher.nodes.endings import Outcome
from joyrlinf_core.launcher.nodes.facts import check_same, own_facts
from joyrlinf_core.launcher.nodes.meeting import Team, met
from joyrlinf_core.launcher.nodes.places import RunPlace, check_policy_place, new_run, old_run
from joyrlinf_core.launcher.nodes.settings import NodeOptions, node_settings
from joyrlinf_core.launcher.requirements import check_ready
from joyrlinf_core.launcher.space import MIN_FREE_BYTES, OTHER_CACHE, check_space
from joyrlinf_core.launcher.supervisor import Listener, check_not_running, supervise
from joyrlinf_core.launcher.weight_files import damaged
from joyrlinf_core.observability.run_dir import RunDir
from joyrlinf_core.plan.build import build_plan
from joyrlinf_core.plan.run_plan import Job, RunPlan


class ClosableListener(Listener, Protocol):
    """A listener that frees the terminal at the end of a job."""

    def close(self) -> None:
        """End the display."""
        ...


OpenListener = Callable[[RunPlan, RunDir, str], ClosableListener]
"""Opens the display of one job. The text is the node that has its metrics; empty for this one."""

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
        speaker: The other node that has its metrics; empty where they are here.
    """

    plan: RunPlan | None
    run_dir: RunDir | None
    outcome: Outcome
    policy: Path | None = None
    checkpoint: Path | None = None
    speaker: str = ""

    @property
    def ok(self) -> bool:
        """Whether the job came to its end."""
        return self.outcome.exit_code == ExitCode.OK


class Jobs:
    """Starts jobs. Of a run on several nodes, every node starts the same one.

    Args:
        open_listener: Display of each job.
        say: Where short messages go.
        worker: Arguments for torchrun that name the program.
        nodes: What the command line says of the nodes.
    """

    def __init__(
        self,
        open_listener: OpenListener,
        say: Say,
        worker: Sequence[str] = WORKER,
        nodes: NodeOptions | None = None,
    ) -> None:
        self._open_listener = open_listener
        self._say = say
        self._worker = worker
        self._nodes = nodes or NodeOptions()
        self._team = Team()

    def train(self, config: Config) -> JobResult:
        """Train; first make the policy of the `sft` section where no other policy is named."""
        check_ready(config)
        plan = build_plan(config, "train")
        policy = _named_policy(config)
        if policy is not None:
            _check_weights(policy)
        with self._met(plan, policy=policy):
            if needs_policy(config):
                made = self._cached_policy(config)
                if not made.ok or made.policy is None:
                    return made
                if made.outcome.stop_asked:
                    interrupted = Outcome(int(ExitCode.INTERRUPTED), "interrupted")
                    return JobResult(made.plan, made.run_dir, interrupted, made.policy)
                config = with_policy(config, made.policy)
            return self._run(config, "train")

    def sft(self, config: Config, output: Path | None) -> JobResult:
        """Make the policy of the `sft` section.

        Args:
            config: The config.
            output: Policy directory to write; must not exist. None: the cache.
        """
        check_ready(config)
        plan = build_plan(config, "sft")
        if output is None:
            with self._met(plan):
                return self._cached_policy(config)
        target = output.expanduser().absolute()
        if target.exists():
            raise UsageError(f"{output} exists", fix="name a directory that does not exist yet")
        with self._met(plan):
            return self._make_policy(
                config, target, reuse=False, other_place="another --output DIR"
            )

    def evaluate(self, config: Config, *, policy: Path, checkpoint: Path | None) -> JobResult:
        """Evaluate a policy directory, or a checkpoint of a run that started from it."""
        check_ready(config)
        _check_weights(policy)
        args = {"policy": str(policy)}
        if checkpoint is not None:
            args["checkpoint"] = str(checkpoint)
        with self._met(build_plan(config, "eval"), policy=policy, checkpoint=checkpoint):
            return self._run(config, "eval", args)

    def resume(self, config: Config, run_dir: RunDir, checkpoint: Path) -> JobResult:
        """Continue a run in its own directory from one of its checkpoints.

        Its config and plan are replaced only once the workers have loaded the checkpoint.
        """
        check_ready(config)
        policy = _named_policy(config)
        runner = config.runner.model_copy(update={"resume_dir": str(checkpoint)})
        plan = build_plan(config.model_copy(update={"runner": runner}), "train")
        with (
            self._met(plan, policy=policy, checkpoint=checkpoint),
            old_run(run_dir, self._team) as place,
            run_lock.held(run_dir) if place.owner else nullcontext(),
        ):
            check_not_running(run_dir)
            resuming.check_fits(run_dir, config)
            check_space(run_dir.root, what="a run", other_place="move the run to another disk")
            return self._supervise(plan, place, resumed=True)

    @contextmanager
    def _met(
        self, plan: RunPlan, *, policy: Path | None = None, checkpoint: Path | None = None
    ) -> Iterator[None]:
        """Meet the other nodes of the plan, if there are any, and compare what must be equal.

        Args:
            plan: The plan.
            policy: Policy directory that the workers will read.
            checkpoint: Checkpoint that they start from.
        """
        mps.check_ready(plan)
        place = plan.placement
        settings = node_settings(self._nodes, place.num_nodes, place.ranks_per_node, os.environ)
        with met(settings, self._say) as team:
            if not team.alone:
                facts = own_facts(
                    plan.config,
                    command=plan.job,
                    ranks_per_node=place.ranks_per_node,
                    policy=policy,
                    checkpoint=checkpoint,
                )
                check_same(team.crew, facts, plan.config)
            self._team = team
            yield

    def _cached_policy(self, config: Config) -> JobResult:
        """Return the policy of the `sft` section from the cache, or make it."""
        target = policy_cache.cached_policy(config)
        return self._make_policy(config, target, reuse=True, other_place=OTHER_CACHE)

    def _make_policy(
        self, config: Config, target: Path, *, reuse: bool, other_place: str
    ) -> JobResult:
        def on_wait() -> None:
            self._say(f"another run is making the policy {target}; waiting for it")

        # Node 0 makes it for all.
        first = self._team.crew.node == 0
        with policy_cache.reserved(target, on_wait) if first else nullcontext():
            if self._is_there(config, target, reuse=reuse):
                self._say(f"using the policy that was made earlier: {target}")
                return JobResult(None, None, Outcome(int(ExitCode.OK), "completed"), target)
            partial = target
            if first:
                check_space(
                    target.parent,
                    what="the policy",
                    other_place=other_place,
                    needed=_policy_bytes(config),
                )
                if target.exists():
                    policy_cache.discard(target)
                partial = policy_cache.fresh_partial(target)
            partial = target.parent / exchange(self._team.crew, "partial policy", partial.name)[0]
            made = self._run(config, "sft", {"output": str(partial), "policy": str(target)})
            if first and made.ok:
                partial.rename(target)
            elif first:
                policy_cache.fresh_partial(target)
            exchange(self._team.crew, "policy is made", None)
        policy = target if made.ok else made.policy
        return JobResult(made.plan, made.run_dir, made.outcome, policy, speaker=made.speaker)

    def _is_there(self, config: Config, target: Path, *, reuse: bool) -> bool:
        """Say whether a policy can be used as it is, on all nodes; say why not."""
        there, why = False, "no policy for this config yet: behaviour cloning makes it first"
        if reuse and target.exists():
            problems = config.actor.model.check_directory(target) + damaged(target)
            there, why = not problems, f"the policy {target} is made anew: {'; '.join(problems)}"
        if not self._team.alone:
            there = check_policy_place(self._team, target, there=there)
        if not there:
            self._say(why)
        return there

    def _run(self, config: Config, job: Job, args: Mapping[str, str] | None = None) -> JobResult:
        plan = build_plan(config, job, args)
        with (
            new_run(plan, self._team) as place,
            run_lock.held(place.run_dir) if place.owner else nullcontext(),
        ):
            return self._supervise(plan, place)

    def _supervise(self, plan: RunPlan, place: RunPlace, *, resumed: bool = False) -> JobResult:
        crew, run_dir = self._team.crew, place.run_dir
        node = plan.placement.node_of(plan.placement.metrics_rank)
        speaker = "" if node == crew.node else f"node {node}, {crew.hosts[node]}"
        console = self._open_listener(plan, run_dir, speaker)
        accepts = resumed and place.owner
        listener = resuming.Accepting(console, run_dir, plan) if accepts else console
        try:
            outcome = supervise(
                plan, run_dir, listener, worker=self._worker, team=self._team, owner=place.owner
            )
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
            speaker,
        )


def needs_policy(config: Config) -> bool:
    """Say whether a training run has to start from the policy of its `sft` section."""
    return config.sft is not None and config.actor.model.model_path is None


def _named_policy(config: Config) -> Path | None:
    path = config.actor.model.model_path
    return None if path is None else Path(path).expanduser()


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
