"""Schema check of a merged tree: pydantic's errors become findings with places.

When something is wrong, whatever else is right is still built, so that the rules of `plan/rules/`
can look at it in the same run.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from joyrlinf_core.config.foreign_keys import FOREIGN_KEYS
from joyrlinf_core.config.help_texts import help_texts
from joyrlinf_core.config.keys import CHOICES, class_at, suggest
from joyrlinf_core.config.partial import NAMED_KEY, build_partial, narrowed
from joyrlinf_core.config.scalars import check_scalars, shown
from joyrlinf_core.config.schema import Config
from joyrlinf_core.config.source_map import SET_ORIGIN, Located, SourceMap, at_location, plain
from joyrlinf_core.errors import Finding

MAX_FINDINGS = 50
"""Problems of the schema that are told one by one; the rest is counted."""


@dataclass(frozen=True)
class Checked:
    """Result of the schema check.

    Attributes:
        config: The config, None when anything is wrong.
        partial: The config without what is wrong; attributes that could not be read are missing.
        unparsed: Dotted keys that `partial` does not hold, or holds a wrong value for.
        findings: What is wrong.
    """

    config: Config | None
    partial: Config
    unparsed: frozenset[str]
    findings: tuple[Finding, ...]


def check_schema(tree: Located, sources: SourceMap) -> Checked:
    """Check a tree against the schema.

    Args:
        tree: All layers merged; the root is a mapping.
        sources: The same tree by path.
    """
    data = plain(tree)
    findings, unparsed = check_scalars(data, sources)
    errors: list[ErrorDetails] = []
    try:
        config = Config.model_validate(data)
        if not findings:
            return Checked(config, config, frozenset(), ())
    except ValidationError as error:
        errors = [narrowed(one) for one in error.errors(include_url=False)]
    # Several errors at one place are the branches of a union: one finding.
    by_path: dict[str, list[ErrorDetails]] = {}
    twins = {(one["loc"], one["type"]) for one in errors if one["loc"][:2] == ("env", "train")}
    for one in errors:
        if not _is_inherited(one, twins, sources):
            by_path.setdefault(_error_path(one, data), []).append(one)
    unknown = {path for path, ones in by_path.items() if ones[0]["type"] == "extra_forbidden"}
    wrong = sorted((path for path in by_path if path not in unparsed), key=_order(sources))
    told: set[str] = set()
    for path in wrong[:MAX_FINDINGS]:
        if path in unknown:
            finding, targets = _unknown_key(path, by_path[path][0], data, sources, told)
        else:
            finding, targets = _finding(path, by_path[path], data, sources), ()
        findings.append(finding)
        unparsed.update((path, *targets))
    if len(wrong) > MAX_FINDINGS:
        findings.append(_rest(wrong[MAX_FINDINGS:], unknown, sources))
    unparsed.update(_error_path(one, data) for one in errors)
    partial = build_partial(data, unparsed)
    # No rule reads a key that there is not; the keys that it may stand for are in the set.
    unparsed -= unknown
    findings.sort(key=lambda finding: _order(sources)(finding.paths[0]))
    return Checked(None, partial, frozenset(unparsed), tuple(findings))


def _order(sources: SourceMap) -> Callable[[str], tuple[int, str, int, int]]:
    """Return the key that sorts dotted paths as they were written: `--set`, own file, its bases."""
    root = sources.exact("")
    ranks = {SET_ORIGIN: 0, root.key.file if root is not None else "": 1}

    def place(path: str) -> tuple[int, str, int, int]:
        at = sources.locate(path)
        if at is None:
            return 3, "", 0, 0
        return ranks.get(at.file, 2), at.file, at.line, at.column

    return place


def _rest(wrong: list[str], unknown: set[str], sources: SourceMap) -> Finding:
    """Return the finding that counts the problems which are not told one by one."""
    first, count = wrong[0], len(wrong)
    every = all(path in unknown for path in wrong)
    what = "unknown key" if every else "problem"
    plural, here = ("s", "the first of them here") if count > 1 else ("", "here")
    message = f"and {count} more {what}{plural}, {here}"
    finding = Finding("JR012" if every else "JR011", "error", (first,), message)
    return at_location(finding, sources.locate(first))


def is_missing(finding: Finding) -> bool:
    """Say whether a finding is about a key that nobody set."""
    return finding.code == "JR010" or (finding.code == "JR013" and "must name" in finding.message)


def _is_inherited(
    error: ErrorDetails, train_errors: set[tuple[Any, str]], sources: SourceMap
) -> bool:
    """Say whether an error of `env.eval` only repeats one of `env.train`."""
    loc = error["loc"]
    if loc[:2] != ("env", "eval"):
        return False
    if error["type"] == "missing_name" and train_errors:
        return True
    twin = ("env", "train", *loc[2:])
    if (twin, error["type"]) not in train_errors:
        return False
    own = sources.exact(".".join(str(part) for part in loc))
    train = sources.exact(".".join(str(part) for part in twin))
    return own is None or len(loc) == 2 or (train is not None and own.at == train.at)


def _error_path(error: ErrorDetails, data: object) -> str:
    """Return the config key of an error, without pydantic's tags of union branches."""
    names: list[str] = []
    here: object = data
    for part in error["loc"]:
        if isinstance(here, dict) and part in here:
            here = cast("dict[Any, object]", here)[part]
        elif isinstance(here, list) and part in range(len(cast("list[object]", here))):
            here = cast("list[object]", here)[int(part)]
        elif isinstance(here, dict) and error["type"] == "value_error":
            here = None  # a default that does not go with another key
        elif error["type"] != "missing":
            break
        names.append(str(part))
    path = ".".join(names)
    if error["type"] in ("missing_name", "unknown_name") and path in CHOICES:
        path = f"{path}.{CHOICES[path][1]}"
    return path


