"""What PyYAML says about broken YAML, as findings: where the mistake begins, and what to write."""

from __future__ import annotations

import re

import yaml

from joyrlinf_core.errors import Finding


def syntax_finding(error: yaml.MarkedYAMLError, text: str, file: str) -> Finding:
    """Return what a reader's error means, at the place where the mistake begins.

    Args:
        error: PyYAML's error.
        text: The whole file.
        file: Its name to show.
    """
    mark = error.problem_mark or error.context_mark
    problem = str(error.problem or error.context or "broken YAML")
    opened = _opened(error, problem)
    if opened is not None:
        return _at_mark(*opened, error.context_mark, text, file)
    if "mapping values" in problem or "expected ':'" in problem:
        found = _missing_space(error, text, file)
        if found is not None:
            return found
    fix = ""
    if "'\\t'" in problem:
        problem, fix = "a tab stands where YAML allows spaces only", "write spaces"
    elif "mapping values are not allowed" in problem:
        fix = "put the value in quotes if it holds ': ', or mend the indentation of this line"
    elif "could not find expected ':'" in problem:
        fix = "write `key: value`"
    elif "another document" in problem:
        message = "the file holds more than one YAML document"
        return _at_mark(message, "keep one, and delete this `---`", mark, text, file)
    elif "undefined alias" in problem:
        fix = "put text that starts with * in quotes"
    if error.context and error.context_mark and error.context not in problem:
        problem = f"{problem} ({error.context}, line {error.context_mark.line + 1})"
    return _at_mark(problem, fix, mark, text, file)


def _opened(error: yaml.MarkedYAMLError, problem: str) -> tuple[str, str] | None:
    """Return message and fix for what is not closed where it should be; None for anything else."""
    context, start, stop = error.context or "", error.context_mark, error.problem_mark
    if start is None or stop is None:
        return None
    if context == "while scanning a quoted scalar" and "unexpected end" in problem:
        return "the quote that opens here is not closed", "close it on the same line"
    brackets = {"while parsing a flow mapping": "{}", "while parsing a flow sequence": "[]"}
    if context in brackets and stop.line > start.line:
        first, last = brackets[context]
        message = f"the `{first}` that opens here is not closed before line {stop.line + 1}"
        return message, f"close it with `{last}`, or put a comma between all values"
    return None


_NO_SPACE = re.compile(r"\s*(?:- +)?([A-Za-z_][\w.]*):([^\s/].*)\Z")
"""A line with a key and a value, but without the space that makes them two."""


def _missing_space(error: yaml.MarkedYAMLError, text: str, file: str) -> Finding | None:
    """Return the finding of a `key:value` at or before the place where reading stopped, if any."""
    lines, mark = text.splitlines(), error.context_mark or error.problem_mark
    if mark is None:
        return None
    at = min(mark.line, len(lines) - 1)
    above = next((n for n in range(at - 1, -1, -1) if lines[n].strip()), at)
    for number in (at, above):
        match = _NO_SPACE.match(lines[number])
        if match is not None:
            message = f"a space is missing behind the colon of `{match[1]}:`"
            fix = f"write `{match[1]}: {match[2].strip()}`"
            column = match.start(1) + 1
            return Finding("JR003", "error", (), message, fix, file, number + 1, column)
    return None


def _at_mark(message: str, fix: str, mark: yaml.Mark | None, text: str, file: str) -> Finding:
    if mark is None:
        return Finding("JR003", "error", (), message, fix, file, 1, 1)
    # A problem at the end of the file is reported on the line after the last.
    line = min(mark.line + 1, max(1, len(text.splitlines())))
    return Finding("JR003", "error", (), message, fix, file, line, mark.column + 1)
