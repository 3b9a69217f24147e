"""`joyrl runs`: what ran here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from joyrlinf_cli.options import JsonOption

if TYPE_CHECKING:
    from joyrlinf_core.observability.run_dir import RunDir

app = typer.Typer(help="List runs.", no_args_is_help=True)


@app.callback()
def root() -> None:
    """List runs."""


@app.command("list")
def list_all(
    log_path: Annotated[
        str, typer.Option("--log-path", metavar="DIR", help="Root of the runs.")
    ] = "results",
    as_json: JsonOption = False,
) -> None:
    """List runs, oldest first; works while they train."""
    from joyrlinf_core.launcher.run_directory import list_runs

    rows = [_row(run_dir) for run_dir in list_runs(Path(log_path))]
    if as_json:
        print(json.dumps({"schema": 1, "runs": rows}, indent=2))
        return
    for row in rows:
        success = "" if row["success"] is None else f"success {row['success']:.3f}"
        state = f"{row['state']:<10}"
        print(f"{row['job']:<6} {state} step {row['step']:<6} {success:<14} {row['path']}")


def _row(run_dir: RunDir) -> dict[str, Any]:
    from joyrlinf_core.launcher.run_directory import job_of
    from joyrlinf_core.observability.reader import read_history

    history = read_history(run_dir.events)
    return {
        "path": str(run_dir.root),
        "job": job_of(run_dir),
        "state": _state(run_dir),
        "step": max(history.steps, default=0),
        "success": history.evals[-1].success_rate if history.evals else None,
    }


def _state(run_dir: RunDir) -> str:
    """Return `running`, `completed`, `stopped`, `failed`, or `died` without an outcome."""
    from joyrlinf_core.launcher.supervisor import is_running
    from joyrlinf_core.observability.rank_status import read_all

    if is_running(run_dir):
        return "running"
    states = {status.state for status in read_all(run_dir.logs)}
    if "failed" in states:
        return "failed"
    if not states or "running" in states:
        return "died"
    return "stopped" if "stopped" in states else "completed"
