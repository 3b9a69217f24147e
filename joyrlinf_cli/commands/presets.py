"""`joyrl presets`: list, show and copy the configs that ship with joyrl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from joyrlinf_cli.options import JsonOption
from joyrlinf_core.errors import EnvironmentNotReadyError, UsageError

app = typer.Typer(help="List, show and copy presets.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Preset name or alias.")]


@app.command("list")
def list_presets(as_json: JsonOption = False) -> None:
    """List all presets."""
    from joyrlinf_core.config import presets

    found = presets.listing()
    if as_json:
        rows = [{"name": p.name, **p.meta.model_dump(mode="json")} for p in found]
        print(json.dumps({"schema": 1, "presets": rows}, indent=2))
        return
    width = max((len(preset.name) for preset in found), default=0)
    for preset in found:
        hardware = f"{preset.meta.gpus} GPUs" if preset.meta.gpus else "CPU"
        if preset.meta.gpus == 1:
            hardware = "1 GPU"
        print(f"{preset.name:<{width}}  {hardware:<7}  {preset.meta.title}".rstrip())


@app.command("show")
def show(name: NameArgument) -> None:
    """Print a preset as it is written."""
    print(_path(name).read_text(encoding="utf-8"), end="")


@app.command("copy")
def copy(
    name: NameArgument,
    destination: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="File or folder to write; default NAME.yaml here."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Copy a preset, comments included, to start a config of your own."""
    source = _path(name)
    target = destination or Path.cwd()
    if target.is_dir():
        target = target / source.name
    if target.exists() and not force:
        raise UsageError(f"{target} exists", fix="another name, or --force to overwrite it")
    try:
        target.write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    except FileNotFoundError as error:
        raise UsageError(f"there is no folder {target.parent}", fix="make it first") from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise EnvironmentNotReadyError(f"can't write {target}: {reason}") from error
    print(target)


def _path(name: str) -> Path:
    from joyrlinf_cli.configs import preset_file
    from joyrlinf_core.config import presets

    path = presets.find(preset_file(name))
    assert path is not None, "preset_file has checked it"
    return path
