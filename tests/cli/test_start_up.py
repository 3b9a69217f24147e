import os
import subprocess
import sys
from pathlib import Path

import pytest

from joyrlinf_cli import app
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
        ["presets", "show", "quickstart"],
        ["config", "show", "quickstart", "--origin"],
        ["config", "diff", "quickstart", "presets/quickstart.yaml", "--json"],
        ["config", "schema"],
        ["estimate", "quickstart"],
        ["explain", "JR103"],
        ["train", "quickstart", "--dry-run"],
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
    for command in app.COMMANDS:
        assert f" {command} " in shown


@pytest.mark.parametrize("command", app.COMMANDS)
def test_a_command_alone_is_what_it_is_among_all(joyrl, monkeypatch, command):
    alone = joyrl(command, "--help")
    assert alone.code == 0
    monkeypatch.setattr(app, "build", lambda _first, build=app.build: build())
    assert joyrl(command, "--help") == alone


def test_version(joyrl):
    assert joyrl("--version").out.startswith("joyrl 0.")


def fail_with(monkeypatch, error):
    def fail():
        raise error

    monkeypatch.setattr(app, "run", fail)


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


JOYRL = [sys.executable, "-m", "joyrlinf_cli.main"]


@pytest.mark.parametrize(
    "arguments", [["config", "show", "quickstart"], ["presets", "list"], ["validate", "quickstart"]]
)
def test_a_reader_that_goes_away_ends_joyrl_silently(arguments):
    """As in `joyrl config show quickstart | head -1`; 141 is what SIGPIPE leaves in a shell."""
    running = subprocess.Popen(
        [*JOYRL, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    running.stdout.close()
    assert running.stderr.read() == ""
    assert running.wait() == 141
    running.stderr.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    "arguments", [["validate", "quickstart"], ["config", "show", "quickstart"]]
)
@pytest.mark.parametrize("unbuffered", [[], ["-u"]])
def test_a_full_disk_is_no_bug(arguments, unbuffered):
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [JOYRL[0], *unbuffered, *JOYRL[1:], *arguments],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.stderr == "error: can't write the output: No space left on device\n"
    assert done.returncode == ExitCode.ENVIRONMENT_NOT_READY


def test_a_path_that_the_terminal_has_no_letters_for_is_shown_as_escapes(tmp_path):
    path = tmp_path / "k\u00f6nig.yaml"
    path.write_text((ROOT / "presets" / "quickstart.yaml").read_text(), encoding="utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [*JOYRL, "validate", str(path)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "k\\xf6nig.yaml: ok" in done.stdout


INTERRUPTED = """
import builtins, sys
wanted, real = sys.argv[1], builtins.__import__
def interrupt(name, *others, **more):
    if name == wanted:
        raise KeyboardInterrupt
    return real(name, *others, **more)
builtins.__import__ = interrupt
sys.argv = ["joyrl", "validate", "quickstart"]
from joyrlinf_cli.main import main
main()
"""


@pytest.mark.parametrize("module", ["typer", "joyrlinf_core.errors", "pydantic", "yaml"])
def test_ctrl_c_while_importing_is_one_line(module):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, module],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (ExitCode.INTERRUPTED, "interrupted\n")


def test_the_help_page_names_exit_codes_and_shows_arguments_as_they_are_typed(joyrl):
    shown = " ".join(joyrl("--help").out.split())
    for code in ExitCode:
        assert f" {code.value} " in shown
    assert "[OPTIONS] [CONFIG]\n" in strip_ends(joyrl("train", "--help").out)
    assert "[OPTIONS] [CONFIG]...\n" in strip_ends(joyrl("validate", "--help").out)
    assert "[OPTIONS] NAME [FILE]\n" in strip_ends(joyrl("presets", "copy", "--help").out)
    assert "[OPTIONS] RUN\n" in strip_ends(joyrl("eval", "--help").out)
    assert "bool" not in joyrl("train", "--help").out


def strip_ends(text):
    return "\n".join(line.rstrip() for line in text.splitlines())
