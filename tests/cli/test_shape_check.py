import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from joyrlinf_cli.render import shapes
from joyrlinf_core.batch.flatten import flatten
from joyrlinf_core.config.loader import load_config
from joyrlinf_core.diagnostics.shapes import run as shape_run
from tests.docs.markdown import blocks
from tests.doubles.toy import TOY_YAML


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with good.yaml and bad.yaml."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text(TOY_YAML)
    (tmp_path / "bad.yaml").write_text(TOY_YAML.replace("batch_size: 32", "batch_size: 24"))
    return tmp_path


@pytest.fixture
def broken(monkeypatch):
    """The rows of a flat batch are in another order."""

    def rolled(batch, result, level):
        flat = flatten(batch, result, level)
        return flat.rows((flat.column.new_ones(flat.num_rows).cumsum(0)) % flat.num_rows)

    monkeypatch.setattr(shape_run, "flatten", rolled)


def test_a_good_config(joyrl, folder):
    result = joyrl("shape-check", "good.yaml")
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0] == ("good.yaml: one of 1 actor has N = T 8 x B 80 = 640; G 8, C 10, D 4, m 32")
    assert lines[1].split() == ["stage", "tensor", "axes", "shape", "type", "bytes"]
    assert (
        "  rollout      inputs.images  [T, B, ...]   [8, 80, 1, 8, 8, 3]  uint8     120 KiB"
        in lines
    )
    assert any("policies of `tests.doubles.toy:ToyModel` do not tell" in line for line in lines)
    assert lines[-1] == "good.yaml: 20 ok of 20 checks"
    assert "\x1b" not in result.out


def test_a_failed_check(joyrl, folder, broken):
    result = joyrl("shape-check", "good.yaml")
    assert result.code == 5
    assert "  failed   row order" in result.out
    assert "column: 640 of 640 rows; row 0 is not chunk step 0 of column 0" in result.out
    assert "please report it with the lines above" in result.out
    assert "good.yaml: 3 failed, 17 ok of 20 checks" in result.out


def test_an_invalid_config(joyrl, folder):
    result = joyrl("shape-check", "bad.yaml")
    assert result.code == 3
    assert "error[JR103]" in result.out
    assert result.out.endswith("bad.yaml: 1 error\n")


def test_json_is_one_document(joyrl, folder):
    result = joyrl("shape-check", "good.yaml", "bad.yaml", "--json")
    document = json.loads(result.out)
    assert (result.code, result.err) == (3, "")
    assert list(document) == ["schema", "ok", "files"]
    assert (document["schema"], document["ok"]) == (1, False)
    good, bad = document["files"]
    assert list(good) == ["file", "findings", "shapes"]
    assert list(good["shapes"]) == ["ok", "planned", "ran", "notes", "rows", "checks"]
    assert good["shapes"]["ok"] is True
    assert good["shapes"]["rows"][0] == {
        "stage": "rollout",
        "tensor": "inputs.images",
        "axes": "TB",
        "shape": [8, 80, 1, 8, 8, 3],
        "dtype": "uint8",
        "nbytes": 122880,
        "ran": [8, 80, 1, 8, 8, 3],
        "is_view": False,
    }
    assert {check["status"] for check in good["shapes"]["checks"]} == {"ok"}
    assert (bad["findings"][0]["code"], bad["shapes"]) == ("JR103", None)


def test_json_tells_a_failed_check(joyrl, folder, broken):
    result = joyrl("shape-check", "good.yaml", "--json")
    document = json.loads(result.out)
    assert (result.code, document["ok"]) == (5, False)
    checks = {one["name"]: one["status"] for one in document["files"][0]["shapes"]["checks"]}
    assert checks["row order"] == "failed"


def test_preset_and_set(joyrl, folder):
    result = joyrl(
        "shape-check", "--preset", "quickstart", "--set", "env.train.total_num_envs=2048"
    )
    assert result.code == 0
    assert "ran reduced: B " in result.out


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ([], 2, "name a config"),
        (["--preset", "qickstart"], 2, "did you mean quickstart?"),
        (["nothing.yaml"], 2, "no file nothing.yaml"),
        (["good.yaml", "--set", "foo=1"], 3, "unknown key `foo`"),
    ],
)
def test_bad_input(joyrl, folder, arguments, code, told):
    result = joyrl("shape-check", *arguments)
    assert result.code == code
    assert told in result.out + result.err


@pytest.mark.parametrize("width", [100, 70, 60])
def test_lines_fit_the_terminal(joyrl, folder, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    result = joyrl("shape-check", "good.yaml")
    assert max(len(line) for line in result.out.splitlines()) <= width
    assert "inputs.images" in result.out
    assert "[8, 80, 1, 8, 8, 3]" in result.out


def test_colours_on_a_terminal_only(folder, broken, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", Terminal())
    shapes.write_text(shapes.ShapeResult.of(load_config("good.yaml")))
    text = sys.stdout.getvalue()
    assert "\x1b[1;31m  failed" in text
    assert "\x1b[32m  ok" in text


def test_torch_is_not_loaded_for_an_invalid_config(folder):
    code = (
        "import sys\nsys.argv = ['joyrl', 'shape-check', 'quickstart', '--set', 'foo=1']\n"
        "from joyrlinf_cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    print(end.code, 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "3 False"


def test_the_documentation_shows_what_is_printed(joyrl):
    page = Path(__file__).parents[2] / "docs" / "shape-check.md"
    (shown,) = (b for b in blocks(page) if b.text.startswith("$ joyrl shape-check quickstart"))
    printed = iter(joyrl("shape-check", "quickstart").out.splitlines())
    for line in shown.text.splitlines()[1:]:
        assert line == "  ..." or line in printed, line
