"""`joyrl runs`: what ran here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from joyrlinf_cli.options import JsonOption
from joyrlinf_core.errors import JoyrlError, UsageError

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
    """List runs, oldest first; works while they train.

    A run whose files can't be read is listed as `unreadable`, with the reason.
    """
    from joyrlinf_core.launcher.run_directory import list_runs

    place = Path(log_path)
    if place.exists() and not place.is_dir():
        raise UsageError(f"{log_path} is no directory", fix="--log-path DIR, the root of the runs")
    rows = [_row(run_dir) for run_dir in list_runs(place)]
    if as_json:
        print(json.dumps({"schema": 1, "runs": rows}, indent=2))
        return
    if not rows:
        why = "" if place.exists() else ", which does not exist"
        print(f"no runs below {place.absolute()}{why}", file=sys.stderr)
    for row in rows:
        print(_line(row))


def _line(row: dict[str, Any]) -> str:
    start = f"{row['job']:<6} {row['state']:<10}"
    if row["reason"]:
        return f"{start} {row['path']}: {row['reason']}"
    success = "" if row["success"] is None else f"success {row['success']:.3f}"
    return f"{start} step {row['step']:<6} {success:<14} {row['path']}"


def _row(run_dir: RunDir) -> dict[str, Any]:
    from joyrlinf_core.launcher.run_directory import read_saved
    from joyrlinf_core.observability.reader import History, read_history

    job, history, reason = "", History(), ""
    try:
        job = read_saved(run_dir).job
        history = read_history(run_dir.events)
        state = _state(run_dir)
    except (JoyrlError, OSError) as error:
        state = "unreadable"
        reason = error.message if isinstance(error, JoyrlError) else str(error)
    return {
        "path": str(run_dir.root),
        "job": job,
        "state": state,
        "step": max(history.steps, default=0),
        "success": history.evals[-1].success_rate if history.evals else None,
        "reason": reason,
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
