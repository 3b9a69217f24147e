import subprocess
import sys
from pathlib import Path

import pytest

from joyrlinf_cli import main as entry
from joyrlinf_core.errors import EnvironmentNotReadyError, ExitCode

ROOT = Path(__file__).parents[2]

PROBE = """
import sys
sys.argv = ["joyrl", *sys.argv[1:]]
from joyrlinf_cli.main import main
try:
    main()
except SystemExit as end:
    code = end.code
heavy = {"torch", "metaworld", "mujoco", "transformers", "safetensors", "peft", "OpenGL"}
print(code or 0, *sorted(heavy & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["validate", "presets/quickstart.yaml"],
        ["validate", "presets", "--json"],
        ["presets", "list"],
        ["config", "show", "quickstart"],
        ["train", "--help"],
    ],
)
def test_nothing_heavy_is_imported(arguments):
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.split() == ["0"]
    assert done.stdout


@pytest.mark.parametrize(
    ("arguments", "unused"),
    [
        (["--help"], ["joyrlinf_core.launcher", "joyrlinf_core.config", "pydantic", "yaml"]),
        (["train", "--help"], ["joyrlinf_core.launcher", "joyrlinf_core.config"]),
        (["validate", "presets/quickstart.yaml"], ["joyrlinf_core.launcher"]),
    ],
)
def test_a_command_loads_only_what_it_uses(arguments, unused):
    code = (
        "import sys\nsys.argv = ['joyrl', *sys.argv[1:]]\n"
        "from joyrlinf_cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stderr.split())
    assert "joyrlinf_cli.main" in loaded
    assert not loaded & set(unused)


def test_validate_is_quick():
    """Processor time of the whole process; half a second on an idle machine, with a wide margin."""
    code = (
        "import time, sys\nsys.argv = ['joyrl', 'validate', 'presets/quickstart.yaml']\n"
        "from joyrlinf_cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    print(time.process_time(), file=sys.stderr)\n"
    )
    best = min(
        float(
            subprocess.run(
                [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
            ).stderr
        )
        for _ in range(3)
    )
    assert best < 2.5


def test_no_command_prints_help(joyrl):
    result = joyrl()
    assert result.code == 2
    assert "validate" in result.out + result.err


def test_unknown_command(joyrl):
    result = joyrl("trian")
    assert (result.code, result.out) == (2, "")
    assert "train" in result.err


def test_every_command_is_there(joyrl):
    shown = joyrl("--help").out
    for command in ("train", "resume", "eval", "sft", "validate", "presets", "config", "runs"):
        assert f" {command} " in shown


def test_version(joyrl):
    assert joyrl("--version").out.startswith("joyrl 0.")


def fail_with(monkeypatch, error):
    def fail():
        raise error

    monkeypatch.setattr(entry, "app", fail)


def test_an_error_for_the_user_is_one_message(joyrl, monkeypatch):
    fail_with(monkeypatch, EnvironmentNotReadyError("no OpenGL", fix="install it"))
    result = joyrl()
    assert result.code == ExitCode.ENVIRONMENT_NOT_READY
    assert result.err == "error: no OpenGL\n  fix: install it\n"
    assert result.out == ""


def test_an_unexpected_error_is_a_bug_with_its_traceback(joyrl, monkeypatch):
    fail_with(monkeypatch, ZeroDivisionError("oops"))
    result = joyrl()
    assert result.code == ExitCode.BUG
    assert "ZeroDivisionError: oops" in result.err
    assert "bug in joyrl" in result.err


def test_a_reader_that_goes_away_is_no_bug():
    """As in `joyrl config show quickstart | head -1`."""
    running = subprocess.Popen(
        [sys.executable, "-m", "joyrlinf_cli.main", "config", "show", "quickstart"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    running.stdout.close()
    assert "bug in joyrl" not in running.stderr.read()
    running.wait()
    running.stderr.close()
