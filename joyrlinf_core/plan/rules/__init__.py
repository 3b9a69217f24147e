"""Rules that look at several keys at once; each module holds the rules of one hundred of codes."""

from __future__ import annotations

from collections.abc import Iterable

from joyrlinf_core.config.schema import Config
from joyrlinf_core.errors import Finding
from joyrlinf_core.plan.rules import (
    algorithm,
    batch,
    batch_calls,
    env,
    launcher,
    placement,
    policy,
    policy_inputs,
    runner,
    unused,
    unused_settings,
)
from joyrlinf_core.plan.rules.origins import Origins
from joyrlinf_core.plan.rules.rule import RULES, Rule, RuleContext
from joyrlinf_core.plan.rules.unread import guarded
from joyrlinf_core.plan.run_plan import Job

__all__ = [
    "RULES",
    "SKIPPED",
    "Origins",
    "Rule",
    "algorithm",
    "batch",
    "batch_calls",
    "check",
    "env",
    "launcher",
    "placement",
    "policy",
    "policy_inputs",
    "runner",
    "unused",
    "unused_settings",
]

SKIPPED = "JR099"
"""Code of the finding that names the rules which could not be checked."""


def check(
    config: Config,
    *,
    unparsed: frozenset[str] = frozenset(),
    job: Job | None = None,
    check_paths: bool = False,
    origins: Origins | None = None,
) -> list[Finding]:
    """Run every rule whose keys could be read.

    Args:
        config: A config, or as much of one as could be read.
        unparsed: Dotted keys that `config` lacks or holds a wrong value for.
        job: What will run; None while a config is checked for its own sake.
        check_paths: Files and directories must be there although nothing will run.
        origins: Which keys the user wrote; None where nobody knows.

    Returns:
        All findings, by code; a last one names the rules that were not checked.
    """
    readable = guarded(config, unparsed) if unparsed else config
    context = RuleContext(readable, job, check_paths, unparsed, origins or Origins())
    return [*context.findings(), *_skipped(context)]


def _skipped(context: RuleContext) -> list[Finding]:
    """Return one finding that names the rules which could not be checked, and why."""
    by_key: dict[str, list[str]] = {}
    for code, key in sorted(context.blocked.items()):
        by_key.setdefault(key, []).append(code)
    after: dict[str, list[str]] = {}
    for code, first in sorted(context.waiting.items()):
        after.setdefault(first, []).append(code)
    if not by_key and not after:
        return []
    parts = [f"{_ranges(codes)} (after {first})" for first, codes in sorted(after.items())]
    parts += [
        f"{_ranges(codes)} ({'needs' if len(codes) == 1 else 'need'} {key})"
        for key, codes in sorted(by_key.items(), key=lambda item: item[1])
    ]
    if "extends" in context.unparsed:
        # What the base would have brought is not here, and nobody left it out.
        parts = [f"{len(context.blocked)} rules that need what `extends` would bring"]
    message = f"not checked: {'; '.join(parts)}"
    return [Finding(SKIPPED, "info", (), message, "mend the errors above and check again")]


def _ranges(codes: Iterable[str]) -> str:
    """Return codes with runs of neighbours as ranges, `JR101-JR104, JR107`."""
    known = sorted(RULES)
    runs: list[list[str]] = []
    for code in codes:
        if runs and known.index(code) == known.index(runs[-1][-1]) + 1:
            runs[-1].append(code)
        else:
            runs.append([code])
    named = [
        run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(run)
        for run in runs[:_RUNS]
    ]
    more = sum(map(len, runs[_RUNS:]))
    return ", ".join(named) + (f" and {more} more" if more else "")


_RUNS = 4
"""Runs of codes that are named: a section that can't be read keeps dozens from being checked."""
