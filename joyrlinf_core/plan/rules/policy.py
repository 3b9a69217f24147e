"""JR4xx: the policy and its files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from joyrlinf_core.errors import Finding
from joyrlinf_core.plan.rules.rule import RuleContext, finding, rule

_PATH = "actor.model.model_path"


@rule(
    "JR401",
    reads=(_PATH, "sft"),
    passes={"sft": {"steps": 10}},
    fails={"sft": None},
)
def policy_has_a_source(context: RuleContext) -> Iterator[Finding]:
    """A run starts from a policy directory or from a recipe that makes one."""
    if context.job == "eval" or context.config.sft is not None:
        return  # `joyrl eval` is told on the command line what to evaluate
    if context.job == "sft":
        message = "behaviour cloning needs an `sft` section"
        yield finding("JR401", ("sft",), message, "add `sft: {num_demos: 100, steps: 800}`")
    elif context.config.actor.model.model_path is None:
        message = "no policy to start from: there is neither `model_path` nor an `sft` section"
        fix = f"set {_PATH} to a policy directory, or add an `sft` section"
        yield finding("JR401", (_PATH, "sft"), message, fix)


@rule(
    "JR402",
    reads=("actor.model", "sft"),
    passes={_PATH: None},
    fails={_PATH: "/no/such/policy"},
)
def policy_directory_is_complete(context: RuleContext) -> Iterator[Finding]:
    """Policy and adapter directories are there and hold their files.

    A warning while a config is only checked: it may be meant for another machine.
    """
    if context.job in ("sft", "eval"):
        return
    model = context.config.actor.model
    severity = "warning" if context.job is None else "error"
    for path, value in ((_PATH, model.model_path), ("actor.model.lora_path", model.lora_path)):
        if value is None:
            continue
        directory = Path(value).expanduser()
        if not directory.is_dir():
            there = next((p for p in directory.absolute().parents if p.is_dir()), Path("/"))
            message = f"`{path}: {value}` is no directory on this machine; {there} is"
            fix = "mend the path" if context.config.sft is None else "mend the path, or delete it"
            yield finding("JR402", (path,), message, fix, severity)
        elif path == _PATH:
            lacking = model.check_directory(directory)
            if lacking:
                message = f"`{path}: {value}` is incomplete: {'; '.join(lacking)}"
                yield finding("JR402", (path,), message, "", "error")
