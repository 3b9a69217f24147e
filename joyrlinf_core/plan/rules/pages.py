"""`docs/rules.md` and `joyrl explain`: a page for each code, made from docstrings."""

from __future__ import annotations

import difflib
import inspect
from dataclasses import dataclass

from joyrlinf_core.plan.rules import RULES
from joyrlinf_core.plan.rules.other_codes import OTHER_CODES

_CHAPTERS = {
    "JR0": "Reading a config",
    "JR1": "Batch arithmetic",
    "JR2": "Placement and modes",
    "JR3": "Algorithm",
    "JR4": "Policy and its files",
    "JR5": "Run length, evaluation, saving, profiling",
    "JR6": "Warnings of a running job",
    "JR7": "Simulators",
    "JR8": "Keys without effect",
    "JR9": "Estimates",
}

_HEAD = """\
# Rules

<!-- Made from docstrings by `make docs`; change those. -->

`joyrl validate` checks a config against all of these at once, in a fraction of a second and without
torch. `joyrl explain CODE` prints one page. The values that a finding suggests were checked:
applied alone, they mend it and lead to no new error or warning. A rule does not apply where the
chosen simulator or policy has no such key.
"""


@dataclass(frozen=True)
class Page:
    """What a code means.

    Attributes:
        code: The code.
        title: What must hold, one sentence without the full stop.
        body: Why, and an example; Markdown.
        reads: Keys that the rule looks at; empty for codes that are no rules.
    """

    code: str
    title: str
    body: str
    reads: tuple[str, ...] = ()

    @property
    def markdown(self) -> str:
        """The page as a part of `docs/rules.md`."""
        parts = [f"### {self.code}: {self.title}", self.body]
        if self.reads:
            parts.append(f"Reads {', '.join(f'`{key}`' for key in self.reads)}.")
        return "\n\n".join(part for part in parts if part) + "\n"


def codes() -> list[str]:
    """Return every code, sorted."""
    return sorted([*RULES, *OTHER_CODES])


def page(code: str) -> Page | None:
    """Return the page of a code, None if there is no such code."""
    if code in RULES:
        rule = RULES[code]
        return _page(code, rule.check.__doc__ or "", rule.reads)
    if code in OTHER_CODES:
        return _page(code, OTHER_CODES[code], ())
    return None


def _page(code: str, text: str, reads: tuple[str, ...]) -> Page:
    title, _, body = inspect.cleandoc(text).partition("\n\n")
    return Page(code, " ".join(title.split()).removesuffix("."), body.strip(), reads)


def nearest(code: str) -> list[str]:
    """Return at most three codes that look like an unknown one."""
    wanted = code.upper()
    similar = difflib.get_close_matches(wanted, codes(), n=20, cutoff=0.6)

    def first_difference(code: str) -> int:
        pairs = zip(code, wanted, strict=False)
        return next((place for place, (a, b) in enumerate(pairs) if a != b), len(wanted))

    # What a code is about is in its first digits.
    return sorted(similar, key=first_difference, reverse=True)[:3]


def document() -> str:
    """Return `docs/rules.md`."""
    parts = [_HEAD]
    pages = [found for code in codes() if (found := page(code)) is not None]
    for prefix, chapter in _CHAPTERS.items():
        parts.append(f"## {chapter}\n")
        parts.extend(one.markdown for one in pages if one.code.startswith(prefix))
    return "\n".join(parts)
