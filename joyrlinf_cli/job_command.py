"""What the commands that start a job have in common: display, result, exit code.

Loads the launcher, so commands import it inside their functions.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TextIO

import typer

from joyrlinf_cli.configs import resolve
from joyrlinf_cli.console.choose import open_console
from joyrlinf_cli.console.summary import failure_lines, result_json, result_lines
from joyrlinf_cli.options import ConsoleKind
from joyrlinf_core.config.schema import Config
from joyrlinf_core.errors import ConfigError, ExitCode
from joyrlinf_core.launcher.jobs import JobResult, Jobs
from joyrlinf_core.launcher.nodes.settings import NodeOptions
from joyrlinf_core.plan.run_plan import Job


def say(text: str) -> None:
    """Tell the user something that is no result."""
    _write(text, sys.stderr)


def say_skipped(checkpoint: Path, reason: str) -> None:
    """Tell the user of a checkpoint that is not whole."""
    say(f"skipped {checkpoint.name}: {reason}")


def resolved_config(
    argument: str | None,
    preset: str | None,
    config: Path | None,
    sets: list[str] | None,
    *,
    job: Job,
    as_json: bool = False,
) -> Config:
    """Return the config that the user named, checked for a job, or end the command."""
    loaded = resolve(argument, preset, config, sets, job=job, as_json=as_json)
    if loaded.config is None:
        raise ConfigError(loaded.findings)
    return loaded.config


def finish(
    job: Job,
    start: Callable[[Jobs], JobResult],
    *,
    console: ConsoleKind,
    as_json: bool,
    nodes: NodeOptions,
) -> NoReturn:
    """Start a job, print its result and end the command with its exit code.

    Args:
        job: Name of the job.
        start: Starts it.
        console: Progress display.
        as_json: Print the result as one JSON document.
        nodes: What the command line says of the nodes.

    Raises:
        typer.Exit: Always.
    """
    started = time.monotonic()
    jobs = Jobs(
        lambda plan, run_dir, speaker: open_console(console, plan, run_dir, speaker),
        say,
        nodes=nodes,
    )
    try:
        finished = start(jobs)
    except KeyboardInterrupt:
        say("interrupted before a worker was started")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    seconds = time.monotonic() - started
    digest = finished.outcome.digest
    if digest is not None:
        say("\n".join(failure_lines(digest)))
    if as_json:
        _write(json.dumps(result_json(finished, job, seconds), indent=2), sys.stdout)
    elif digest is None:
        _write("\n".join(result_lines(finished, job, seconds)), sys.stdout)
    raise typer.Exit(finished.outcome.exit_code)


def _write(text: str, stream: TextIO) -> None:
    """Write a line; a reader that has gone away must not change the outcome of a run."""
    try:
        print(text, file=stream, flush=True)
    except OSError:
        # What is left in the buffer would raise again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