def _unknown_key(
    path: str, error: ErrorDetails, data: object, sources: SourceMap, told: set[str]
) -> tuple[Finding, tuple[str, ...]]:
    """Return the finding of a key that its section lacks, and the keys that it may stand for.

    Args:
        path: The key.
        error: Pydantic's error.
        data: The whole config as plain data.
        sources: Where it was written.
        told: Sections whose keys were listed already; grows.
    """
    name = str(error["loc"][-1])
    section = path.removesuffix(name).rstrip(".")
    hint = suggest(path, data, sources.written_beside(path))
    message = f"unknown key `{name}`" + (f" in `{section}`" if section else "")
    fix = hint.text or "delete it"
    cls = class_at(section, data)
    if "." in name and not name.replace(".", "").isdigit():
        fix = "keys are nested in a file: one section a line; dots are for --set"
    elif name == "extends":
        fix = "`extends` stands at the top of a file; on the command line use --preset"
    elif not hint.text and cls is not None and section not in told:
        told.add(section)
        fix += f"; allowed here: {', '.join(cls.model_fields)}"
    finding = Finding("JR012", "error", (path,), message, fix)
    return at_location(finding, sources.locate(path)), hint.targets


def _finding(path: str, errors: list[ErrorDetails], data: object, sources: SourceMap) -> Finding:
    """Return the finding of one place."""
    kind = errors[0]["type"]
    section, _, name = path.rpartition(".")
    if kind == "missing":
        message = f"`{path}` is required"
        cls = class_at(section, data)
        text = help_texts(cls).get(name, "") if cls is not None else ""
        finding = Finding("JR010", "error", (path,), message, text and f"set `{name}`, {text}")
        return at_location(finding, sources.locate(path))
    if kind in ("missing_name", "unknown_name"):
        known = str(errors[0].get("ctx", {}).get("known", "")).split(", ")
        value = errors[0]["input"]
        given = (
            str(cast("dict[str, object]", value).get(name, "")) if isinstance(value, dict) else ""
        )
        near = difflib.get_close_matches(given, known, n=1, cutoff=0.6)
        fix = f"did you mean `{near[0]}`?" if near else _foreign_fix(name, cast("Any", value))
        finding = Finding("JR013", "error", (path,), errors[0]["msg"], fix)
        return at_location(finding, sources.locate(path, value=True))
    written = sources.locate(path)
    is_set = written is not None and written.file == SET_ORIGIN
    message, fix = _value_message(path, errors, is_set=is_set)
    # Of two keys that don't go together the user may have written the other one.
    named = (f"{section}.{key}" for key in NAMED_KEY.findall(message))
    others = dict.fromkeys(key for key in named if key != path and sources.exact(key))
    finding = sources.place(Finding("JR011", "error", (path, *others), message, fix))
    return at_location(finding, sources.locate(finding.paths[0], value=True))


