"""Load a config: field defaults < `extends` < file < `--set`.

Every problem becomes a finding with file, line and column, and all of them come at once.
"""

from __future__ import annotations

import os
import select
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from joyrlinf_core.config import presets
from joyrlinf_core.config.merge import inherit_eval, merge
from joyrlinf_core.config.overrides import parse_overrides
from joyrlinf_core.config.schema import Config
from joyrlinf_core.config.source_map import Located, Location, SourceMap, at_location
from joyrlinf_core.config.validate import check_schema, is_missing
from joyrlinf_core.config.yaml_tree import MAX_BYTES, read_tree
from joyrlinf_core.errors import Finding

SUFFIXES = (".yaml", ".yml")
"""Names with these endings are files; other names may be presets."""

_PIPE_SECONDS = 5

NOT_FOUND = "JR001"
"""Code of the finding that a named preset or file does not exist."""


@dataclass(frozen=True)
class LoadedConfig:
    """A config as it was read.

    Attributes:
        source: Preset name or path, as given.
        config: The config; None when there is an error.
        partial: What could be read of it; None when nothing could.
        unparsed: Dotted keys that `partial` lacks or holds a wrong value for; `extends` where the
            base could not be read.
        findings: Problems of reading and of the schema. The rules of `plan/rules/` add theirs.
        source_map: Where each value was written.
    """

    source: str
    config: Config | None
    partial: Config | None = None
    unparsed: frozenset[str] = frozenset()
    findings: tuple[Finding, ...] = ()
    source_map: SourceMap = field(default_factory=SourceMap)

    @property
    def is_absent(self) -> bool:
        """Whether there is no such preset or file."""
        return any(finding.code == NOT_FOUND for finding in self.findings)


def load_config(source: str | Path, overrides: Sequence[str] = ()) -> LoadedConfig:
    """Load a config from a preset or a file.

    Args:
        source: Preset name or file path; a `Path` is always a file.
        overrides: `--set` arguments, `a.b=c`.

    Raises:
        UsageError: An override is malformed.
    """
    name = str(source)
    layer = parse_overrides(overrides)
    found = _find(source)
    if isinstance(found, Finding):
        return LoadedConfig(name, None, findings=(found,))
    findings: list[Finding] = []
    tree = _read_chain(found, findings, ())
    if tree is None:
        return LoadedConfig(name, None, findings=tuple(findings))
    whole = inherit_eval(merge(tree, layer) if layer is not None else tree)
    # The root keeps the place of the file, so that the map knows which file is the user's own.
    whole = Located(whole.value, tree.at, tree.key)
    sources = SourceMap.of(whole)
    checked = check_schema(whole, sources)
    # What a broken base would have set is not missing.
    cut = any(finding.severity == "error" for finding in findings)
    findings.extend(f for f in checked.findings if not (cut and is_missing(f)))
    config = None if any(f.severity == "error" for f in findings) else checked.config
    unparsed = checked.unparsed
    if any("extends" in finding.paths for finding in findings):
        unparsed |= {"extends"}
    return LoadedConfig(name, config, checked.partial, unparsed, tuple(findings), sources)


