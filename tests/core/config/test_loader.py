import operator
import os

import pytest

from joyrlinf_core.config import loader
from joyrlinf_core.config.loader import load_config
from joyrlinf_core.errors import UsageError
from tests.doubles.toy import TOY_YAML


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Returns a function that writes a file into the working directory and returns its path."""
    monkeypatch.chdir(tmp_path)

    def to(text, name="my.yaml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(text, bytes):
            path.write_bytes(text)
        else:
            path.write_text(text)
        return path

    return to


def places(loaded):
    return [(f.code, f.paths, f.file, f.line, f.column) for f in loaded.findings]


def test_a_good_config_loads(write):
    loaded = load_config(write(TOY_YAML))
    assert loaded.findings == ()
    assert loaded.config.env.train.total_num_envs == 80
    assert loaded.config.actor.model.width == 16


def test_eval_inherits_from_train(write):
    config = load_config(write(TOY_YAML)).config
    assert config.env.eval.total_num_envs == 40
    assert config.env.eval.max_episode_steps == 80
    assert config.env.eval.type == config.env.train.type


def test_eval_stays_away_where_there_is_no_block(write):
    config = load_config(write(TOY_YAML.replace("  eval:\n    total_num_envs: 40\n", ""))).config
    assert config.env.eval is None


def test_eval_of_another_type_inherits_nothing(write):
    text = TOY_YAML.replace("    total_num_envs: 40", "    type: metaworld\n    total_num_envs: 4")
    config = load_config(write(text)).config
    assert config.env.eval.max_episode_steps == 100


def test_errors_that_eval_inherits_come_once(write):
    text = TOY_YAML.replace("max_episode_steps: 80", "max_episode_steps: 0\n    widht: 3")
    assert [f.code for f in load_config(write(text)).findings] == ["JR011", "JR012"]
    text = TOY_YAML.replace("    total_num_envs: 80\n", "").replace(
        "    total_num_envs: 40", "    {}"
    )
    assert [f.paths for f in load_config(write(text)).findings] == [("env.train.total_num_envs",)]


def test_overrides_win_and_are_typed_like_yaml(write):
    overrides = ["actor.optim.lr=1e-3", "runner.seed=010", "runner.logger.experiment_name='07'"]
    config = load_config(write(TOY_YAML), overrides).config
    assert config.actor.optim.lr == 1e-3
    assert config.runner.seed == 10
    assert config.runner.logger.experiment_name == "07"


@pytest.mark.parametrize(
    ("argument", "key", "value"),
    [
        ("env.train.tasks=[reach, push]", "env.train.tasks", ("reach", "push")),
        ("env.train.tasks=[]", "env.train.tasks", ()),
        ("env.eval=null", "env.eval", None),
        ("runner.max_seconds=", "runner.max_seconds", None),
        ("runner.max_seconds=~", "runner.max_seconds", None),
        ("runner={seed: 3, max_steps: 9}", "runner.seed", 3),
        ("runner.logger.experiment_name=12:30", "runner.logger.experiment_name", "12:30"),
        ("runner.logger.experiment_name=yes", "runner.logger.experiment_name", "yes"),
        ("runner.logger.log_path=a=b", "runner.logger.log_path", "a=b"),
        (" runner.seed = 4", "runner.seed", 4),
        ("runner.eval_at_end=true", "runner.eval_at_end", True),
    ],
)
def test_override_values(write, argument, key, value):
    loaded = load_config(write(TOY_YAML), [argument])
    assert loaded.findings == ()
    assert operator.attrgetter(key)(loaded.config) == value


def test_override_of_a_section_keeps_its_other_keys(write):
    config = load_config(write(TOY_YAML), ["runner={seed: 3}"]).config
    assert (config.runner.seed, config.runner.max_steps) == (3, 4)


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("runner.seed.more=1", "must be a whole number"),
        ("env.train.tasks.0=push", "must be a list"),
        ("runner=3", "must be a section of keys"),
        ("actor.model=null", "must be a section of keys"),
        ("runner.eval_at_end=yes", "must be true or false"),
        ("runner.seed=99999999999999999999", None),
        ("runner.seed=*x", None),
        ("runner.seed={a: 1, a: 2}", None),
        ("runner.seed=1\n---\n2", None),
    ],
)
def test_overrides_that_do_not_fit(write, argument, told):
    if told is None:
        with pytest.raises(UsageError, match=r"--set runner\.seed"):
            load_config(write(TOY_YAML), [argument])
        return
    (found,) = load_config(write(TOY_YAML), [argument]).findings
    assert told in found.message
    assert found.file is None


def test_later_override_wins_and_null_removes_a_section(write):
    config = load_config(write(TOY_YAML), ["runner.seed=1", "runner.seed=2", "sft=null"]).config
    assert config.runner.seed == 2
    assert config.sft is None


def test_placement_is_replaced_as_a_whole(write):
    both = ["cluster.component_placement.env,rollout=0", "cluster.component_placement.actor=1"]
    config = load_config(write(TOY_YAML), both).config
    assert config.cluster.component_placement == {"env,rollout": 0, "actor": 1}
    base = write(
        "cluster: {component_placement: {'env,rollout,actor': 0-7}}\n" + TOY_YAML, "b.yaml"
    )
    top = write("extends: b.yaml\ncluster: {component_placement: {'env,rollout,actor': 0-3}}\n")
    assert base.exists()
    assert load_config(top).config.cluster.component_placement == {"env,rollout,actor": "0-3"}


def test_another_model_type_starts_afresh(write):
    loaded = load_config(write(TOY_YAML), ["actor.model.model_type=openpi"])
    assert loaded.findings == ()
    assert loaded.config.actor.model.num_action_chunks == 5


@pytest.mark.parametrize("bad", ["foo", "=3", "a..b=3", ".a=1"])
def test_malformed_override_is_a_usage_error(write, bad):
    with pytest.raises(UsageError, match=r"key=value|part of the key is empty"):
        load_config(write(TOY_YAML), [bad])


def test_override_with_broken_yaml_is_a_usage_error(write):
    with pytest.raises(UsageError, match=r"--set runner.seed=\[1"):
        load_config(write(TOY_YAML), ["runner.seed=[1"])


def test_errors_of_overrides_have_no_file(write):
    loaded = load_config(write(TOY_YAML), ["runner.sede=3"])
    assert places(loaded) == [("JR012", ("runner.sede",), None, None, None)]
    assert loaded.source_map.locate("runner.sede").text == "--set runner.sede=3"


def test_extends_merges_deeply_and_keeps_places(write):
    write(TOY_YAML, "bases/base.yaml")
    path = write("extends: bases/base.yaml\nactor:\n  micro_batch_size: 16\n  model: {widht: 3}\n")
    loaded = load_config(path, ["runner.seed=-1"])
    assert loaded.partial.actor.micro_batch_size == 16
    assert loaded.partial.actor.gradient_accumulation_steps == 2
    assert places(loaded) == [
        ("JR011", ("runner.seed",), None, None, None),
        ("JR012", ("actor.model.widht",), "my.yaml", 4, 11),
    ]
    assert loaded.source_map.locate("actor.gradient_accumulation_steps").file == "bases/base.yaml"


def test_an_error_in_a_base_names_the_base(write):
    write(TOY_YAML.replace("max_steps: 4", "max_steps: no"), "base.yaml")
    loaded = load_config(write("extends: base.yaml\n"))
    assert places(loaded) == [("JR011", ("runner.max_steps",), "base.yaml", 2, 14)]


def test_a_description_is_not_inherited(write):
    write("meta: {title: base, aliases: [other]}\n" + TOY_YAML, "base.yaml")
    config = load_config(write("extends: base.yaml\n")).config
    assert config.meta.title == ""
    assert config.meta.aliases == ()


def test_extends_in_a_circle(write):
    write("extends: b.yaml\n", "a.yaml")
    write("extends: a.yaml\n", "b.yaml")
    found = [f for f in load_config("a.yaml").findings if f.code == "JR007"]
    assert len(found) == 1
    assert "a.yaml -> b.yaml -> a.yaml" in found[0].message
    assert (found[0].file, found[0].line) == ("b.yaml", 1)


def test_what_a_missing_base_would_set_is_not_missing(write):
    for base in ("nothing.yaml", "broken.yaml", "my.yaml", ""):
        write("runner: [\n", "broken.yaml")
        loaded = load_config(write(f"extends: {base}\nrunner: {{seed: 1}}\n"))
        assert [f.code for f in loaded.findings] in (["JR007"], ["JR003"])


def test_extends_along_a_chain(write):
    write(TOY_YAML, "c.yaml")
    write("extends: c.yaml\nrunner: {seed: 1, max_steps: 7}\n", "b.yaml")
    config = load_config(write("extends: b.yaml\nrunner: {seed: 2}\n")).config
    assert (config.runner.seed, config.runner.max_steps) == (2, 7)


def test_extends_in_another_place_says_where_it_belongs(write):
    for loaded in (
        load_config(write("runner: {extends: quickstart}\n" + TOY_YAML.split("\n", 2)[2])),
        load_config(write(TOY_YAML), ["extends=quickstart"]),
    ):
        (found,) = loaded.findings
        assert found.code == "JR012"
        assert "top of a file" in found.fix


@pytest.mark.parametrize("value", ["nothing.yaml", "qickstart", "[a, b]", "3"])
def test_extends_of_nothing(write, value):
    loaded = load_config(write(f"extends: {value}\n{TOY_YAML}"))
    assert [(f.code, f.line) for f in loaded.findings] == [("JR007", 1)]
    assert loaded.config is None
    assert loaded.partial is not None, "the rules still look at the rest"


def test_extends_a_preset(write):
    loaded = load_config(write("extends: quickstart\nrunner: {max_steps: 2}\n"))
    assert loaded.findings == ()
    assert loaded.config.runner.max_steps == 2
    assert loaded.config.env.train.type == "metaworld"


def test_unknown_preset_names_the_nearest():
    (found,) = load_config("qickstart").findings
    assert found.code == loader.NOT_FOUND
    assert "quickstart" in found.fix


def test_unknown_file_names_its_neighbours(write):
    write(TOY_YAML, "mine.yaml")
    (found,) = load_config("mien.yaml").findings
    assert found.code == loader.NOT_FOUND
    assert "mine.yaml" in found.fix


def test_a_directory_is_no_config(write, tmp_path):
    (found,) = load_config(tmp_path).findings
    assert found.code == loader.NOT_FOUND
    assert "directory" in found.message


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "JR006"),
        ("# only a comment\n", "JR006"),
        ("- a\n- b\n", "JR006"),
        ("just text\n", "JR006"),
        ("null\n", "JR006"),
        ("a: [\n", "JR003"),
        (b"\xff\xfe\x00", "JR002"),
        (b"a: \x00\n", "JR003"),
    ],
)
def test_files_that_are_no_config(write, text, code):
    loaded = load_config(write(text))
    assert [f.code for f in loaded.findings] == [code]
    assert loaded.findings[0].file == "my.yaml"
    assert loaded.config is None
    assert loaded.partial is None


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ("runner: {seed: 1}\n".encode("utf-16"), "UTF-16"),
        ("runner: {seed: 1}\n".encode("utf-16-le"), "UTF-16"),
        ("runner: {seed: 1}\n".encode("utf-32"), "UTF-32"),
        ("runner: {seed: 1} # \u00e4\n".encode("latin-1"), "byte 0xe4 at offset 20"),
        (b"x" * 10_000_000, "larger than 1 MiB"),
    ],
)
def test_bytes_that_are_no_config(write, raw, told):
    (found,) = load_config(write(raw)).findings
    assert (found.code, found.file, found.line) == ("JR002", "my.yaml", 1)
    assert told in found.message


def test_columns_count_characters(write):
    (found,) = load_config(write("a: \u00e4".encode() + b"\xff")).findings
    assert (found.line, found.column) == (1, 5)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_silent_pipe_does_not_hang(tmp_path, monkeypatch):
    monkeypatch.setattr(loader, "_PIPE_SECONDS", 0.2)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (found,) = load_config(pipe).findings
    assert (found.code, "silent" in found.message) == ("JR002", True)


def test_a_pipe_is_read_to_its_end():
    """As in `joyrl validate <(make-config)`."""
    reading, writing = os.pipe()
    os.write(writing, TOY_YAML.encode())
    os.close(writing)
    assert load_config(f"/dev/fd/{reading}").config is not None
    os.close(reading)


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/tty"])
def test_a_device_is_refused(device):
    (found,) = load_config(device).findings
    assert found.code == "JR002"
    assert "neither a file nor a pipe" in found.message
    assert found.fix


def test_a_name_that_no_file_can_have():
    (found,) = load_config("x" * 5000).findings
    assert found.code == loader.NOT_FOUND
    assert "too long" in found.message.lower()


def test_unreadable_file(write, monkeypatch):
    path = write(TOY_YAML)

    def refuse(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(path), "open", refuse)
    (found,) = load_config(path).findings
    assert found.code == "JR002"
    assert "Permission denied" in found.message


@pytest.mark.parametrize(
    ("own", "evaluation"),
    [
        ("train: {type: libero, total_num_envs: 256, max_episode_steps: 80}", "libero"),
        (
            "train: {type: libero, total_num_envs: 256, max_episode_steps: 80}\n"
            "  eval: {num_episodes: 100}",
            "libero",
        ),
        ("eval: {type: libero, total_num_envs: 8, max_episode_steps: 80}", "libero"),
        ("train: {type: maniskill, total_num_envs: 512}", "maniskill"),
        ("train: {total_num_envs: 512}", "maniskill"),
    ],
)
def test_evaluation_starts_afresh_in_another_simulator(tmp_path, own, evaluation):
    """Also where it has the simulator of `env.train`: keys of the old one go."""
    path = tmp_path / "my.yaml"
    path.write_text(f"extends: maniskill-pi05-sync\nenv:\n  {own}\n")
    loaded = load_config(path)
    assert loaded.findings == ()
    assert loaded.config.env.eval.type == evaluation
    kept = loaded.source_map.exact("env.eval.obj_set")
    assert (kept is not None) == (evaluation == "maniskill")


def test_an_empty_part_of_a_key_is_told(tmp_path):
    with pytest.raises(UsageError) as caught:
        load_config("quickstart", ["runner..seed=1"])
    assert caught.value.fix == "write it as --set runner.seed=1"


def test_a_whole_placement_replaces_the_one_of_an_earlier_set():
    sets = [f"cluster.component_placement{one}" for one in (".agent=0-3", "={env: 1}", ".actor=2")]
    cluster = load_config("quickstart", sets).partial.cluster
    assert cluster.component_placement == {"env": 1, "actor": 2}
