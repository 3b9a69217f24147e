"""`joyrl config`: look at a config as joyrl reads it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from joyrlinf_cli.options import (
    ConfigArgument,
    ConfigOption,
    JsonOption,
    LogPathOption,
    PresetOption,
    SetOption,
)
from joyrlinf_core.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from joyrlinf_core.config.diff import Difference
    from joyrlinf_core.config.schema import Config
    from joyrlinf_core.config.source_map import Location, SourceMap

app = typer.Typer(help="Look at a config as joyrl reads it.", no_args_is_help=True)

SideArgument = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE", help="Preset, config file, run directory or `latest`.", show_default=False
    ),
]


@app.callback()
def group() -> None:
    """Look at a config as joyrl reads it."""


@app.command("show")
def show(
    argument: ConfigArgument = None,
    preset: PresetOption = None,
    config: ConfigOption = None,
    sets: SetOption = None,
    with_origin: Annotated[
        bool, typer.Option("--origin", help="Say behind each value where it was set.")
    ] = False,
) -> None:
    """Print the resolved config, defaults included."""
    from joyrlinf_cli.configs import resolve
    from joyrlinf_core.config.dump import dump_config

    loaded = resolve(argument, preset, config, sets)
    assert loaded.config is not None, "resolve ends the command otherwise"
    text = dump_config(loaded.config)
    print(_with_origin(text, loaded.source_map) if with_origin else text, end="")


def _with_origin(text: str, sources: SourceMap) -> str:
    """Return the dump with a comment behind each value."""
    from joyrlinf_core.config.source_map import SourceMap
    from joyrlinf_core.config.yaml_tree import read_tree

    tree = read_tree(text, "dump", [])
    assert tree is not None, "the dump is a mapping"
    lines = text.splitlines()
    width = max(len(line) for line in lines)
    for path, node in SourceMap.of(tree).entries.items():
        if (node.value and isinstance(node.value, dict)) or path.rpartition(".")[2].isdigit():
            continue
        row = node.key.line - 1
        lines[row] = f"{lines[row]:<{min(width, 60)}}  # {_origin(path, sources)}"
    return "\n".join(lines) + "\n"


def _origin(path: str, sources: SourceMap) -> str:
    """Return where a value comes from: `--set`, `file:line`, `preset NAME:line` or `default`."""
    written = sources.exact(path)
    if written is None:
        return "default"
    twin = sources.exact(path.replace("env.eval.", "env.train.", 1))
    inherited = path.startswith("env.eval.") and twin is not None and twin.key == written.key
    return _place(written.key) + (" (env.train)" if inherited else "")


def _place(location: Location) -> str:
    from joyrlinf_core.config import presets
    from joyrlinf_core.config.source_map import SET_ORIGIN

    if location.file == SET_ORIGIN:
        return SET_ORIGIN
    preset = presets.name_of(Path(location.file))
    return f"{f'preset {preset}' if preset else location.file}:{location.line}"


@app.command("diff")
def diff(
    a: SideArgument,
    b: SideArgument,
    log_path: LogPathOption = "results",
    with_exit_code: Annotated[
        bool, typer.Option("--exit-code", help="End with 1 if they differ, for scripts.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print what differs between two configs, defaults filled in.

    Exit code 0, also if they differ, unless `--exit-code` is given; 2 for a source that does not
    exist, 3 for an invalid one.
    """
    from joyrlinf_core.config.diff import differences

    found = differences(_load_side(a, log_path), _load_side(b, log_path))
    if as_json:
        rows = [one.to_json() for one in found]
        print(json.dumps({"schema": 1, "equal": not found, "differences": rows}, indent=2))
    elif found:
        print("\n".join([f"--- {a}", f"+++ {b}", *_difference_lines(found)]))
    raise typer.Exit(1 if found and with_exit_code else ExitCode.OK)


def _load_side(source: str, log_path: str) -> Config:
    """Return the config of a preset, file or run, or end the command."""
    from joyrlinf_cli.render.findings import write_findings
    from joyrlinf_core.config import presets
    from joyrlinf_core.config.loader import NOT_FOUND, load_config

    path: str | Path = source
    if presets.find(source) is None and (source == "latest" or Path(source).is_dir()):
        from joyrlinf_core.launcher.run_directory import find_run

        path = find_run(source, root=Path(log_path)).config
    loaded = load_config(path)
    if loaded.config is not None:
        return loaded.config
    for finding in loaded.findings:
        if finding.code == NOT_FOUND:
            raise UsageError(finding.message, fix=finding.fix)
    write_findings(loaded.findings, loaded.source_map, sys.stderr, summary=source)
    raise typer.Exit(ExitCode.CONFIG_INVALID)


def _difference_lines(found: list[Difference]) -> list[str]:
    """Return the differences, one a line, below the name of their section."""
    from joyrlinf_core.config.dump import inline

    width = max(len(one.path.rpartition(".")[2]) for one in found)
    lines: list[str] = []
    section = None
    for one in found:
        where, _, name = one.path.rpartition(".")
        if where != section:
            section = where
            lines.append(where)
        a = inline(one.a) if one.in_a else "(no such key)"
        b = inline(one.b) if one.in_b else "(no such key)"
        lines.append(f"  {name:<{width}}  {a} -> {b}")
    return lines


@app.command("schema")
def schema() -> None:
    """Print the JSON schema of config files, for editors.

    It knows every simulator and policy family that is installed. `joyrl presets copy` writes it
    beside the copy.
    """
    from joyrlinf_core.config.json_schema import json_schema

    print(json.dumps(json_schema(), indent=2))
