"""`joyrl sft`: behaviour cloning alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from joyrlinf_cli.options import (
    ConfigArgument,
    ConfigOption,
    ConsoleOption,
    JsonOption,
    MasterAddrOption,
    MasterPortOption,
    NnodesOption,
    NodeRankOption,
    PresetOption,
    RendezvousTimeoutOption,
    SetOption,
)

OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="DIR",
        help="Policy directory to write; without it, the user cache, where `train` finds it.",
        show_default=False,
    ),
]


def sft(
    argument: ConfigArgument = None,
    preset: PresetOption = None,
    config: ConfigOption = None,
    sets: SetOption = None,
    output: OutputOption = None,
    nnodes: NnodesOption = None,
    node_rank: NodeRankOption = None,
    master_addr: MasterAddrOption = None,
    master_port: MasterPortOption = None,
    rendezvous_timeout: RendezvousTimeoutOption = 300.0,
    console: ConsoleOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Make a policy by imitation of demonstrations, for RL to start from."""
    from joyrlinf_cli.job_command import finish, resolved_config
    from joyrlinf_core.launcher.nodes.settings import NodeOptions

    resolved = resolved_config(argument, preset, config, sets, job="sft")
    finish(
        "sft",
        lambda jobs: jobs.sft(resolved, output),
        console=console,
        as_json=as_json,
        nodes=NodeOptions(nnodes, node_rank, master_addr, master_port, rendezvous_timeout),
    )
