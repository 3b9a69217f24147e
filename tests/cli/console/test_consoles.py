import io
import json
import math
import os
import sys
from pathlib import Path

import pytest
from rich.console import Console

from joyrlinf_cli.console import figures
from joyrlinf_cli.console.choose import kind_for
from joyrlinf_cli.console.guarded import GuardedConsole
from joyrlinf_cli.console.json_lines import JsonLinesConsole
from joyrlinf_cli.console.live import LiveConsole
from joyrlinf_cli.console.plain import PlainConsole
from joyrlinf_core.config.schema import Config
from joyrlinf_core.observability.events import (
    Alive,
    EvalResult,
    Phase,
    Record,
    RunStarted,
    Step,
    Warned,
)
from joyrlinf_core.observability.reader import History
from joyrlinf_core.observability.run_dir import RunDir
from joyrlinf_core.plan.build import build_plan

FAKE_PARTS = Path(__file__).parents[2] / "core" / "launcher"


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def plan(monkeypatch):
    monkeypatch.syspath_prepend(str(FAKE_PARTS))
    config = {
        "env": {"train": {"type": "fake_parts:FakeEnv"}},
        "actor": {"micro_batch_size": 4, "model": {"model_type": "fake_parts:FakeModel"}},
        "algorithm": {"group_size": 4},
        "runner": {"max_steps": 6},
        "sft": {"steps": 100},
    }
    yield build_plan(Config.model_validate(config), "train")
    sys.modules.pop("fake_parts", None)


def step(number, success=0.5, seconds=2.0):
    metrics = {"rollout/success_once": success, "train/ratio_max": 1.25, "train/other": 9.0}
    return Step(number, metrics, {"rollout": 1.5, "update": 0.3}, seconds)


def feed(console, clock, *events, rank=0):
    for event in events:
        console.on_record(Record(clock.now, rank, event))
        console.on_tick()
        clock.now += 1.0


EVENTS = [
    RunStarted("train", "d", 1, 0, 6),
    Phase("load", 0),
    Phase("simulators", 0),
    EvalResult(0, "start", 200, 0.6, 0.53, 0.67, {"push": 0.5, "reach": 0.7}, 40.0, 1.0),
    Phase("rollout", 0, 1, 8),
    step(1, 0.5),
    step(2, 0.75),
    Warned("JR501", "no group has variance", "more groups"),
    Phase("rollout", 2, 4, 8),
]


def test_plain_console_writes_one_line_per_step(plan, tmp_path):
    clock, stream = Clock(), io.StringIO()
    console = PlainConsole(plan, RunDir(tmp_path), stream, clock)
    feed(console, clock, *EVENTS)
    lines = stream.getvalue().splitlines()
    assert lines[0] == f"train: run directory {tmp_path}"
    assert "train: loading the policy" in lines
    assert "train: building simulators" in lines
    assert "eval start: success 0.600 (0.530-0.670), 200 episodes" in lines
    assert "  reach: 0.700" in lines
    assert "train 2/6  success 0.750  ratio max 1.250  2.0 s  eta 8.0 s" in lines
    assert "warning[JR501]: no group has variance" in lines
    assert "  fix: more groups" in lines
    assert stream.getvalue().isascii()


def test_plain_console_reminds_of_a_long_phase(plan, tmp_path):
    clock, stream = Clock(), io.StringIO()
    console = PlainConsole(plan, RunDir(tmp_path), stream, clock)
    feed(console, clock, Phase("demos", 0, 5, 120))
    before = len(stream.getvalue().splitlines())
    clock.now += 60
    console.on_tick()
    console.on_tick()
    last = stream.getvalue().splitlines()[before:]
    assert last == ["train: still collecting demonstrations 5/120, 1 min 01 s"]


def screen(console):
    output = Console(file=io.StringIO(), width=100)
    output.print(console.render())
    return output.file.getvalue()


def live(plan, tmp_path, clock):
    terminal = Console(file=io.StringIO(), width=100, force_terminal=True)
    return LiveConsole(plan, RunDir(tmp_path), terminal, clock)


def test_live_console_shows_what_a_user_asks_first(plan, tmp_path):
    clock = Clock()
    console = live(plan, tmp_path, clock)
    assert "starting the workers" in screen(console)
    feed(console, clock, *EVENTS)
    console.on_notice("finishing the step")
    shown = screen(console)
    for expected in (
        "step 2/6", "eta 8.0 s", "rollout", "4/8", "success", "0.750", "ratio max", "1.250",
        "rollout 75%", "update 15%", "0.600 (0.530-0.670), 200 episodes", "JR501",
        "finishing the step", "\u2581\u2588", tmp_path.name,
    ):  # fmt: skip
        assert expected in shown, expected
    console.close()


