"""`joyrl config`: look at a config as joyrl reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from joyrlinf_cli.options import ConfigArgument, ConfigOption, PresetOption, SetOption

if TYPE_CHECKING:
    from joyrlinf_core.config.source_map import SourceMap

app = typer.Typer(help="Look at a config as joyrl reads it.", no_args_is_help=True)


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
    from joyrlinf_cli.render.findings import origin
    from joyrlinf_core.config.source_map import SourceMap
    from joyrlinf_core.config.yaml_tree import read_tree

    tree = read_tree(text, "dump", [])
    assert tree is not None, "the dump is a mapping"
    lines = text.splitlines()
    width = max(len(line) for line in lines)
    for path, node in SourceMap.of(tree).entries.items():
        if isinstance(node.value, dict) or path.rpartition(".")[2].isdigit():
            continue
        written = sources.exact(path)
        row = node.key.line - 1
        comment = origin(written.key) if written is not None else "default"
        lines[row] = f"{lines[row]:<{min(width, 60)}}  # {comment}"
    return "\n".join(lines) + "\n"
