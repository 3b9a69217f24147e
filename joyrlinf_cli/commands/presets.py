"""`joyrl presets`: list, show and copy the configs that ship with joyrl."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from joyrlinf_cli.options import JsonOption
from joyrlinf_core.errors import EnvironmentNotReadyError, UsageError

app = typer.Typer(help="List, show and copy presets.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Preset name or alias.")]


@app.command("list")
def list_presets(as_json: JsonOption = False) -> None:
    """List all presets: what they use, what they need, and which ones run in this version."""
    from joyrlinf_cli.render.preset_list import preset_list
    from joyrlinf_core.plan.catalogue import catalogue

    entries = catalogue()
    if not as_json:
        print(preset_list(entries))
        return
    rows = [
        {
            "name": entry.preset.name,
            "simulator": entry.simulator,
            "model": entry.model,
            "mode": entry.mode,
            "runs": not entry.missing,
            "missing": list(entry.missing),
            **entry.preset.meta.model_dump(mode="json"),
        }
        for entry in entries
    ]
    print(json.dumps({"schema": 1, "presets": rows}, indent=2))


@app.command("show")
def show(name: NameArgument) -> None:
    """Print a preset as it is written."""
    print(_path(name).read_text(encoding="utf-8"), end="")


@app.command("copy")
def copy(
    name: NameArgument,
    destination: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="File or folder to write; default NAME.yaml here."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    with_schema: Annotated[
        bool,
        typer.Option(
            "--schema/--no-schema",
            help="Write the JSON schema beside the copy and name it in the first line, so that "
            "editors complete and check keys.",
        ),
    ] = True,
) -> None:
    """Copy a preset, comments included, to start a config of your own."""
    from joyrlinf_core.config.json_schema import FILE_NAME, HEADER, json_schema

    source = _path(name)
    target = destination or Path.cwd()
    if target.is_dir():
        target = target / source.name
    if target.exists() and not force:
        raise UsageError(f"{target} exists", fix="another name, or --force to overwrite it")
    try:
        text = source.read_text(encoding="utf-8")
        target.write_text(HEADER + text if with_schema else text, encoding="utf-8")
        if with_schema:
            schema = json.dumps(json_schema(), indent=1) + "\n"
            (target.parent / FILE_NAME).write_text(schema, encoding="utf-8")
    except FileNotFoundError as error:
        raise UsageError(f"there is no folder {target.parent}", fix="make it first") from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise EnvironmentNotReadyError(f"can't write {target}: {reason}") from error
    print(target)
    if with_schema:
        print(f"beside it {FILE_NAME}, for editors (--no-schema: without)", file=sys.stderr)


def _path(name: str) -> Path:
    from joyrlinf_cli.configs import preset_file
    from joyrlinf_core.config import presets

    path = presets.find(preset_file(name))
    assert path is not None, "preset_file has checked it"
    return path
