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


def kind_for(wanted: ConsoleKind, *streams: TextIO) -> ConsoleKind:
    """Return the console to use: `auto` is live where all streams are a person's terminal."""
    if wanted != "auto":
        return wanted
    dumb = os.environ.get("TERM") == "dumb" or bool(os.environ.get("CI"))
    terminal = all(stream.isatty() for stream in streams)
    return "live" if terminal and not dumb else "plain"


def open_console(wanted: ConsoleKind, plan: RunPlan, run_dir: RunDir) -> ClosableListener:
    """Open the console of one job on standard error; standard output is for results."""
    kind = kind_for(wanted, sys.stdout, sys.stderr)
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
