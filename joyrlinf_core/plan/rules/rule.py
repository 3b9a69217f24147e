"""What a rule is: one function, one code, the keys that it reads, a good and a bad example.

Codes: JR0xx reading and schema (`config/`), JR1xx batch arithmetic, JR2xx placement and modes,
JR3xx algorithm, JR4xx policy and its files, JR5xx run length, evaluation, saving, profiling. JR6xx
are warnings of a running job (`engine/`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from joyrlinf_core.config.schema import Config
from joyrlinf_core.errors import Finding, Severity
from joyrlinf_core.plan.batching import BatchShape, batch_shape, violations
from joyrlinf_core.plan.placement import resolve_placement
from joyrlinf_core.plan.run_plan import Job, Placement


@dataclass(frozen=True)
class RuleContext:
    """What a rule looks at.

    Attributes:
        config: The config; only the keys that the rule names are sure to be there.
        job: What will run; None while a config is checked for its own sake.
    """

    config: Config
    job: Job | None = None

    @cached_property
    def placement(self) -> Placement | None:
        """The placement, None while its own rules find errors."""
        return resolve_placement(self.config.cluster)

    @cached_property
    def shape(self) -> BatchShape | None:
        """The batch numbers, None while the placement is unclear."""
        return batch_shape(self.config, self.placement) if self.placement else None

    def breaks(self, code: str) -> BatchShape | None:
        """Return the batch numbers if they break this rule, else None."""
        if self.shape is None or code not in violations(self.shape):
            return None
        return self.shape


CLUSTER = tuple(
    f"cluster.{name}"
    for name in ("num_nodes", "gpus_per_node", "placement_basis", "component_placement")
)
"""What `RuleContext.placement` reads."""

Check = Callable[[RuleContext], Iterator[Finding]]


@dataclass(frozen=True)
class Rule:
    """A registered rule.

    Attributes:
        code: Its code.
        reads: Dotted keys or sections; the rule is skipped where one of them could not be read.
        passes: Overrides of a valid config that the rule accepts.
        fails: Overrides that make it report.
        check: The function.
    """

    code: str
    reads: tuple[str, ...]
    passes: Mapping[str, Any]
    fails: Mapping[str, Any]
    check: Check


RULES: dict[str, Rule] = {}
"""Every rule by its code; filled by importing the modules of this package."""


def rule(
    code: str, *, reads: tuple[str, ...], passes: Mapping[str, Any], fails: Mapping[str, Any]
) -> Callable[[Check], Check]:
    """Register a function as a rule; see `Rule` for the arguments."""

    def register(check: Check) -> Check:
        assert code not in RULES, f"two rules have the code {code}"
        RULES[code] = Rule(code, reads, passes, fails, check)
        return check

    return register


def finding(
    code: str, paths: tuple[str, ...], message: str, fix: str = "", severity: Severity = "error"
) -> Finding:
    """Return a finding without a place; the loader's source map adds it."""
    return Finding(code, severity, paths, message, fix)
