"""What a rule is: one function, one code, the keys that it reads, a good and a bad example.

Codes: JR0xx reading and schema (`config/`), JR1xx batch arithmetic, JR2xx placement and modes,
JR3xx algorithm, JR4xx policy and its files, JR5xx run length, evaluation, saving, profiling, JR7xx
simulators, JR8xx keys without effect. JR6xx are warnings of a running job (`engine/`). The
docstring of a rule is its page in `docs/rules.md`: first what must hold, then why, then an example.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from joyrlinf_core.config.schema import Config
from joyrlinf_core.config.schema.base import Section
from joyrlinf_core.errors import Finding, Severity
from joyrlinf_core.plan.batching import BatchShape, batch_shape, violations, waiting
from joyrlinf_core.plan.placement import resolve_placement
from joyrlinf_core.plan.rules.changes import Change, changed, told
from joyrlinf_core.plan.rules.origins import Origins
from joyrlinf_core.plan.rules.unread import UnreadKeyError
from joyrlinf_core.plan.run_plan import Job, Placement

_UNKNOWN = Origins()
_BATCH = "JR1"
_PLACED = ("JR201", "JR202", "JR203", "JR204", "JR205", "JR208")
"""Rules of who plays which role, without those of what this version can run."""


@dataclass(frozen=True)
class RuleContext:
    """What a rule looks at.

    Attributes:
        config: The config; where keys could not be read, `guarded` against reading them.
        job: What will run; None while a config is checked for its own sake.
        check_paths: Files and directories must be there although nothing will run.
        unparsed: Dotted keys that `config` lacks or holds a wrong value for.
        origins: Which keys the user wrote.
        probing: Another value is being tried out: files are left alone and fixes are not looked
            for.
    """

    config: Config
    job: Job | None = None
    check_paths: bool = False
    unparsed: frozenset[str] = frozenset()
    origins: Origins = _UNKNOWN
    probing: bool = False

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

    @property
    def path_severity(self) -> Severity:
        """Severity of an absent file: a config may be meant for another machine until it runs."""
        return "error" if self.job is not None or self.check_paths else "warning"

    @property
    def runtime_severity(self) -> Severity:
        """Severity of what this version can plan but not run."""
        return "error" if self.job is not None else "info"

    def blockers(self, one: Rule) -> list[str]:
        """Return the unread keys that surely keep a rule from being checked.

        A key in a section that a rule reads may be none of those that it comes to.
        """
        return [bad for bad in self.unparsed if any(self._blocks(bad, read) for read in one.reads)]

    def _blocks(self, bad: str, read: str) -> bool:
        return touches(read, bad) and not (
            bad.startswith(f"{read}.") and isinstance(self._value_at(read), Section)
        )

    def _value_at(self, path: str) -> object:
        here: object = self.config
        for name in path.split("."):
            here = here.__dict__.get(name) if isinstance(here, Section) else None
        return here

    def applies(self, one: Rule) -> bool:
        """Say whether everything that a rule reads exists for the chosen simulator and policy."""
        return all(self._exists(read) for read in one.reads)

    @cached_property
    def _seen(self) -> dict[str, bool]:
        """Answers of `_exists`: many rules read the same keys."""
        return {}

    def _exists(self, path: str) -> bool:
        if path not in self._seen:
            self._seen[path] = self._look_for(path)
        return self._seen[path]

    def _look_for(self, path: str) -> bool:
        here: object = self.config
        walked = ""
        for name in path.split("."):
            walked = f"{walked}.{name}" if walked else name
            if walked in self.unparsed:
                return True  # nobody can tell
            if not isinstance(here, Section) or name not in type(here).model_fields:
                return False
            here = here.__dict__.get(name)
        return True

    def findings(self) -> list[Finding]:
        """Return what every rule finds that applies and whose keys could be read, by code."""
        return self._outcome[0]

    @property
    def blocked(self) -> dict[str, str]:
        """Rules that could not be checked: code -> the unread key that each needs."""
        found = dict(self._outcome[1])
        for one in RULES.values():
            blockers = self.blockers(one)
            if blockers and self.applies(one):
                found[one.code] = min(blockers, key=lambda key: (len(key), key))
        return found

    @cached_property
    def _outcome(self) -> tuple[list[Finding], dict[str, str]]:
        """What the rules find, and the unread keys that some of them came to."""
        found: list[Finding] = []
        came_to: dict[str, str] = {}
        for code in self._checkable:
            if self.misplaced and code.startswith(_BATCH):
                continue
            try:
                found.extend(RULES[code].check(self))  # keeps what is found before it stops
            except UnreadKeyError as error:
                came_to[code] = error.key
        return found, came_to

    @cached_property
    def _checkable(self) -> list[str]:
        ones = (RULES[code] for code in sorted(RULES))
        return [one.code for one in ones if self.applies(one) and not self.blockers(one)]

    @cached_property
    def misplaced(self) -> str:
        """The first rule that finds the placement wrong: no batch is computed from it then."""
        for code in _PLACED:
            if code in self._checkable:
                found = RULES[code].check(replace(self, probing=True))
                if any(one.severity == "error" for one in found):
                    return code
        return ""

    @property
    def waiting(self) -> dict[str, str]:
        """Batch rules that could not be checked: code -> the broken rule that each waits for."""
        checkable = [code for code in self._checkable if code.startswith(_BATCH)]
        if self.misplaced:
            return dict.fromkeys(checkable, self.misplaced)
        if "JR101" not in checkable or self.shape is None or self.placement is None:
            return {}
        after, same = waiting(self.shape), self.placement.env_ranks
        # On the ranks of the envs these two say what others have said.
        if self.placement.rollout_ranks == same:
            after.pop("JR110", None)
        if self.placement.actor_ranks == same:
            after.pop("JR105", None)
            said = min(violations(self.shape) & {"JR101", "JR102", "JR104"}, default="JR105")
            after = {code: said if first == "JR105" else first for code, first in after.items()}
        return {code: first for code, first in after.items() if code in checkable}

    def fix(self, code: str, *candidates: Change, otherwise: str = "") -> str:
        """Return the changes that work as the text of a fix.

        Args:
            code: The rule that they must satisfy.
            candidates: Changes to try, in the order in which they are told.
            otherwise: The text where none works.
        """
        if self.probing:
            return otherwise
        return told(self.best([one for one in candidates if self.mends(code, one)])) or otherwise

    def best(self, changes: Sequence[Change]) -> list[Change]:
        """Return those of some changes that leave the fewest errors, what the user set first."""
        left = [sum(one.severity == "error" for one in self._after(each)) for each in changes]
        fewest = min(left, default=0)
        found = [one for one, count in zip(changes, left, strict=True) if count == fewest]
        return sorted(found, key=lambda change: min(map(self.origins.distance, change), default=0))

    def settles(self, code: str, change: Change) -> bool:
        """Say whether a change mends a rule, and no error is left that is about its keys."""
        return self.mends(code, change) and not any(
            touches(path, key)
            for one in self._after(change)
            if one.severity == "error"
            for path in one.paths
            for key in change
        )

    def mends(self, code: str, change: Change) -> bool:
        """Say whether a change mends a rule and leads to no new error or warning.

        All rules are run.
        """
        if self.probing or self._changed(change) is None:
            return False
        before, errors_before, warnings_before = counted(self._probe.findings())
        codes, errors, warnings = counted(self._after(change))
        no_worse = errors <= errors_before and warnings <= warnings_before + errors_before
        return codes[code] < before[code] and no_worse

    def _changed(self, change: Change) -> Config | None:
        """Return the config after a change, None where that can't be."""
        try:
            every = self.origins.with_followers(change, self.config)
            config = changed(self.config, every)
        except UnreadKeyError:
            return None
        unread = any(touches(path, bad) for path in every for bad in self.unparsed)
        return None if unread else config

    def _after(self, change: Change) -> list[Finding]:
        """Return what the rules find after a change that can be made."""
        key = repr(sorted(change.items()))
        if key not in self._tried:
            config = self._changed(change)
            assert config is not None, "only what mends something is asked about"
            self._tried[key] = replace(self._probe, config=config).findings()
        return self._tried[key]

    @cached_property
    def _tried(self) -> dict[str, list[Finding]]:
        """What the rules find after changes that were tried: several rules try the same ones."""
        return {}

    @cached_property
    def _probe(self) -> RuleContext:
        return replace(self, probing=True)


def counted(found: Iterable[Finding]) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Return findings by code: all, errors, and warnings."""
    found = list(found)
    errors = Counter(one.code for one in found if one.severity == "error")
    warnings = Counter(one.code for one in found if one.severity == "warning")
    return Counter(one.code for one in found), errors, warnings


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
        reads: Dotted keys or sections. The rule is skipped where one of the keys could not be read,
            and does not apply where the chosen simulator or policy has no such key. Of a section
            only the keys matter that the rule comes to.
        passes: Overrides of a valid config that the rule accepts.
        fails: Overrides that make it report.
        check: The function; its docstring is the rule's page.
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


def amount(count: int, noun: str) -> str:
    """Return for example `1 stage` or `2 stages`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def touches(read: str, bad: str) -> bool:
    """Say whether one of two dotted keys is the other or lies below it."""
    return read == bad or read.startswith(f"{bad}.") or bad.startswith(f"{read}.")
