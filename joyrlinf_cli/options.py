"""Options that several commands share, as annotated types for Typer signatures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer


def _complete_presets(incomplete: str) -> list[str]:
    from joyrlinf_core.config import presets

    return [name for name in presets.names() if name.startswith(incomplete)]


def _complete_keys(incomplete: str) -> list[str]:
    from joyrlinf_core.config.keys import all_keys

    return [f"{key}=" for key in all_keys({}) if key.startswith(incomplete)]


ConfigArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="CONFIG",
        help="Preset name or config file.",
        show_default=False,
        autocompletion=_complete_presets,
    ),
]

ConfigArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="CONFIG",
        help="Preset names, config files, or folders of config files.",
        show_default=False,
        autocompletion=_complete_presets,
    ),
]

PresetOption = Annotated[
    str | None,
    typer.Option(
        "--preset",
        metavar="NAME",
        help="Preset; see `joyrl presets list`.",
        show_default=False,
        autocompletion=_complete_presets,
    ),
]

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Config file.", show_default=False),
]

SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override one key, for example actor.optim.lr=1e-5. Repeatable.",
        show_default=False,
        autocompletion=_complete_keys,
    ),
]

ConsoleKind = Literal["auto", "live", "plain", "json", "off"]

ConsoleOption = Annotated[
    ConsoleKind,
    typer.Option(
        "--console",
        metavar="auto|live|plain|json|off",
        help="Progress on standard error; auto is live on a terminal, else plain.",
    ),
]

LogPathOption = Annotated[
    str,
    typer.Option("--log-path", metavar="DIR", help="Where `latest` looks for runs."),
]

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print exactly one JSON document on standard output.")
]
