"""Which console a command uses."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from joyrlinf_cli.console.guarded import GuardedConsole
from joyrlinf_cli.options import ConsoleKind
from joyrlinf_core.launcher.jobs import ClosableListener
from joyrlinf_core.observability.run_dir import RunDir
from joyrlinf_core.plan.run_plan import RunPlan

MIN_COLUMNS, MIN_LINES = 60, 16
"""Room for the live screen without warnings, each figure on one line."""


def kind_for(wanted: ConsoleKind, *streams: TextIO) -> ConsoleKind:
    """Return the console to use: `auto` is live where all streams are a person's terminal.

    Live becomes plain where the screen can't be drawn anew: on a dumb terminal, or one too small
    for it, where every picture would scroll the last one up.
    """
    if wanted not in ("auto", "live"):
        return wanted
    if os.environ.get("TERM") == "dumb" or not _has_room(streams[-1]):
        return "plain"
    if wanted == "live":
        return wanted
    terminal = all(stream.isatty() for stream in streams)
    return "live" if terminal and not os.environ.get("CI") else "plain"


def _has_room(stream: TextIO) -> bool:
    """Say whether a terminal holds the live screen; what is no terminal has no bounds."""
    try:
        columns, lines = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return True
    # A pseudo-terminal that nobody told its size says 0; rich then takes 80 x 24.
    return (columns or MIN_COLUMNS) >= MIN_COLUMNS and (lines or MIN_LINES) >= MIN_LINES


def open_console(
    wanted: ConsoleKind, plan: RunPlan, run_dir: RunDir, speaker: str = ""
) -> ClosableListener:
    """Open the console of one job on standard error; standard output is for results.

    Args:
        wanted: What the user asked for.
        plan: The plan.
        run_dir: The run directory.
        speaker: The other node that has the metrics of the job; empty where they are here.
    """
    kind = kind_for(wanted, sys.stdout, sys.stderr)
    if speaker and kind in ("live", "plain"):
        from joyrlinf_cli.console.follow import FollowConsole

        return GuardedConsole(lambda: FollowConsole(plan, run_dir, speaker, sys.stderr))
    if kind == "live":
        from joyrlinf_cli.console.live import LiveConsole

        return GuardedConsole(lambda: LiveConsole(plan, run_dir))
    if kind == "plain":
        from joyrlinf_cli.console.plain import PlainConsole

        return GuardedConsole(lambda: PlainConsole(plan, run_dir, sys.stderr))
    if kind == "json":
        from joyrlinf_cli.console.json_lines import JsonLinesConsole

        return GuardedConsole(lambda: JsonLinesConsole(sys.stderr))
    return GuardedConsole(None)
