"""What `joyrl estimate` prints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from joyrlinf_cli.render.dry_run import memory_lines
from joyrlinf_cli.render.table import heading, shown_bytes, table
from joyrlinf_cli.render.text import Line, wrapped
from joyrlinf_core.errors import Finding
from joyrlinf_core.plan.estimate import Estimate
from joyrlinf_core.plan.roofline import Rates, Throughput


def estimate_lines(
    estimates: Sequence[Estimate], rates: Rates, width: int | None = None
) -> list[Line]:
    """Return the memory of each kind of rank, and how each card takes it.

    Args:
        estimates: One a card.
        rates: What they assume.
        width: Columns that text is broken to; None: as it is.
    """
    lines = memory_lines(estimates[0].plan)[1:]
    if estimates[0].plan.memory is None:
        return lines
    rows = [
        [
            one.machine.card.name,
            shown_bytes(one.machine.card.memory),
            shown_bytes(one.machine.card.usable),
            shown_bytes(one.need),
            "yes" if one.fits else "no",
            *_speed_cells(one.throughput),
        ]
        for one in estimates
    ]
    headers = ["card", "memory", "to plan with", "needed", "fits"]
    times = ["predict s", "simulate s", "update s", "step s", "env steps/s"]
    lines += heading("cards: memory of the fullest one, and one training step at best")
    lines += table([*headers, *times], rows, right=[*headers[1:4], *times])
    return [*lines, *wrapped([(f"  {_assumptions(rates)}", "dim")], width, 2)]


def _speed_cells(speed: Throughput | None) -> list[str]:
    if speed is None:
        return ["-"] * 5
    simulated = f"{speed.simulation_seconds:.3g}" if speed.simulation_seconds else "-"
    return [
        f"{speed.predict_seconds:.3g}",
        simulated,
        f"{speed.update_seconds:.3g}",
        f"{speed.step_seconds:.3g}",
        _rate(speed.env_steps_per_second),
    ]


def _rate(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _assumptions(rates: Rates) -> str:
    simulators = "simulators left out (--env-steps-per-second)"
    if rates.env_steps_per_second:
        simulators = f"simulators at {rates.env_steps_per_second:g} env steps/s per env rank"
    return (
        f"assumed: {rates.mfu:.0%} of the peak (--mfu), {simulators}; weight sync, transport, "
        "saving and evaluation left out"
    )


def estimate_json(
    estimates: Sequence[Estimate], rates: Rates, findings: Sequence[Finding], *, ok: bool
) -> str:
    """Return the same as one JSON document."""
    memory = estimates[0].plan.memory
    document = {
        "schema": 1,
        "ok": ok,
        "findings": [finding.to_json() for finding in findings],
        "assumptions": asdict(rates),
        "memory": memory.model_dump(mode="json") if memory is not None else None,
        "cards": [
            {
                "name": one.machine.card.name,
                "memory": one.machine.card.memory,
                "usable": one.machine.card.usable,
                "source": one.machine.card.source,
                "needed": one.need if memory is not None else None,
                "fits": one.fits if memory is not None else None,
                "throughput": asdict(one.throughput) if one.throughput else None,
            }
            for one in estimates
        ],
    }
    return json.dumps(document, indent=2)
