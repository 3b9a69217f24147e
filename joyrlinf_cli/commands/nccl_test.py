"""`joyrl nccl-test`: check and time the links between ranks."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from joyrlinf_cli.options import (
    ConfigArgument,
    ConfigOption,
    JsonOption,
    PresetOption,
    SetOption,
)

DeviceName = Literal["auto", "cpu", "cuda"]


def nccl_test(
    argument: ConfigArgument = None,
    preset: PresetOption = None,
    config: ConfigOption = None,
    sets: SetOption = None,
    nproc: Annotated[
        int | None,
        typer.Option(
            "--nproc",
            metavar="N",
            help="Ranks on this machine. Default: those of the config, else one per GPU, else 2.",
            show_default=False,
            min=2,
        ),
    ] = None,
    device: Annotated[
        DeviceName | None,
        typer.Option(
            "--device",
            metavar="auto|cpu|cuda",
            help="Where the tensors are. Default: as the config says, else auto.",
            show_default=False,
        ),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            "--sizes",
            metavar="LIST",
            help="Message sizes. Default: 1K,16K,256K,4M,64M, on GPUs also 1G.",
            show_default=False,
        ),
    ] = None,
    per_pair: Annotated[
        bool, typer.Option("--per-pair", help="Measure every pair of ranks, not only neighbours.")
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            help="Give up, and name the rank, when nobody gets on for so long.",
            min=1.0,
        ),
    ] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Check and time the links between ranks: NCCL, and Gloo on the CPU.

    With a config, the process groups are those of its run, on as many ranks; no policy and no
    simulator is needed. Exit code 4 if something is missing on this machine, 5 if a rank hangs,
    dies or gets wrong numbers.
    """
    import sys

    from joyrlinf_cli.configs import resolve
    from joyrlinf_cli.render.links import failure_lines, report_json, report_lines, step_display
    from joyrlinf_cli.render.text import write_lines
    from joyrlinf_core.diagnostics.links.request import Request, parse_sizes
    from joyrlinf_core.diagnostics.nccl_test import config_plan, default_ranks, world_plan
    from joyrlinf_core.diagnostics.nccl_test import nccl_test as run
    from joyrlinf_core.errors import ExitCode, UsageError

    named = any(source is not None for source in (argument, preset, config))
    request = Request(
        sizes=parse_sizes(sizes) if sizes is not None else (),
        per_pair=per_pair,
        timeout=timeout,
        plan_groups=named,
    )
    if named:
        if nproc is not None:
            raise UsageError(
                "--nproc beside a config: the config says how many ranks there are",
                fix="leave one of them out",
            )
        loaded = resolve(argument, preset, config, sets, as_json=as_json).config
        if loaded is None:
            raise AssertionError("resolve ends the command where there is no config")
        plan = config_plan(loaded, request, device)
    else:
        if sets:
            raise UsageError("--set needs a config", fix="name one, as in --preset NAME")
        plan = world_plan(nproc or default_ranks(device), request, device or "auto")
    with step_display(sys.stderr) as show:
        report = run(plan, request, on_step=show)
    if as_json:
        print(report_json(report))
    else:
        write_lines(report_lines(report), sys.stdout)
    if report.failure is not None:
        sys.stdout.flush()
        write_lines(failure_lines(report.failure), sys.stderr)
    elif report.exit_code == ExitCode.INTERRUPTED:
        print("interrupted", file=sys.stderr)
    raise typer.Exit(report.exit_code)
