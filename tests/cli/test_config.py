import json

import pytest
import yaml

from joyrlinf_core.config import presets
from joyrlinf_core.config.json_schema import json_schema
from joyrlinf_core.config.loader import load_config
from joyrlinf_core.launcher import run_directory
from joyrlinf_core.plan.build import build_plan


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory of this test, with a config that extends the quick start."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.yaml").write_text(
        "extends: quickstart\nrunner:\n  seed: 5\nenv:\n  train:\n    image_size: 32\n"
    )
    return tmp_path


def make_run(*sets):
    """Returns a run directory below `results`, as a training run leaves it."""
    return run_directory.create(build_plan(load_config("quickstart", sets).config, "train"))


def test_show_prints_a_config_that_loads_back(joyrl, folder):
    shown = joyrl("config", "show", "my.yaml", "--set", "runner.max_steps=7")
    assert shown.code == 0
    (folder / "again.yaml").write_text(shown.out)
    assert load_config("again.yaml").config == load_config("my.yaml", ["runner.max_steps=7"]).config


def test_origin(joyrl, folder):
    """Every line says where its value comes from, and the text is still the same config."""
    shown = joyrl("config", "show", "my.yaml", "--set", "runner.max_steps=7", "--origin").out
    lines = {line.split(":")[0].strip(): line.rpartition("# ")[2] for line in shown.splitlines()}
    assert lines["seed"] == "my.yaml:3"
    assert lines["max_steps"] == "--set"
    assert lines["keep_checkpoints"] == "default"
    assert lines["adv_args"] == "default"
    assert lines["variant"].startswith("preset quickstart:")
    train, evaluation = (line for line in shown.splitlines() if "image_size: 32" in line)
    assert train.endswith("# my.yaml:6")
    assert evaluation.endswith("# my.yaml:6 (env.train)")
    assert yaml.safe_load(shown)["runner"]["seed"] == 5
    values = [line for line in shown.splitlines() if not line.rstrip().endswith(":")]
    assert all("  # " in line for line in values)


def test_show_of_an_invalid_config(joyrl, folder):
    result = joyrl("config", "show", "my.yaml", "--set", "runner.sede=1")
    assert (result.code, result.out) == (3, "")
    assert "JR012" in result.err


def test_diff_of_equal_configs_is_silent(joyrl, folder):
    joyrl("presets", "copy", "quickstart", "copy.yaml")
    assert joyrl("config", "diff", "quickstart", "copy.yaml") == (0, "", "")


def test_diff(joyrl, folder):
    result = joyrl("config", "diff", "quickstart", "my.yaml")
    assert result.code == 0, "1 means a bug in joyrl"
    assert result.out.splitlines() == [
        "--- quickstart",
        "+++ my.yaml",
        "runner",
        "  seed        0 -> 5",
        "env.train",
        "  image_size  64 -> 32",
        "env.eval",
        "  image_size  64 -> 32",
    ]


def test_diff_as_json(joyrl, folder):
    result = joyrl("config", "diff", "my.yaml", "quickstart", "--json")
    document = json.loads(result.out)
    assert (result.code, document["schema"], document["equal"]) == (0, 1, False)
    assert {"path": "runner.seed", "a": 5, "b": 0} in document["differences"]
    equal = joyrl("config", "diff", "quickstart", "quickstart", "--json")
    assert json.loads(equal.out) == {"schema": 1, "equal": True, "differences": []}
    assert equal.code == 0


def test_diff_of_runs(joyrl, folder):
    first, second = make_run("runner.seed=1"), make_run("runner.seed=2")
    result = joyrl("config", "diff", first.root, second.checkpoints.parent)
    assert (result.code, "seed  1 -> 2" in result.out) == (0, True)
    result = joyrl("config", "diff", "latest", "quickstart", "--log-path", "results")
    assert "seed  2 -> 0" in result.out
    assert joyrl("config", "diff", "latest", second.root).code == 0


def test_diff_tells_scripts_with_its_exit_code(joyrl, folder):
    different = joyrl("config", "diff", "quickstart", "my.yaml", "--exit-code")
    assert (different.code, "seed        0 -> 5" in different.out) == (1, True)
    assert joyrl("config", "diff", "quickstart", "quickstart", "--exit-code").code == 0


@pytest.mark.parametrize("source", ["qickstart", "nothing.yaml", "latest", "results"])
def test_diff_with_nothing(joyrl, folder, source):
    (folder / "results").mkdir()
    result = joyrl("config", "diff", "quickstart", source)
    assert (result.code, result.out) == (2, "")
    assert "fix:" in result.err


def test_diff_with_an_invalid_config(joyrl, folder):
    (folder / "my.yaml").write_text("extends: quickstart\nsede: 1\n")
    result = joyrl("config", "diff", "quickstart", "my.yaml")
    assert (result.code, result.out) == (3, "")
    assert "my.yaml:2:1" in result.err


def test_schema(joyrl):
    result = joyrl("config", "schema")
    assert result.code == 0
    assert json.loads(result.out) == json_schema()


def test_a_copied_preset_names_its_schema(joyrl, folder):
    assert joyrl("presets", "copy", "quickstart", "copy.yaml").out == "copy.yaml\n"
    header, _, rest = (folder / "copy.yaml").read_text().partition("\n")
    assert header == "# yaml-language-server: $schema=./.joyrl-schema.json"
    assert rest == presets.find("quickstart").read_text()
    assert json.loads((folder / ".joyrl-schema.json").read_text()) == json_schema()
    joyrl("presets", "copy", "quickstart", "plain.yaml", "--no-schema")
    assert (folder / "plain.yaml").read_text() == rest
