"""Rules that look at several keys at once; each module holds the rules of one hundred of codes."""

from __future__ import annotations

from joyrlinf_core.config.schema import Config
from joyrlinf_core.errors import Finding
from joyrlinf_core.plan.rules import algorithm, batch, placement, policy, runner
from joyrlinf_core.plan.rules.rule import RULES, Rule, RuleContext
from joyrlinf_core.plan.run_plan import Job

__all__ = ["RULES", "Rule", "algorithm", "batch", "check", "placement", "policy", "runner"]


def check(
    config: Config,
    *,
    unparsed: frozenset[str] = frozenset(),
    job: Job | None = None,
) -> list[Finding]:
    """Run every rule whose keys could be read.

    Args:
        config: A config, or as much of one as could be read.
        unparsed: Dotted keys that `config` lacks or holds a wrong value for.
        job: What will run; None while a config is checked for its own sake.

    Returns:
        All findings, by code.
    """
    context = RuleContext(config, job)
    found: list[Finding] = []
    for code in sorted(RULES):
        one = RULES[code]
        if not any(_touches(read, bad) for read in one.reads for bad in unparsed):
            found.extend(one.check(context))
    return found


def _touches(read: str, bad: str) -> bool:
    """Say whether one of two dotted keys is the other or lies below it."""
    return read == bad or read.startswith(f"{bad}.") or bad.startswith(f"{read}.")
