"""From what the user named on the command line to a checked config."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer

from joyrlinf_cli.render.findings import write_findings
from joyrlinf_core.config import presets
from joyrlinf_core.config.loader import NOT_FOUND, SUFFIXES, LoadedConfig, load_config
from joyrlinf_core.errors import ExitCode, Finding, UsageError
from joyrlinf_core.plan.build import check_loaded
from joyrlinf_core.plan.run_plan import Job


def choose(argument: str | None, preset: str | None, config: Path | None) -> str | Path:
    """Return the one source that was named.

    Raises:
        UsageError: None or several were named, or the preset does not exist.
    """
    given = [source for source in (argument, preset, config) if source is not None]
    if len(given) != 1:
        problem = "name a config" if not given else "name one config only"
        raise UsageError(problem, fix="as in `--preset quickstart` or `--config my.yaml`")
    _check_not_empty(argument)
    return preset_file(preset) if preset is not None else given[0]


def _check_not_empty(source: str | Path | None) -> None:
    """Raise `UsageError` for an empty text: as a path it would stand for the current directory."""
    if source == "":
        raise UsageError("the name of the config is empty", fix="is a shell variable unset?")


def preset_file(name: str) -> str:
    """Return a preset name that was given as such, after checking that it exists.

    Raises:
        UsageError: There is no such preset.
    """
    if presets.find(name) is None:
        near = presets.nearest(name)
        fix = f"did you mean {' or '.join(near)}?" if near else "see `joyrl presets list`"
        raise UsageError(f"no preset named '{name}'", fix=fix)
    return name


def resolve(
    argument: str | None,
    preset: str | None,
    config: Path | None,
    sets: Sequence[str] | None,
    *,
    job: Job | None = None,
    as_json: bool = False,
    document_tells: bool = False,
) -> LoadedConfig:
    """Load the config that the user named; `config` of the result is never None.

    Writes every finding to standard error, or once into a JSON document, and ends the command with
    exit code 3 if one of them is an error.

    Args:
        argument: Bare CONFIG argument: preset name or file.
        preset: `--preset`.
        config: `--config`.
        sets: `--set` arguments.
        job: What will run; `eval` and `sft` ask for other files than a training run.
        as_json: Print the findings as one JSON document instead if one of them is an error.
        document_tells: The JSON document of the command holds the findings in any case.

    Raises:
        UsageError: No config, several, or one that does not exist was named.
    """
    loaded = load_config(choose(argument, preset, config), tuple(sets or ()))
    for finding in loaded.findings:
        if finding.code == NOT_FOUND:
            raise UsageError(finding.message, fix=finding.fix)
    findings = check_loaded(loaded, job)
    broken = any(finding.severity == "error" for finding in findings)
    if not (as_json and (broken or document_tells)):
        write_findings(findings, loaded.source_map, sys.stderr, summary=loaded.source)
    if broken:
        if as_json:
            told = [finding.to_json() for finding in findings]
            print(json.dumps({"schema": 1, "ok": False, "findings": told}, indent=2))
        raise typer.Exit(ExitCode.CONFIG_INVALID)
    return loaded


def load_all(
    arguments: Sequence[str] | None,
    preset: str | None,
    config: Path | None,
    sets: Sequence[str] | None,
) -> Iterator[LoadedConfig]:
    """Load every config that was named; a folder stands for the YAML files in it.

    What does not exist is a finding, so that it does not hide what is wrong with the others.

    Raises:
        UsageError: No config was named, or `--preset` names none.
    """
    sources: list[str | Path] = list(arguments or ())
    if preset is not None:
        sources.append(preset_file(preset))
    if config is not None:
        sources.append(config)
    if not sources:
        raise UsageError("name a config", fix="as in `joyrl validate my.yaml presets/`")
    for source in sources:
        _check_not_empty(source)
        folder = Path(source)
        if not folder.is_dir() or (isinstance(source, str) and presets.find(source)):
            yield load_config(source, tuple(sets or ()))
            continue
        files = sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES)
        if not files:
            message = f"the folder {source} holds no YAML file"
            finding = Finding(NOT_FOUND, "error", (), message, "name another folder", str(source))
            yield LoadedConfig(str(source), None, findings=(finding,))
        for path in files:
            yield load_config(path, tuple(sets or ()))
