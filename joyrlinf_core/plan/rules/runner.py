"""JR5xx: run length, evaluation, saving, profiling."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from joyrlinf_core.errors import Finding
from joyrlinf_core.plan.batching import eval_episodes, evaluation_is_on
from joyrlinf_core.plan.rules.changes import Change
from joyrlinf_core.plan.rules.rule import CLUSTER, RuleContext, finding, rule

_CHECKPOINT_FILES = ("meta.json", "model.pt", "optimizer.pt", "scheduler.pt")
"""Below `actor/` of a checkpoint."""
_RESUME = "runner.resume_dir"
_SEARCHED = 4096
"""Intervals that are looked at."""


@rule(
    "JR501",
    reads=(
        "runner.val_check_interval",
        "runner.eval_at_start",
        "runner.eval_at_end",
        "env.eval",
    ),
    passes={"runner.eval_at_end": True, "env.eval.total_num_envs": 2},
    fails={"runner.eval_at_end": True, "env.eval": None},
)
def evaluation_has_an_env(context: RuleContext) -> Iterator[Finding]:
    """Where evaluation is on, there is an `env.eval` block, be it empty.

    It says on purpose how evaluation differs from training; what it leaves out is taken from
    `env.train`.

    Example: `eval: {num_episodes: 200}` under `env:`, with `runner.val_check_interval: 10`.
    """
    if evaluation_is_on(context.config) and context.config.env.eval is None:
        runner = context.config.runner
        asks = [
            f"{name}: {value}".lower()
            for name, value in (
                ("val_check_interval", runner.val_check_interval),
                ("eval_at_start", runner.eval_at_start),
                ("eval_at_end", runner.eval_at_end),
            )
            if value is True or (value is not False and value > 0)
        ]
        message = f"evaluation is on ({', '.join(asks)}), but there is no `env.eval` block"
        # An empty line reads as null, which is no block.
        verb = "write" if "eval" in context.config.env.model_fields_set else "add"
        fix = f"{verb} `eval: {{}}` under `env:`; it inherits from env.train what it does not set"
        yield finding("JR501", ("env.eval",), message, fix)


@rule(
    "JR502",
    reads=("runner.save_interval", "runner.val_check_interval"),
    passes={
        "runner.save_interval": 20,
        "runner.val_check_interval": 10,
        "env.eval.total_num_envs": 2,
    },
    fails={
        "runner.save_interval": 25,
        "runner.val_check_interval": 10,
        "env.eval.total_num_envs": 2,
    },
)
def saves_meet_evaluations(context: RuleContext) -> Iterator[Finding]:
    """Every saved checkpoint has an evaluation of the same step.

    `save_interval` is a multiple of `val_check_interval`. Zero or less switches either of them off;
    the rule does not apply then.

    Example: saving every 25 steps and evaluating every 10 leaves step 25 without a result; 20 and
    30 work.
    """
    save, check = context.config.runner.save_interval, context.config.runner.val_check_interval
    if save > 0 and check > 0 and save % check:
        key, other = "runner.save_interval", "runner.val_check_interval"
        below = save // check * check
        changes: list[Change] = [{key: value} for value in (below, below + check) if value]
        smaller = range(min(check, save), 1, -1)[:_SEARCHED]
        divisors = (value for value in smaller if save % value == 0)
        changes.extend({other: value} for value in islice(divisors, 1))
        message = (
            f"checkpoints would have no evaluation: save_interval {save} % val_check_interval "
            f"{check} = {save % check}"
        )
        yield finding("JR502", (key, other), message, context.fix("JR502", *changes))


@rule(
    "JR503",
    reads=("profiler", "runner.max_steps", *CLUSTER),
    passes={"profiler.enable": True, "profiler.steps": [1, 2], "runner.max_steps": 2},
    fails={"profiler.enable": True, "profiler.steps": [0, 3], "runner.max_steps": 2},
)
def profiled_steps_and_ranks_exist(context: RuleContext) -> Iterator[Finding]:
    """What the profiler is to record is part of the run.

    Training steps are counted from 1 to `runner.max_steps`, ranks from 0 over all nodes. Others
    would be waited for in vain. A warning.

    Example: `steps: [2, 3]` with `max_steps: 10`, `ranks: [0, 8]` on 2 nodes of 8 GPUs.
    """
    profiler, last = context.config.profiler, context.config.runner.max_steps
    if not profiler.enable:
        return
    steps = [step for step in profiler.steps if not 1 <= step <= last]
    if steps:
        message = f"no training step {_listed(steps)}: steps are 1 to {last} (runner.max_steps)"
        kept = [step for step in profiler.steps if step not in steps]
        fix = context.fix("JR503", {"profiler.steps": kept or [1]})
        yield finding("JR503", ("profiler.steps",), message, fix, "warning")
    if context.placement is None or profiler.all_ranks:
        return
    world = context.placement.world_size
    ranks = [rank for rank in profiler.ranks if not 0 <= rank < world]
    if ranks:
        message = f"no rank {_listed(ranks)}: ranks are 0 to {world - 1}"
        kept = [rank for rank in profiler.ranks if rank not in ranks]
        fix = context.fix("JR503", {"profiler.ranks": kept or [0]})
        yield finding("JR503", ("profiler.ranks",), message, fix, "warning")


@rule(
    "JR504",
    reads=("runner.resume_dir", "runner.max_steps", "runner.eval_at_end"),
    passes={"runner.resume_dir": None},
    fails={"runner.resume_dir": "/no/such/run/checkpoints/global_step_20"},
)
def checkpoint_is_of_an_earlier_step(context: RuleContext) -> Iterator[Finding]:
    """`runner.resume_dir` ends in `global_step_<N>`, with N below `runner.max_steps`.

    The step is read from the name; a run that has reached its last step has nothing left to do,
    except for the evaluation where `runner.eval_at_end` is on.
    `joyrl resume RUN` finds the newest whole checkpoint by itself.

    Example: `resume_dir: results/joyrl/runs/20260101_120000/checkpoints/global_step_40` with
    `max_steps: 100`.
    """
    path, value = _RESUME, context.config.runner.resume_dir
    if value is None or context.job in ("sft", "eval"):
        return
    runner, step = context.config.runner, _step_of(value)
    last = runner.max_steps
    if step is None:
        message = f"`{path}: {value}` does not end in `global_step_<N>`"
        yield finding("JR504", (path,), message, "name one directory below `checkpoints/`")
    elif step > last or (step == last and not runner.eval_at_end):
        message = f"`{path}` is at step {step}, runner.max_steps is {last}: nothing is left to do"
        fix = context.fix("JR504", {"runner.max_steps": 2 * step}, otherwise="raise max_steps")
        yield finding("JR504", (path, "runner.max_steps"), message, fix)


@rule(
    "JR505",
    reads=("profiler", "algorithm.pipeline_mode"),
    passes={"profiler.enable": True, "profiler.roles": ["sync"]},
    fails={"profiler.enable": True, "profiler.roles": ["rollout"]},
)
def profiled_roles_exist(context: RuleContext) -> Iterator[Finding]:
    """The profiler records a role that this pipeline has.

    In `sync` every rank does everything and is called `sync`; in `async` ranks are `env`, `rollout`
    or `actor`. With no such role no trace is written. A warning.

    Example: `roles: [sync]` with `pipeline_mode: sync`, `roles: [rollout, actor]` with `async`.
    """
    profiler, mode = context.config.profiler, context.config.algorithm.pipeline_mode
    there = ("sync",) if mode == "sync" else ("env", "rollout", "actor")
    if profiler.enable and not set(profiler.roles) & set(there):
        message = (
            f"profiler.roles {_listed(profiler.roles)}: nothing would be recorded, the roles of "
            f"`pipeline_mode: {mode}` are {_listed(there)}"
        )
        usual = [role for role in there if role != "env"]
        paths = ("profiler.roles", "algorithm.pipeline_mode")
        fix = context.fix("JR505", {"profiler.roles": usual})
        yield finding("JR505", paths, message, fix, "warning")


_MOST_EPISODES = 5_000
"""Episodes that are looked at."""


@rule(
    "JR506",
    reads=(
        "runner.val_check_interval",
        "runner.eval_at_start",
        "runner.eval_at_end",
        "env.train",
        "env.eval",
    ),
    passes={"runner.eval_at_end": True},
    fails={
        "runner.eval_at_end": True,
        "env.eval": {"type": "libero", "total_num_envs": 40, "rollout_epoch": 5},
    },
)
def evaluation_does_not_repeat(context: RuleContext) -> Iterator[Finding]:
    """No episode of an evaluation is played twice.

    Repeated initial states make a success rate look more certain than it is. A simulator with few
    stored states runs out of them: `libero_spatial` holds out 10 states of each of its 10 tasks.

    Example: `env.eval.num_episodes: 100` on `libero_spatial`, or `eval_split: all` for 500. A
    warning.
    """
    config = context.config
    total = eval_episodes(config, context.job or "train")
    env, path = config.eval_env, "env.eval.num_episodes"
    if context.probing or total < 2 or context.job == "sft":
        return
    checked = min(total, _MOST_EPISODES)
    distinct = len({env.eval_episode(index) for index in range(checked)})
    if distinct < checked:
        told = f"num_episodes {env.num_episodes}"
        if env.num_episodes is None:
            told = f"total_num_envs {env.total_num_envs} x rollout_epoch {env.rollout_epoch}"
        of = f"of the first {checked}" if checked < total else "of which"
        message = f"evaluation plays {told} = {total} episodes, {of} {distinct} are different"
        fix = f"{path} {distinct}" if checked == total else "fewer episodes"
        yield finding("JR506", (path, "env.eval.total_num_envs"), message, fix, "warning")


@rule(
    "JR507",
    reads=(_RESUME,),
    passes={_RESUME: None},
    fails={_RESUME: "/no/such/run/checkpoints/global_step_2"},
)
def checkpoint_is_whole(context: RuleContext) -> Iterator[Finding]:
    """The checkpoint that `runner.resume_dir` names is there and whole.

    `actor/` in it holds `meta.json`, `model.pt`, `optimizer.pt` and `scheduler.pt`. An absent
    directory is a warning under `joyrl validate`, and an error with `--check-paths` and where a run
    is started.

    Example: `joyrl runs list` shows the runs of a machine, `joyrl resume latest` goes on with one.
    """
    value = context.config.runner.resume_dir
    if context.probing or value is None or context.job in ("sft", "eval"):
        return
    directory = Path(value).expanduser()
    lacking = [name for name in _CHECKPOINT_FILES if not (directory / "actor" / name).is_file()]
    if not directory.is_dir():
        message = f"`{_RESUME}: {value}` is no directory on this machine"
        fix = "mend the path, or use `joyrl resume RUN`"
        yield finding("JR507", (_RESUME,), message, fix, context.path_severity)
    elif lacking and _step_of(value) is not None:
        message = f"`{_RESUME}: {value}` is incomplete: actor/ lacks {', '.join(lacking)}"
        yield finding("JR507", (_RESUME,), message, "name an earlier checkpoint")


@rule(
    "JR508",
    reads=(
        "env",
        "runner.val_check_interval",
        "runner.eval_at_start",
        "runner.eval_at_end",
    ),
    passes={"runner.eval_at_end": True, "env.eval.num_episodes": 400},
    fails={
        "runner.eval_at_end": True,
        "env.eval": {
            "type": "metaworld",
            "total_num_envs": 2,
            "max_episode_steps": 80,
            "num_episodes": 100_000_000,
        },
    },
)
def held_out_episodes_are_enough(context: RuleContext) -> Iterator[Finding]:
    """Evaluation asks for no more held-out episodes than the simulator has.

    Each is played once, from an initial state that training and demonstrations never use, and a
    simulator has only so many of these.

    Example: LIBERO keeps 10 of the 50 initial states of a task: 100 episodes for a suite of ten.
    """
    env = context.config.eval_env
    wanted = eval_episodes(context.config, context.job or "train")
    available = env.num_eval_episodes_available
    if available is not None and wanted > available:
        message = f"evaluation asks for {wanted} episodes, but `type: {env.type}` has {available}"
        path, split = "env.eval.num_episodes", "env.eval.eval_split"
        deciding = ("eval_split", "suite", "task_id_filter", "tasks", "num_reset_states")
        there = (f"env.eval.{name}" for name in deciding if hasattr(env, name))
        changes = [{path: available}, {split: "all"}]
        yield finding("JR508", (path, *there), message, context.fix("JR508", *changes))


def _step_of(directory: str) -> int | None:
    """Return the step of a checkpoint directory, None where its name tells none."""
    match = re.fullmatch(r"global_step_(\d{1,12})", Path(directory).name)
    return int(match[1]) if match else None


def _listed(items: Sequence[object]) -> str:
    return ", ".join(str(item) for item in items)
