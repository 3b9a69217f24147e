"""`joyrl nccl-test`: check and time the links between ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from joyrlinf_cli.options import (
    ConfigArgument,
    ConfigOption,
    JsonOption,
    MasterAddrOption,
    MasterPortOption,
    NnodesOption,
    NodeRankOption,
    PresetOption,
    RendezvousTimeoutOption,
    SetOption,
)

if TYPE_CHECKING:
    from joyrlinf_core.diagnostics.links.request import Request
    from joyrlinf_core.launcher.nodes.settings import NodeOptions
    from joyrlinf_core.plan.run_plan import RunPlan

DeviceName = Literal["auto", "cpu", "cuda"]

NprocOption = Annotated[
    int | None,
    typer.Option(
        "--nproc",
        metavar="N",
        help="Ranks on each machine. Default: those of the config, else one per GPU, else 2.",
        show_default=False,
        min=1,
    ),
]

DeviceOption = Annotated[
    DeviceName | None,
    typer.Option(
        "--device",
        metavar="auto|cpu|cuda",
        help="Where the tensors are. Default: as the config says, else auto.",
        show_default=False,
    ),
]

SizesOption = Annotated[
    str | None,
    typer.Option(
        "--sizes",
        metavar="LIST",
        help="Message sizes. Default: 1K,16K,256K,4M,64M, on GPUs also 1G.",
        show_default=False,
    ),
]

PerPairOption = Annotated[
    bool, typer.Option("--per-pair", help="Measure every pair of ranks, not only neighbours.")
]

TimeoutOption = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        help="Give up, and name the rank, when nobody gets on for so long.",
        min=1.0,
    ),
]


def nccl_test(
    argument: ConfigArgument = None,
    preset: PresetOption = None,
    config: ConfigOption = None,
    sets: SetOption = None,
    nproc: NprocOption = None,
    device: DeviceOption = None,
    sizes: SizesOption = None,
    per_pair: PerPairOption = False,
    timeout: TimeoutOption = 60.0,
    nnodes: NnodesOption = None,
    node_rank: NodeRankOption = None,
    master_addr: MasterAddrOption = None,
    master_port: MasterPortOption = None,
    rendezvous_timeout: RendezvousTimeoutOption = 300.0,
    as_json: JsonOption = False,
) -> None:
    """Check and time the links between ranks: NCCL, and Gloo on the CPU.

    With a config, the process groups are those of its run, on as many ranks; no policy and no
    simulator is needed. Exit code 4 if something is missing on this machine, 5 if a rank hangs,
    dies or gets wrong numbers.
    """
    from joyrlinf_cli.configs import resolve
    from joyrlinf_core.diagnostics.links.request import Request, parse_sizes
    from joyrlinf_core.diagnostics.nccl_test import config_plan
    from joyrlinf_core.errors import UsageError
    from joyrlinf_core.launcher.nodes.settings import NodeOptions

    named = any(source is not None for source in (argument, preset, config))
    chosen = parse_sizes(sizes) if sizes is not None else ()
    request = Request(chosen, per_pair, timeout, plan_groups=named)
    if named and nproc is not None:
        raise UsageError(
            "--nproc beside a config: the config says how many ranks there are",
            fix="leave one of them out",
        )
    if sets and not named:
        raise UsageError("--set needs a config", fix="name one, as in --preset NAME")
    loaded = resolve(argument, preset, config, sets, as_json=as_json).config if named else None
    if loaded is not None:
        plan = config_plan(loaded, request, device)
    else:
        plan = _world_plan(nproc, device, nnodes, request)
    nodes = NodeOptions(nnodes, node_rank, master_addr, master_port, rendezvous_timeout)
    _run(plan, request, nodes, as_json=as_json)


def _world_plan(
    nproc: int | None, device: DeviceName | None, nnodes: int | None, request: Request
) -> RunPlan:
    from joyrlinf_core.diagnostics.nccl_test import default_nodes, default_ranks, world_plan
    from joyrlinf_core.errors import UsageError

    each, machines = nproc or default_ranks(device), nnodes or default_nodes()
    if each * machines < 2:
        raise UsageError("--nproc 1: one rank has no link to test", fix="--nproc 2")
    return world_plan(each, request, device or "auto", machines)


def _run(plan: RunPlan, request: Request, nodes: NodeOptions, *, as_json: bool) -> NoReturn:
    """Test, print the report and end the command with its exit code."""
    import sys

    from joyrlinf_cli.render.links import failure_lines, report_json, report_lines, step_display
    from joyrlinf_cli.render.text import write_lines
    from joyrlinf_core.diagnostics.nccl_test import nccl_test as run
    from joyrlinf_core.errors import ExitCode

    def say(text: str) -> None:
        print(text, file=sys.stderr)

    with step_display(sys.stderr) as show:
        report = run(plan, request, on_step=show, say=say, nodes=nodes)
    if as_json:
        print(report_json(report))
    else:
        write_lines(report_lines(report), sys.stdout)
    if report.failure is not None:
        sys.stdout.flush()
        write_lines(failure_lines(report.failure), sys.stderr)
    elif report.exit_code == ExitCode.INTERRUPTED:
        say("interrupted")
    raise typer.Exit(report.exit_code)
