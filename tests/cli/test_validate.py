import json

import pytest

from tests.doubles.toy import TOY_YAML

_SPLIT = ("--set", 'cluster.component_placement={"env,rollout": 0, "actor": 1}')


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with good.yaml, bad.yaml and sub/other.yml."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text(TOY_YAML)
    (tmp_path / "bad.yaml").write_text(
        TOY_YAML.replace("max_steps: 4", "max_stepz: 4").replace("batch_size: 32", "batch_size: 24")
    )
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "other.yml").write_text(TOY_YAML)
    return tmp_path


def test_good_config_prints_its_plan(joyrl, folder):
    result = joyrl("validate", "good.yaml")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("good.yaml: ok\n")
    assert "N = T_eff 8 x B 80 = 640 samples" in result.out


def test_findings_look_like_this(joyrl, folder):
    result = joyrl("validate", "bad.yaml")
    assert result.code == 3
    assert result.out == (
        "error[JR012]: unknown key `max_stepz` in `runner`\n"
        " --> bad.yaml:2:3   runner.max_stepz\n"
        "  |\n"
        "2 |   max_stepz: 4\n"
        "  |   ^^^^^^^^^\n"
        "  = fix: did you mean `max_steps`?\n"
        "\n"
        "error[JR103]: samples per actor do not divide into optimizer batches: T_eff x B_actor = "
        "8 x 80 = 640; micro_batch_size x gradient_accumulation_steps = 24 x 2 = 48; "
        "640 % 48 = 16\n"
        "  --> bad.yaml:15:3   actor.micro_batch_size\n"
        "   |\n"
        "15 |   micro_batch_size: 24\n"
        "   |   ^^^^^^^^^^^^^^^^\n"
        "   = with: actor.gradient_accumulation_steps: 2 (bad.yaml:16)\n"
        "   = with: env.train.total_num_envs: 80 (bad.yaml:8)\n"
        "   = fix: actor.micro_batch_size 20 or 32, or "
        "env.train.total_num_envs 72 or 96\n"
        "\n"
        "info[JR099]: not checked: JR503, JR504 (need runner.max_steps)\n"
        " = fix: mend the errors above and check again\n"
        "\n"
        "bad.yaml: 2 errors, 1 info\n"
    )


def test_several_files_and_folders(joyrl, folder):
    result = joyrl("validate", "bad.yaml", "sub", "quickstart")
    assert result.code == 3
    assert "bad.yaml: 2 errors, 1 info" in result.out
    assert "sub/other.yml: ok" in result.out
    assert "quickstart: ok" in result.out


def test_preset_and_config_options(joyrl, folder):
    assert joyrl("validate", "--preset", "quickstart", "--config", "good.yaml").code == 0
    assert joyrl("validate", "--preset", "good.yaml").code == 2


def test_json_is_one_document(joyrl, folder):
    result = joyrl("validate", "--json", "good.yaml", "bad.yaml")
    document = json.loads(result.out)
    assert (result.code, result.err) == (3, "")
    assert list(document) == ["schema", "ok", "files"]
    assert (document["schema"], document["ok"]) == (1, False)
    good, bad = document["files"]
    assert (good["file"], good["findings"]) == ("good.yaml", [])
    assert good["plan"]["batch"]["samples_per_actor"] == 640
    assert good["plan"]["placement"]["world_size"] == 1
    assert bad["plan"] is None
    assert bad["findings"][0] == {
        "code": "JR012",
        "severity": "error",
        "path": "runner.max_stepz",
        "file": "bad.yaml",
        "line": 2,
        "column": 3,
        "message": "unknown key `max_stepz` in `runner`",
        "fix": "did you mean `max_steps`?",
    }


def test_set_applies_to_every_config(joyrl, folder):
    result = joyrl("validate", "good.yaml", "--set", "actor.micro_batch_size=24")
    assert result.code == 3
    assert "--> --set actor.micro_batch_size=24\n" in result.out


def test_a_warning_is_no_failure(joyrl, folder):
    result = joyrl("validate", "good.yaml", "--set", "actor.model.model_path=/no/such")
    assert result.code == 0
    assert "warning[JR402]" in result.out
    assert "good.yaml: 1 warning" in result.out