def shown_path(path: Path) -> str:
    """Return a path as messages show it: relative where it lies below the working directory."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def _find(source: str | Path) -> Path | Finding:
    """Return the file that a source names, or a finding that there is none."""
    name = str(source)
    is_path = isinstance(source, Path) or name.endswith(SUFFIXES)
    if not is_path:
        preset = presets.find(name)
        if preset is not None:
            return preset
    path = Path(source)
    try:
        if path.is_dir():
            message = f"{name} is a directory, not a config file"
            return Finding(NOT_FOUND, "error", (), message, "name one of the files in it", name)
        if path.exists():
            return path
    except OSError as error:
        reason = error.strerror or type(error).__name__
        return Finding(NOT_FOUND, "error", (), f"can't look for {name}: {reason}", "", name)
    if is_path:
        near = [p.name for p in path.parent.glob("*") if p.suffix in SUFFIXES][:5]
        place = shown_path(path.parent)
        fix = f"the folder {place} holds {', '.join(sorted(near))}" if near else "check the path"
        return Finding(NOT_FOUND, "error", (), f"no file {name}", fix, name)
    return Finding(NOT_FOUND, "error", (), f"no preset or file named '{name}'", _preset_fix(name))


def _preset_fix(name: str) -> str:
    near = presets.nearest(name)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return "joyrl presets list shows all presets"


def _read_chain(path: Path, findings: list[Finding], above: tuple[Path, ...]) -> Located | None:
    """Read a file and, below it, what it extends; None if there is no mapping to go on with."""
    tree = _read_file(path, findings)
    if tree is None or not isinstance(tree.value, dict):
        return None
    extends = tree.value.pop("extends", None)
    if extends is None:
        return tree
    base_path = _base_path(extends, path, (*above, path), findings)
    base = _read_chain(base_path, findings, (*above, path)) if base_path is not None else None
    if base is None or not isinstance(base.value, dict):
        return tree
    # A description belongs to the preset that it describes, not to what is made from it.
    base.value.pop("meta", None)
    return merge(base, tree)


def _base_path(
    extends: Located, path: Path, chain: tuple[Path, ...], findings: list[Finding]
) -> Path | None:
    """Return the file that `extends` names; None, with a finding, if it can't be followed."""

    def report(message: str, fix: str = "") -> None:
        finding = Finding("JR007", "error", ("extends",), message, fix)
        findings.append(at_location(finding, extends.at))

    name = extends.value
    if not isinstance(name, str):
        report("`extends` takes the name of one preset or file")
        return None
    if name.endswith(SUFFIXES):
        base = path.parent / name
        if not base.is_file():
            report(f"`extends: {name}`: no such file beside {shown_path(path)}", "mend the path")
            return None
    else:
        found = presets.find(name)
        if found is None:
            report(f"`extends: {name}`: no such preset", _preset_fix(name))
            return None
        base = found
    if base.resolve() in {one.resolve() for one in chain}:
        names = " -> ".join(one.name for one in (*chain, base))
        report(f"`extends` goes round in a circle: {names}")
        return None
    return base


def _read_file(path: Path, findings: list[Finding]) -> Located | None:
    shown = shown_path(path)
    try:
        raw = _read_bytes(path)
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        fix = "save it as a file and name that" if path.exists() and not path.is_file() else ""
        findings.append(Finding("JR002", "error", (), f"can't read {shown}: {reason}", fix, shown))
        return None
    before = len(findings)
    tree = read_tree(raw, shown, findings)
    if tree is not None and isinstance(tree.value, dict):
        return tree
    if len(findings) > before:
        return None
    fix = "start from a preset: joyrl presets copy quickstart"
    if tree is None or tree.value is None:
        message = "the file is empty" if tree is None else "the file holds nothing"
        findings.append(Finding("JR006", "error", (), message, fix, shown, 1, 1))
        return None
    kind = "a list" if isinstance(tree.value, list) else "a single value"
    start = Location(shown, tree.at.line, tree.at.column, tree.at.text)
    message = f"the file holds {kind} where sections such as `env:` and `actor:` are expected"
    findings.append(at_location(Finding("JR006", "error", (), message, fix), start))
    return None


def _read_bytes(path: Path) -> bytes:
    """Return at most `MAX_BYTES + 1` bytes of a file or, within a few seconds, of a pipe.

    Raises:
        OSError: It can't be read, is a device, or its writer is silent.
    """
    mode = path.stat().st_mode
    if stat.S_ISREG(mode):
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    if not stat.S_ISFIFO(mode):
        raise OSError("it is neither a file nor a pipe")
    # Without O_NONBLOCK a named pipe that nobody writes to would wait forever.
    pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    deadline = time.monotonic() + _PIPE_SECONDS
    try:
        parts: list[bytes] = []
        while sum(map(len, parts)) <= MAX_BYTES:
            if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise OSError(f"the pipe was silent for {_PIPE_SECONDS} seconds")
            parts.append(os.read(pipe, 1 << 16))
            if not parts[-1]:
                break
        return b"".join(parts)
    finally:
        os.close(pipe)
