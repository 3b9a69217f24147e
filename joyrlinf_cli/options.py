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

_NODES = "Several nodes"
"""Panel of the help page."""

NnodesOption = Annotated[
    int | None,
    typer.Option(
        "--nnodes",
        min=1,
        metavar="N",
        help="Nodes of the run; must be cluster.num_nodes. Also NNODES, or Slurm's.",
        show_default=False,
        rich_help_panel=_NODES,
    ),
]

NodeRankOption = Annotated[
    int | None,
    typer.Option(
        "--node-rank",
        min=0,
        metavar="K",
        help="Number of this node, counted from 0. Also NODE_RANK, or Slurm's.",
        show_default=False,
        rich_help_panel=_NODES,
    ),
]

MasterAddrOption = Annotated[
    str | None,
    typer.Option(
        "--master-addr",
        metavar="HOST",
        help="Name or address of node 0. Also MASTER_ADDR, or Slurm's first host.",
        show_default=False,
        rich_help_panel=_NODES,
    ),
]

MasterPortOption = Annotated[
    int | None,
    typer.Option(
        "--master-port",
        min=1,
        max=65535,
        metavar="P",
        help="Port of node 0 where the launchers meet; 29500 unless MASTER_PORT says another.",
        show_default=False,
        rich_help_panel=_NODES,
    ),
]

RendezvousTimeoutOption = Annotated[
    float,
    typer.Option(
        "--rendezvous-timeout",
        min=1.0,
        metavar="SECONDS",
        help="How long the nodes wait for one another before the start.",
        rich_help_panel=_NODES,
    ),
]

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print exactly one JSON document on standard output.")
]
