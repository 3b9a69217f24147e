"""Live console: one screen that is drawn anew, on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from joyrlinf_cli.console import figures
from joyrlinf_cli.console.totals import total_steps
from joyrlinf_core.observability.events import Phase, Record, Step
from joyrlinf_core.observability.reader import read_history
from joyrlinf_core.observability.run_dir import RunDir
from joyrlinf_core.observability.timers import phases
from joyrlinf_core.plan.run_plan import RunPlan

REFRESHES_PER_SECOND = 4
MAX_WARNINGS = 3
SILENT_SECONDS = 20.0
"""A rank without a heartbeat for so long is named."""

PHASE_STYLES = ("cyan", "magenta", "yellow", "green", "blue", "red")


class LiveConsole:
    """The screen of one job.

    Args:
        plan: The plan.
        run_dir: The run directory.
        console: Terminal; None: standard error.
        clock: Seconds since the epoch, as events count them.
    """

    def __init__(
        self,
        plan: RunPlan,
        run_dir: RunDir,
        console: Console | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._plan = plan
        self._run_dir = run_dir
        self._clock = clock
        self._opened = clock()
        self._history = read_history(run_dir.events)
        self._history.phases.clear()
        self._history.got_on.clear()
        self._notice = ""
        self._live = Live(
            get_renderable=self.render,
            console=console or Console(stderr=True),
            refresh_per_second=REFRESHES_PER_SECOND,
            auto_refresh=False,
            transient=False,
        )
        self._drawn = 0.0
        self._live.start()

    def on_record(self, record: Record) -> None:
        """Take an event; the next tick draws it."""
        self._history.add(record)

    def on_notice(self, text: str) -> None:
        """Show a message of the launcher from now on."""
        self._notice = text
        self._live.refresh()

    def on_tick(self) -> None:
        """Draw, a few times a second."""
        now = self._clock()
        if now - self._drawn >= 1 / REFRESHES_PER_SECOND:
            self._drawn = now
            self._live.refresh()

    def close(self) -> None:
        """Leave the last picture and free the terminal."""
        self._live.refresh()
        self._live.stop()

    def render(self) -> RenderableType:
        """Return the screen."""
        parts = [self._progress(), self._phase(), self._metrics(), self._evals(), self._footer()]
        shown = [part for part in parts if part is not None]
        title = f"joyrl {self._plan.job}  {self._run_dir.root.name}"
        return Panel(Group(*shown), title=title, title_align="left", border_style="dim")

    def _progress(self) -> RenderableType:
        total = total_steps(self._plan, self._history)
        done = max(self._history.steps, default=0)
        if self._history.started is not None:
            done = max(done, self._history.started.start_step)
        elapsed = figures.duration(self._clock() - self._opened)
        left = figures.eta(self._history, total)
        text = f"step {done}/{total}" if self._plan.job != "eval" else f"{total} episodes"
        after = f"{elapsed}" + (f", eta {left}" if left else "")
        return _bar_row(text, done, total, after)

    def _phase(self) -> RenderableType | None:
        latest = self._history.phases.get(0)
        if latest is None or not isinstance(latest.event, Phase):
            return Text(figures.PHASE_TEXT["start"], style="dim")
        event = latest.event
        name = figures.PHASE_TEXT.get(event.phase, event.phase)
        done, total = figures.progress(self._history)
        text = f"{done}/{total}" if total else ""
        silent = self._silent_rank()
        return _bar_row(name, done, total, silent or text)

    def _silent_rank(self) -> str:
        """Name the rank that has not got on for longest, if that is long; who waits is not it."""
        history = self._history
        if not history.got_on or history.finished is not None:
            return ""
        rank, when = min(history.got_on.items(), key=lambda item: item[1])
        age = self._clock() - max(when, self._opened)
        record = history.phases.get(rank)
        if age < SILENT_SECONDS or record is None or not isinstance(record.event, Phase):
            return ""
        return f"rank {rank} silent in {record.event.phase} for {figures.duration(age)}"

    def _metrics(self) -> RenderableType | None:
        steps = [self._history.steps[number] for number in sorted(self._history.steps)]
        if not steps:
            return None
        table = Table.grid(padding=(0, 2))
        for name, short in figures.SHOWN_METRICS.items():
            values = [step.metrics[name] for step in steps if name in step.metrics]
            if values:
                table.add_row(
                    Text(short, style="dim"),
                    Text(figures.number(values[-1]), style="bold"),
                    Text(figures.sparkline(values), style="cyan"),
                )
        return Group(table, _shares(steps[-1]))

    def _evals(self) -> RenderableType | None:
        if not self._history.evals:
            return None
        table = Table.grid(padding=(0, 2))
        first, last = self._history.evals[0], self._history.evals[-1]
        for result in (first, last) if first is not last else (first,):
            table.add_row(
                Text(figures.evaluation_name(result.label), style="dim"),
                Text(f"step {result.step}"),
                Text(f"success {figures.evaluation(result)}", style="green"),
            )
        return table

    def _footer(self) -> RenderableType:
        lines: list[RenderableType] = [
            Text(f"warning[{warning.code}]: {warning.message}", style="yellow")
            for warning in self._history.warnings[-MAX_WARNINGS:]
        ]
        if self._notice:
            lines.append(Text(self._notice, style="bold yellow"))
        lines.append(Text(f"logs {self._run_dir.logs}", style="dim", overflow="fold"))
        return Group(*lines)


def _bar_row(before: str, done: int, total: int, after: str) -> RenderableType:
    grid = Table.grid(padding=(0, 2), expand=True)
    grid.add_column(width=24)
    grid.add_column(ratio=1)
    grid.add_column(justify="right")
    bar = ProgressBar(total=total, completed=min(done, total)) if total else Text("")
    grid.add_row(Text(before), bar, Text(after, style="dim"))
    return grid


def _shares(step: Step) -> RenderableType:
    """Return where the time of a step went, as one line of shares."""
    line = Text("time  ", style="dim")
    parts = sorted(phases(step.timings).items(), key=lambda item: -item[1])
    for index, (name, seconds) in enumerate(parts):
        share = seconds / step.seconds if step.seconds else 0.0
        line.append(f"{name} {share:.0%}  ", style=PHASE_STYLES[index % len(PHASE_STYLES)])
    line.append(f"{step.seconds:.1f} s a step", style="dim")
    return line