def test_live_console_names_a_silent_rank(plan, tmp_path):
    clock = Clock()
    console = live(plan, tmp_path, clock)
    feed(console, clock, Phase("rollout", 0), rank=1)
    clock.now += 50
    feed(console, clock, Phase("rollout", 0), rank=0)
    assert "rank 1 silent in rollout for 52.0 s" in screen(console)
    feed(console, clock, Alive("", False, "other ranks", 0.0), rank=1)
    clock.now += 50
    assert "rank 0 silent in rollout for 52.0 s" in screen(console), "who waits is not to blame"
    console.close()


def test_json_console_writes_strict_json():
    stream, clock = io.StringIO(), Clock()
    console = JsonLinesConsole(stream)
    feed(console, clock, step(1, math.nan))
    console.on_notice("hello")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first["metrics"]["rollout/success_once"] == "nan"
    assert second == {"kind": "notice", "message": "hello"}


def test_broken_console_is_switched_off(plan, tmp_path, capsys):
    class Closed(io.StringIO):
        writes = 0

        def write(self, _text):
            self.writes += 1
            if self.writes > 2:
                raise BrokenPipeError

    stream, clock = Closed(), Clock()
    console = GuardedConsole(lambda: PlainConsole(plan, RunDir(tmp_path), stream, clock))
    feed(console, clock, *EVENTS)
    console.on_notice("x")
    console.close()
    assert stream.writes == 3
    assert capsys.readouterr().err.count("the run goes on") == 1


def test_console_that_can_not_open_is_off_from_the_start(capsys):
    def build():
        raise BrokenPipeError

    console = GuardedConsole(build)
    console.on_notice("x")
    console.close()
    assert capsys.readouterr().err.count("the run goes on") == 1


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_auto_is_live_on_a_real_terminal_only(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert kind_for("auto", Terminal(), Terminal()) == "live"
    assert kind_for("auto", Terminal(), io.StringIO()) == "plain"
    assert kind_for("json", io.StringIO()) == "json"
    monkeypatch.setenv("CI", "true")
    assert kind_for("auto", Terminal()) == "plain"
    monkeypatch.delenv("CI")
    monkeypatch.setenv("TERM", "dumb")
    assert kind_for("auto", Terminal()) == "plain"


def test_figures():
    assert figures.sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "".join(map(chr, range(0x2581, 0x2589)))
    assert figures.sparkline([1.0, math.nan, 2.0]) == "\u2581 \u2588"
    assert figures.sparkline([math.nan]) == ""
    assert [figures.number(v) for v in (0.5, 12.34567, 1e-5, 0.0, math.inf)] == [
        "0.500", "12.35", "1.0e-05", "0.000", "inf",
    ]  # fmt: skip
    assert [figures.duration(v) for v in (4.06, 312, 11220)] == [
        "4.1 s",
        "5 min 12 s",
        "3 h 07 min",
    ]


def test_time_left_counts_steps_not_log_lines():
    history = History()
    for number in (50, 100):
        history.add(Record(0.0, 0, Step(number, {}, {}, 5.0)))
    # 0.1 s a step, 200 left.
    assert figures.eta(history, 300) == "20.0 s"
    assert figures.eta(history, 100) == ""
    assert figures.eta(History(), 10) == ""


@pytest.mark.parametrize(
    ("size", "term", "kind"),
    [
        ((80, 24), "xterm", "live"),
        ((24, 6), "xterm", "plain"),
        ((80, 6), "xterm", "plain"),
        ((24, 24), "xterm", "plain"),
        ((0, 0), "xterm", "live"),
        ((80, 24), "dumb", "plain"),
    ],
)
@pytest.mark.parametrize("wanted", ["auto", "live"])
def test_a_terminal_that_the_live_screen_does_not_fit_gets_lines(
    monkeypatch, size, term, kind, wanted
):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

        def fileno(self):
            return 2

    monkeypatch.setenv("TERM", term)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(os, "get_terminal_size", lambda _fd: os.terminal_size(size))
    assert kind_for(wanted, Terminal(), Terminal()) == kind


def test_progress_adds_up_the_shares_of_all_ranks():
    history = History()
    for rank, done in ((0, 2), (1, 3)):
        history.add(Record(0.0, rank, Phase("demos", 0, done, 6)))
    assert figures.progress(history) == (5, 6)
    for rank, done in ((0, 2), (1, 3)):
        history.add(Record(1.0, rank, Phase("rollout", 0, done, 8)))
    assert figures.progress(history) == (2, 8)


def test_a_job_that_only_evaluates_says_so_once():
    assert figures.evaluation_name("eval") == "eval"
    assert figures.evaluation_name("start") == "eval start"