def _foreign_fix(name: str, section: Any) -> str:
    """Return what to write where a section has another toolkit's key for the one it lacks."""
    if not isinstance(section, dict):
        return ""
    keys = [key for key, one in FOREIGN_KEYS.items() if one.target == name and key in section]
    return f"{FOREIGN_KEYS[keys[0]].text} for `{keys[0]}`" if keys else ""


def _value_message(path: str, errors: list[ErrorDetails], *, is_set: bool) -> tuple[str, str]:
    """Return message and fix for a value of the wrong type or out of range.

    Args:
        path: The key.
        errors: Pydantic's errors.
        is_set: The value comes from `--set`.
    """
    value = errors[0]["input"]
    reasons = list(dict.fromkeys(_reason(one) for one in errors))
    reason = " or ".join([*reasons[:1], *(one.removeprefix("must be ") for one in reasons[1:])])
    fix = ""
    if errors[0]["type"] == "value_error":
        reason, fix = _parted(reason)
    message = f"`{path}: {shown(value)}` {reason}" if path else f"the config {reason}"
    if errors[0]["type"] == "value_error" and isinstance(value, dict):
        message = reason  # of several keys, which it names
    return message, fix or _value_fix(path, errors[0], is_set=is_set)


def _parted(reason: str) -> tuple[str, str]:
    """Return what a validator says in front of its last semicolon, and the advice behind it."""
    head, _, tail = reason.rpartition("; ")
    advises = tail.startswith(("use ", "set ", "did you mean ", "known: "))
    return (head, tail) if head and advises else (reason, "")


def _value_fix(path: str, error: ErrorDetails, *, is_set: bool) -> str:
    """Return what to write instead, empty where nothing can be suggested."""
    value, kind, name = error["input"], error["type"], path.rpartition(".")[2]
    expected = str(error.get("ctx", {}).get("expected", ""))
    in_placement = path.startswith("cluster.component_placement.")
    if kind == "literal_error" and isinstance(value, str):
        known = re.findall(r"'([^']*)'", expected)
        near = difflib.get_close_matches(value, known, n=1, cutoff=0.6)
        return f"did you mean `{near[0]}`?" if near else ""
    if kind == "model_type" and value is None:
        if is_set:
            return f"leave it out, or set the keys in it: --set {path}.KEY=VALUE"
        return f"delete the line, or write `{name}: {{}}`"
    if kind == "model_type" and isinstance(value, str) and _NO_SPACE.match(value):
        return f"a space is missing: write `{value.replace(':', ': ', 1)}`"
    if kind == "string_type" and isinstance(value, (int, float)):
        return "put it in quotes"
    if isinstance(value, list) and in_placement:
        ranks = [str(rank) for rank in cast("list[object]", value)]
        return f"ranks are one text: write `{','.join(ranks)}`" if ranks else "write ranks, as 0-3"
    if value is None and in_placement:
        # `{env,rollout: 0-3}` is two keys in YAML.
        return "set ranks such as 0-3; between braces a key with commas needs quotes"
    return ""


_NO_SPACE = re.compile(r"[A-Za-z_]\w*:\S")
"""A key and a value without the space that makes them two."""

_REASONS = {
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "model_type": "must be a section of keys",
    "dict_type": "must be a section of keys",
    "tuple_type": "must be a list",
}


def _reason(error: ErrorDetails) -> str:
    text = _REASONS.get(error["type"])
    if text is not None:
        return text
    context = error.get("ctx", {})
    if error["type"] == "too_few":
        return f"has too few items: {context['count']}"
    if error["type"] == "string_too_long":
        return f"must have at most {context['max_length']} letters"
    if error["type"] in ("too_short", "too_long"):
        few = error["type"] == "too_short"
        count = int(context["min_length" if few else "max_length"])
        items = f"{count} item{'s' if count > 1 else ''}"
        bound = "at least" if few else "at most"
        return f"must have {bound} {items}, not {context['actual_length']}"
    text = error["msg"].removeprefix("Value error, ")
    return text.replace("Input should be", "must be").replace("Input should", "must")
