"""Schema check of a merged tree: pydantic's errors become findings with places.

When something is wrong, whatever else is right is still built, so that the rules of `plan/rules/`
can look at it in the same run.
"""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from joyrlinf_core.config.foreign_keys import FOREIGN_KEYS, INTERPOLATION
from joyrlinf_core.config.help_texts import help_texts
from joyrlinf_core.config.keys import CHOICES, class_at, suggest
from joyrlinf_core.config.partial import NAMED_KEY, build_partial, narrowed
from joyrlinf_core.config.schema import Config
from joyrlinf_core.config.schema.base import Section
from joyrlinf_core.config.source_map import Located, SourceMap, at_location, plain
from joyrlinf_core.config.yaml_tree import MAX_INT
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
    findings, unparsed = _check_scalars(data, sources)
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
    wrong = [path for path in by_path if path not in unparsed]
    told: set[str] = set()
    for path in wrong[:MAX_FINDINGS]:
        if by_path[path][0]["type"] == "extra_forbidden":
            finding, targets = _unknown_key(path, by_path[path][0], data, sources, told)
        else:
            finding, targets = _finding(path, by_path[path], data, sources), ()
        findings.append(finding)
        unparsed.update((path, *targets))
    if len(wrong) > MAX_FINDINGS:
        message = f"and {len(wrong) - MAX_FINDINGS} more problems, the first of them here"
        finding = Finding("JR011", "error", (wrong[MAX_FINDINGS],), message)
        findings.append(at_location(finding, sources.locate(wrong[MAX_FINDINGS])))
    unparsed.update(_error_path(one, data) for one in errors)
    partial = build_partial(data, unparsed)
    return Checked(None, partial, frozenset(unparsed), tuple(findings))


def is_missing(finding: Finding) -> bool:
    """Say whether a finding is about a key that nobody set."""
    return finding.code == "JR010" or (finding.code == "JR013" and "must name" in finding.message)


def _check_scalars(data: object, sources: SourceMap) -> tuple[list[Finding], set[str]]:
    """Refuse what pydantic lets through: a bool as a number, NaN and infinity."""
    findings: list[Finding] = []
    bad: set[str] = set()
    classes: dict[str, type[Section] | None] = {}
    for path, node in sources.entries.items():
        if not isinstance(node.value, (str, int, float)):
            continue
        section, _, name = path.rpartition(".")
        if section not in classes:
            classes[section] = class_at(section, data)
        reason = _scalar_problem(node.value, _plain_types(classes[section], name))
        if reason:
            bad.add(path)
            twin = sources.exact(path.replace("env.eval.", "env.train.", 1))
            if path.startswith("env.eval.") and twin is not None and twin.at == node.at:
                continue  # inherited, and told of where it was written
            message, fix = f"`{path}: {_shown(node.value)}` {reason}", ""
            if isinstance(node.value, str) and INTERPOLATION in node.value:
                fix = "write the value itself"
            elif "true or false" in reason:
                fix = _BOOL_WORDS.get(str(node.value).lower(), "")
            finding = Finding("JR011", "error", (path,), message, fix)
            findings.append(at_location(finding, node.at))
    return findings, bad


_BOOL_WORDS = {
    **dict.fromkeys(("yes", "y", "on", "1", "true", "t"), "write `true`"),
    **dict.fromkeys(("no", "n", "off", "0", "false", "f"), "write `false`"),
}
"""What is often meant by a word or number that is no truth value in YAML 1.2."""


def _plain_types(cls: type[Section] | None, name: str) -> frozenset[Any]:
    """Return the types of a key that takes scalars."""
    if cls is None or name not in cls.model_fields:
        return frozenset()
    annotation: Any = cls.model_fields[name].annotation
    return frozenset(getattr(annotation, "__args__", (annotation,)))


def _scalar_problem(value: str | float, types: frozenset[Any]) -> str:
    """Return why a key of these types can't hold a value, empty if it may."""
    number = bool(types & {int, float}) and bool not in types
    if types and isinstance(value, str) and INTERPOLATION in value:
        return "refers to another value, and joyrl fills in none"
    if isinstance(value, bool):
        return "must be a number" if number else ""
    if isinstance(value, float) and not math.isfinite(value):
        return "is no finite number"
    if bool in types:
        return "must be true or false"
    if isinstance(value, str):
        digits = value.strip().lstrip("+-")
        too_large = number and str not in types and digits.isdecimal() and len(digits) > 18
    else:
        too_large = int in types and float not in types and abs(value) > MAX_INT
    return "is beyond 64 bits" if too_large else ""


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
    section, _, name = path.rpartition(".")
    hint = suggest(path, data, sources.written_beside(path))
    message = f"unknown key `{name}`" + (f" in `{section}`" if section else "")
    fix = hint.text or "delete it"
    cls = class_at(section, data)
    if "." in str(error["loc"][-1]):
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
        finding = Finding("JR010", "error", (path,), message, text and f"set it: {text}")
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
    message, fix = _value_message(path, errors)
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


def _value_message(path: str, errors: list[ErrorDetails]) -> tuple[str, str]:
    """Return message and fix for a value of the wrong type or out of range."""
    value = errors[0]["input"]
    shown = _shown(value)
    reasons = list(dict.fromkeys(_reason(one) for one in errors))
    reason = " or ".join([*reasons[:1], *(one.removeprefix("must be ") for one in reasons[1:])])
    message = f"`{path}: {shown}` {reason}" if path else f"the config {reason}"
    if errors[0]["type"] == "value_error" and isinstance(value, dict):
        message = reason  # of several keys, which it names
    fix = ""
    expected = str(errors[0].get("ctx", {}).get("expected", ""))
    if errors[0]["type"] == "literal_error" and isinstance(value, str):
        known = re.findall(r"'([^']*)'", expected)
        near = difflib.get_close_matches(value, known, n=1, cutoff=0.6)
        fix = f"did you mean `{near[0]}`?" if near else ""
    elif errors[0]["type"] == "model_type" and value is None:
        fix = f"delete the line, or write `{path.rpartition('.')[2]}: {{}}`"
    elif errors[0]["type"] == "string_type" and isinstance(value, (int, float)):
        fix = "put it in quotes"
    elif isinstance(value, list) and path.startswith("cluster.component_placement."):
        ranks = [str(rank) for rank in cast("list[object]", value)]
        fix = f"ranks are one text: write `{','.join(ranks)}`" if ranks else "write ranks, as 0-3"
    elif value is None and path.startswith("cluster.component_placement."):
        # `{env,rollout: 0-3}` is two keys in YAML.
        fix = "set ranks such as 0-3; between braces a key with commas needs quotes"
    return message, fix


def _shown(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "{...}"
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


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
    text = error["msg"].removeprefix("Value error, ")
    return text.replace("Input should be", "must be").replace("Input should", "must")
