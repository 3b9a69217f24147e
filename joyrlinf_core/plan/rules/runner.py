"""JR5xx: run length, evaluation, saving, profiling."""

from __future__ import annotations

from collections.abc import Iterator

from joyrlinf_core.errors import Finding
from joyrlinf_core.plan.batching import evaluation_is_on
from joyrlinf_core.plan.placement import resolve_placement
from joyrlinf_core.plan.rules.rule import RuleContext, finding, rule


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
    """Evaluation needs an `env.eval` block, be it empty."""
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
        fix = "add `eval: {}` under `env:`; it inherits from env.train what it does not set"
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
    """Every saved checkpoint has an evaluation of the same step."""
    save, check = context.config.runner.save_interval, context.config.runner.val_check_interval
    if save > 0 and check > 0 and save % check:
        below = save // check * check
        values = " or ".join(str(value) for value in (below, below + check) if value)
        message = (
            f"checkpoints would have no evaluation: save_interval {save} % val_check_interval "
            f"{check} = {save % check}"
        )
        paths = ("runner.save_interval", "runner.val_check_interval")
        yield finding("JR502", paths, message, f"runner.save_interval {values}")


@rule(
    "JR503",
    reads=("profiler", "runner.max_steps", "cluster"),
    passes={"profiler.enable": True, "profiler.steps": [1, 2], "runner.max_steps": 2},
    fails={"profiler.enable": True, "profiler.steps": [0, 3], "runner.max_steps": 2},
)
def profiled_steps_and_ranks_exist(context: RuleContext) -> Iterator[Finding]:
    """What the profiler is to record is part of the run."""
    profiler, last = context.config.profiler, context.config.runner.max_steps
    placement = resolve_placement(context.config.cluster)
    if not profiler.enable or placement is None:
        return
    steps = [step for step in profiler.steps if not 1 <= step <= last]
    if steps:
        message = f"no training step {_listed(steps)}: steps are 1 to {last} (runner.max_steps)"
        yield finding("JR503", ("profiler.steps",), message, "profiler.steps: [1]", "warning")
    ranks = [rank for rank in profiler.ranks if not 0 <= rank < placement.world_size]
    if ranks and not profiler.all_ranks:
        message = f"no rank {_listed(ranks)}: ranks are 0 to {placement.world_size - 1}"
        yield finding("JR503", ("profiler.ranks",), message, "profiler.ranks: [0]", "warning")


def _listed(numbers: list[int]) -> str:
    return ", ".join(str(number) for number in numbers)
