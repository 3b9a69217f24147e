"""`joyrl estimate`: memory and throughput of a config, without running it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from joyrlinf_cli.options import (
    ConfigArgument,
    ConfigOption,
    JsonOption,
    PresetOption,
    SetOption,
)

if TYPE_CHECKING:
    from joyrlinf_core.config.schema import Config
    from joyrlinf_core.plan.hardware import Card

Number = float | None

_RANGES: dict[str, tuple[float, float]] = {
    "--memory-gb": (0.001, 1_000_000),
    "--tflops": (0.001, 1_000_000),
    "--host-memory-gb": (0.001, 1_000_000),
    "--mfu": (0.001, 1),
    "--env-steps-per-second": (0.001, 1_000_000_000),
}
"""Numbers that machines have; those outside would make times infinite."""


def _option(name: str, metavar: str, text: str, *, has_default: bool = False) -> Any:
    return typer.Option(name, metavar=metavar, help=text, show_default=has_default)


def _check_ranges(given: tuple[Number, ...]) -> None:
    """Raise `UsageError` for a number outside its range, in their order; NaN is outside of all."""
    from joyrlinf_core.errors import UsageError

    for (name, (low, high)), value in zip(_RANGES.items(), given, strict=True):
        if value is not None and not low <= value <= high:
            fix = f"give a number from {low:,} to {high:,}"
            raise UsageError(f"{name} {value:g} is out of range", fix=fix)


def estimate(
    argument: ConfigArgument = None,
    preset: PresetOption = None,
    config: ConfigOption = None,
    sets: SetOption = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu", metavar="NAME", help="Card, for example h100, or cpu. Default: all of them."
        ),
    ] = None,
    memory_gb: Annotated[Number, _option("--memory-gb", "GIB", "Memory of the card.")] = None,
    tflops: Annotated[Number, _option("--tflops", "T", "Dense peak of the card.")] = None,
    host_memory_gb: Annotated[
        Number, _option("--host-memory-gb", "GIB", "Host memory of one node; else not checked.")
    ] = None,
    mfu: Annotated[
        float, _option("--mfu", "SHARE", "Share of the peak that is reached.", has_default=True)
    ] = 0.4,
    env_steps_per_second: Annotated[
        Number,
        _option("--env-steps-per-second", "RATE", "Of the simulators of one rank; else left out."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate memory per rank and throughput, and say which key to turn where it does not fit.

    Exit code 3 if the config does not fit the card that was named, or no card where none was.
    """
    import sys

    from joyrlinf_cli.configs import resolve
    from joyrlinf_cli.render.estimate import estimate_json, estimate_lines
    from joyrlinf_cli.render.findings import write_findings
    from joyrlinf_cli.render.text import width_of, write_lines
    from joyrlinf_core.errors import ConfigError, ExitCode
    from joyrlinf_core.plan.build import check_loaded
    from joyrlinf_core.plan.estimate import Machine, estimate_all
    from joyrlinf_core.plan.hardware import GIB
    from joyrlinf_core.plan.roofline import Rates

    _check_ranges((memory_gb, tflops, host_memory_gb, mfu, env_steps_per_second))
    loaded = resolve(argument, preset, config, sets, as_json=as_json, document_tells=True)
    if loaded.config is None:
        raise ConfigError(loaded.findings)
    host = int(host_memory_gb * GIB) if host_memory_gb is not None else None
    cards = _cards(loaded.config, gpu, memory_gb, tflops)
    rates = Rates(mfu, env_steps_per_second)
    estimates = estimate_all(loaded.config, [Machine(card, host) for card in cards], rates)
    findings = [loaded.source_map.place(f) for one in estimates for f in one.findings]
    ok = any(one.fits for one in estimates)
    if as_json:
        found = [*check_loaded(loaded), *findings]
        print(estimate_json(estimates, rates, found, ok=ok))
    else:
        write_lines(estimate_lines(estimates, rates, width_of(sys.stdout)), sys.stdout)
        write_findings(findings, loaded.source_map, sys.stderr)
    raise typer.Exit(ExitCode.OK if ok else ExitCode.CONFIG_INVALID)


def _cards(config: Config, gpu: str | None, memory: Number, tflops: Number) -> list[Card]:
    """Return the cards that the user asked about.

    Raises:
        UsageError: There is no card of that name, or half of an own one was described.
    """
    import difflib
    from dataclasses import replace

    from joyrlinf_core.errors import UsageError
    from joyrlinf_core.plan.hardware import CARDS, CPU, GIB, Card, cpu_card
    from joyrlinf_core.plan.placement import ranks_per_node

    if gpu == CPU or (gpu is None and config.cluster.device == "cpu"):
        chosen = cpu_card(ranks_per_node(config.cluster) or 1, config.cluster.cpu_threads)
    elif gpu is not None:
        if gpu not in CARDS:
            near = difflib.get_close_matches(gpu, [*CARDS, CPU], n=1, cutoff=0.3)
            told = f"did you mean {near[0]}? " if near else ""
            known = ", ".join([*CARDS, CPU])
            raise UsageError(f"no card named '{gpu}'", fix=f"{told}known: {known}; or --memory-gb")
        chosen = CARDS[gpu]
    elif memory is None and tflops is None:
        return list(CARDS.values())
    elif memory is None or tflops is None:
        raise UsageError("a card of your own needs --memory-gb and --tflops", fix="or add --gpu")
    else:
        chosen = Card("your card", 0, 0.0, 0.0, float("inf"), "command line")
    if memory is not None:
        chosen = replace(chosen, memory=int(memory * GIB), source="command line")
    if tflops is not None:
        flops = tflops * 1e12
        chosen = replace(chosen, bf16_flops=flops, fp32_flops=flops, source="command line")
    return [chosen]