def test_absent_files_are_errors_on_request(joyrl, folder):
    arguments = ("validate", "good.yaml", "--set", "actor.model.model_path=/no/such")
    result = joyrl(*arguments, "--check-paths")
    assert result.code == 3
    assert "error[JR402]" in result.out
    document = json.loads(joyrl(*arguments, "--check-paths", "--json").out)
    assert [f["severity"] for f in document["files"][0]["findings"]] == ["error"]


def test_a_key_without_effect_warns(joyrl, folder):
    result = joyrl("validate", "good.yaml", "--set", "algorithm.gamma=0.9")
    assert result.code == 0
    assert "warning[JR801]: `algorithm.gamma` has no effect" in result.out


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["nothing.yaml"], 2, "no file nothing.yaml"),
        (["qickstart"], 2, "did you mean quickstart?"),
        (["empty"], 2, "holds no YAML file"),
        (["--preset", "qickstart"], 2, "did you mean quickstart?"),
        (["--config", "nothing.yaml"], 2, "no file nothing.yaml"),
        ([], 2, "name a config"),
        (["good.yaml", "--set", "foo"], 2, "expected key=value"),
        (["good.yaml", "--set", "foo=1"], 3, "unknown key `foo`"),
        (["good.yaml", "--nope"], 2, "--nope"),
        (["tabs.yaml"], 3, "tab"),
        (["latin.yaml"], 3, "not UTF-8"),
        (["list.yaml"], 3, "holds a list"),
        (["blank.yaml"], 3, "the file is empty"),
        (["twice.yaml"], 3, "set twice: on line 1 and on line 2"),
        (["control.yaml"], 3, "U+001B"),
    ],
)
def test_bad_input(joyrl, folder, arguments, code, told):
    (folder / "empty").mkdir()
    (folder / "tabs.yaml").write_text("a:\n\tb: 1\n")
    (folder / "latin.yaml").write_bytes(b"a: \xe9\n")
    (folder / "list.yaml").write_text("- a\n")
    (folder / "blank.yaml").write_text("")
    (folder / "twice.yaml").write_text("runner: {}\nrunner: {}\n")
    (folder / "control.yaml").write_text("a: \x1b[31m\n")
    result = joyrl("validate", *arguments)
    assert result.code == code
    assert told in result.out + result.err
    assert "Traceback" not in result.err
    assert "\x1b" not in result.out


def test_missing_argument_does_not_hide_the_others(joyrl, folder):
    result = joyrl("validate", "nothing.yaml", "good.yaml", "--json")
    assert result.code == 2
    document = json.loads(result.out)
    assert [len(one["findings"]) for one in document["files"]] == [1, 0]


def test_config_show_is_a_config(joyrl, folder):
    shown = joyrl("config", "show", "good.yaml", "--set", "runner.seed=7")
    (folder / "shown.yaml").write_text(shown.out)
    again = joyrl("config", "show", "shown.yaml")
    assert again == shown
    assert "seed: 7" in shown.out


def test_config_show_origin(joyrl, folder):
    (folder / "top.yaml").write_text("extends: good.yaml\nrunner: {seed: 3}\n")
    result = joyrl("config", "show", "top.yaml", "--origin", "--set", "runner.max_steps=9")
    lines = {
        line.partition(":")[0].strip(): line.partition("#")[2] for line in result.out.splitlines()
    }
    assert lines["seed"] == " top.yaml:2"
    assert lines["max_steps"] == " --set"
    assert lines["total_num_envs"].startswith(" good.yaml")
    assert lines["keep_checkpoints"] == " default"
    (folder / "shown.yaml").write_text(result.out)
    assert joyrl("validate", "shown.yaml").code == 0


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["bad.yaml"], 3),
        (["nothing.yaml"], 2),
        (["qickstart"], 2),
        (["sub"], 2),
        ([], 2),
        (["good.yaml", "--preset", "quickstart"], 2),
    ],
)
def test_commands_that_need_one_config(joyrl, folder, arguments, code):
    result = joyrl("config", "show", *arguments)
    assert (result.code, result.out) == (code, "")
    assert result.err
