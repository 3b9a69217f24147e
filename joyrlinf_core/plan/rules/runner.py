"""JR5xx: run length, evaluation, saving."""

from __future__ import annotations

from collections.abc import Iterator

from joyrlinf_core.errors import Finding
from joyrlinf_core.plan.batching import evaluation_is_on
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
