import json
import time

import pytest

from joyrlinf_core import registry
from joyrlinf_core.config.foreign_keys import FOREIGN_KEYS
from joyrlinf_core.config.keys import all_keys, sections
from joyrlinf_core.config.loader import load_config
from joyrlinf_core.config.schema import Config
from tests.doubles.toy import TOY_YAML


@pytest.fixture
def load(tmp_path):
    """Returns a function that loads the toy config with replacements made in its text."""

    def loaded(*replacements, sets=()):
        text = TOY_YAML
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "my.yaml"
        path.write_text(text)
        return load_config(path, sets)

    return loaded


def only(loaded):
    (finding,) = loaded.findings
    return finding


def test_unknown_key_suggests_the_nearest_of_its_section(load):
    finding = only(load(("micro_batch_size: 32", "micro_batch_sise: 32")))
    assert (finding.code, finding.paths) == ("JR012", ("actor.micro_batch_sise",))
    assert (finding.line, finding.column) == (15, 3)
    assert finding.fix == "did you mean `micro_batch_size`?"


@pytest.mark.parametrize(
    ("sets", "fix"),
    [
        ("actor.lr=1", "this key belongs under `actor.optim` or `sft.optim`"),
        ("runner.group_size=4", "this key belongs under `algorithm`"),
        ("micro_batch_size=4", "this key belongs under `actor`"),
        ("actor.width=4", "this key belongs under `actor.model`"),
        ("env.train.num_env=4", "did you mean `total_num_envs`?"),
        ("algoritm={}", "did you mean `algorithm`?"),
        ("runner.experiment_nam=x", "did you mean `runner.logger.experiment_name`?"),
        ("rollout.zzz=1", "delete it; allowed here: pipeline_stage_num"),
    ],
)
def test_unknown_key_is_looked_for_everywhere(load, sets, fix):
    finding = only(load(sets=[sets]))
    assert finding.code == "JR012"
    assert finding.fix == fix


def test_a_key_that_has_its_own_line_is_not_suggested(load):
    """`micro_batch_size` is there already; over a preset's value the typo is still told."""
    finding = only(load(("  micro_batch_size", "  macro_batch_size: 64\n  micro_batch_size")))
    assert finding.fix.startswith("delete it")
    assert only(load(sets=["actor.macro_batch_size=4"])).fix == "did you mean `micro_batch_size`?"


@pytest.mark.parametrize(
    ("key", "told", "meant"),
    [
        ("actor.global_batch_size", "micro_batch_size x gradient_accumulation_steps", "actor"),
        ("runner.max_epochs", "`runner.max_steps`", "runner.max_steps"),
        ("env.train.num_group_envs", "write `total_num_envs`", "env.train.total_num_envs"),
        ("env.train.group_size", "belongs under `algorithm`", "algorithm.group_size"),
        ("defaults", "write `extends: NAME`", ""),
        ("hydra", "delete it", ""),
    ],
)
def test_keys_of_other_toolkits_say_what_to_write_here(load, key, told, meant):
    loaded = load(sets=[f"{key}=8"])
    assert told in only(loaded).fix
    assert not meant or any(one.startswith(meant) for one in loaded.unparsed)


def test_a_foreign_key_whose_meaning_a_simulator_lacks_is_an_unknown_key(load):
    assert "allowed here" in only(load(sets=["env.train.task_suite_name=x"])).fix


@pytest.mark.parametrize("env", ["libero", "maniskill", "metaworld", "wan"])
@pytest.mark.parametrize("policy", ["gr00t", "openpi", "openvla_oft"])
def test_no_foreign_key_is_one_of_joyrl(env, policy):
    data = {"env": {"train": {"type": env}}, "actor": {"model": {"model_type": policy}}}
    assert not {key.rpartition(".")[2] for key in all_keys(data)} & FOREIGN_KEYS.keys()


def test_another_toolkits_name_of_the_simulator(load):
    finding = only(load(("    type:", "    env_type:")))
    assert (finding.code, finding.fix) == ("JR013", "write `type` for `env_type`")


@pytest.mark.parametrize("key", ["actor.micro_batch_size", "runner.logger.log_path"])
def test_references_are_refused(load, key):
    """`log_path: ${oc.env:HOME}` would otherwise become a folder of that name."""
    finding = only(load(sets=[f"{key}='${{oc.env:X}}/runs'"]))
    assert (finding.code, finding.paths) == ("JR011", (key,))
    assert "refers to another value" in finding.message


def test_allowed_keys_are_listed_once_a_section(load):
    loaded = load(sets=["rollout.zzz=1", "rollout.yyy=1", "profiler.zzz=1"])
    fixes = [finding.fix for finding in loaded.findings]
    assert sorted("allowed here" in fix for fix in fixes) == [False, True, True]
    assert all(fix.startswith("delete it") for fix in fixes)


def test_a_list_of_ranks_says_how_ranks_are_written(load):
    finding = only(load(sets=["cluster.component_placement.env=[0, 1]"]))
    assert finding.fix == "ranks are one text: write `0,1`"


MISFIT = """\
extends: maniskill-pi05-sync
env:
  train:
    policy_setup: panda-qpos
"""


def test_of_two_keys_that_do_not_fit_the_users_is_shown(tmp_path):
    """`task_id` is the preset's."""
    (tmp_path / "my.yaml").write_text(MISFIT)
    finding = only(load_config(tmp_path / "my.yaml"))
    assert finding.paths == ("env.train.policy_setup", "env.train.task_id")
    assert (finding.file, finding.line) == (str(tmp_path / "my.yaml"), 4)


def test_keys_beside_a_misfit_are_read_all_the_same(tmp_path):
    (tmp_path / "my.yaml").write_text(MISFIT + "    total_num_envs: 100\n")
    loaded = load_config(tmp_path / "my.yaml")
    assert "env.train.task_id" in loaded.unparsed
    assert "env.train" not in loaded.unparsed
    assert loaded.partial.env.train.total_num_envs == 100


def test_a_misfit_that_a_whole_section_reports_is_that_of_the_key(tmp_path):
    text = "extends: quickstart\nactor:\n  model:\n    num_steps: 1\n    ignore_last: true\n"
    (tmp_path / "my.yaml").write_text(text)
    loaded = load_config(tmp_path / "my.yaml")
    finding = only(loaded)
    assert finding.message.startswith("`num_steps: 1` leaves no noisy step")
    assert (finding.paths[0], finding.line) == ("actor.model.num_steps", 4)
    assert "actor.model" not in loaded.unparsed
    assert loaded.partial.actor.model.num_action_chunks


@pytest.mark.parametrize(
    ("base", "own", "key", "with_key"),
    [
        ("wan-libero-spatial-pi05-async", "train: {chunk: 7}", "env.train.chunk", None),
        (
            "wan-libero-spatial-pi05-async",
            "train: {condition_frame_length: 6}",
            "env.train.condition_frame_length",
            None,
        ),
        (
            "wan-libero-spatial-pi05-async",
            "train: {num_reset_states: 12}",
            "env.train.num_reset_states",
            "env.train.suite",
        ),
        (
            "libero-pi05-90",
            "train: {task_id_filter: [400]}",
            "env.train.task_id_filter",
            "env.train.suite",
        ),
        (
            "maniskill-pi05-sync",
            "train: {wrist_camera: true}",
            "env.train.wrist_camera",
            "env.train.task_id",
        ),
        (
            "maniskill-gr00t-panda-sync",
            "train: {reward_mode: staged}",
            "env.train.reward_mode",
            "env.train.task_id",
        ),
        (
            "maniskill-pi05-sync",
            "train: {policy_setup: panda-ee-dpose}",
            "env.train.policy_setup",
            "env.train.task_id",
        ),
    ],
)
def test_a_misfit_of_simulator_keys_is_shown_at_the_users_own(tmp_path, base, own, key, with_key):
    """Also where the check itself belongs to a key that nobody wrote."""
    path = tmp_path / "my.yaml"
    path.write_text(f"extends: {base}\nenv:\n  {own}\n")
    found = [f for f in load_config(path).findings if f.code == "JR011"]
    assert [(f.paths[0], f.file, f.line) for f in found] == [(key, str(path), 3)]
    assert with_key is None or with_key in found[0].paths


def test_dotted_key_in_a_file(load):
    finding = only(load(("runner:", "actor.optim.lr: 3\nrunner:")))
    assert "nested" in finding.fix


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("runner.max_steps", "fast", "whole number"),
        ("runner.max_steps", "1.5", "whole number"),
        ("runner.max_steps", "0", "greater than or equal to 1"),
        ("runner.max_steps", "true", "must be a number"),
        ("runner.max_steps", "[1]", "whole number"),
        ("actor.optim.lr", "abc", "must be a number"),
        ("actor.optim.lr", ".nan", "finite"),
        ("actor.optim.lr", ".inf", "finite"),
        ("actor.optim.betas", "[0.9]", "too few items: 1"),
        ("actor.optim.betas", "[0.9, 1.5]", "less than 1"),
        ("actor.optim.betas", "[-1, 0.9]", "greater than or equal to 0"),
        ("actor.optim.weight_decay", "inf", "finite"),
        ("algorithm.rewards_upper_bound", "inf", "finite"),
        ("algorithm.rewards_upper_bound", "-Infinity", "finite"),
        ("actor.optim.weight_decay", "nan", "finite"),
        ("env.train.total_num_envs", "1000000001", "less than or equal to 1000000000"),
        ("actor.optim", "3", "section of keys"),
        ("runner.logger.experiment_name", "2024", "must be text"),
        ("env.train.auto_reset", "perhaps", "true or false"),
        ("algorithm.pipeline_mode", "snyc", "must be 'sync' or 'async'"),
        ("cluster.component_placement.env", "[0, 1]", "must be text or a whole number"),
        ("profiler.steps", "[1, x]", "whole number"),
    ],
)
def test_wrong_values(load, key, value, told):
    finding = only(load(sets=[f"{key}={value}"]))
    assert finding.code in ("JR010", "JR011")
    assert finding.paths[0].startswith(key)
    assert told in finding.message


def test_wrong_choice_suggests_the_nearest(load):
    assert only(load(sets=["algorithm.pipeline_mode=snyc"])).fix == "did you mean `sync`?"
    # The list of choices has commas.
    sets = ["algorithm.reward_type=chunk_levle"]
    assert only(load(sets=sets)).fix == "did you mean `chunk_level`?"


def test_text_key_given_a_number_says_to_quote(load):
    assert only(load(sets=["runner.logger.experiment_name=7"])).fix == "put it in quotes"


def test_an_empty_section_says_what_to_do(load):
    finding = only(load(("runner:\n  max_steps: 4", "runner:")))
    assert finding.paths == ("runner",)
    assert finding.fix == "delete the line, or write `runner: {}`"


def test_caret_points_at_the_value(load):
    finding = only(load(("max_steps: 4", "max_steps:   fast")))
    assert (finding.line, finding.column) == (2, 16)


def test_missing_key_points_at_its_section(load):
    finding = only(load(("    max_episode_steps: 80\n", "")))
    assert (finding.code, finding.paths) == ("JR010", ("env.train.max_episode_steps",))
    assert (finding.line, finding.column) == (6, 3)
    assert "Time limit" in finding.fix


@pytest.mark.parametrize(
    ("sets", "path"),
    [
        ("env.train.type=metawrld", "env.train.type"),
        ("actor.model.model_type=openpy", "actor.model.model_type"),
        ("actor.model={}", "actor.model.model_type"),
        ("actor.model.model_type=tests.doubles.toy:ToyEnv", "actor.model.model_type"),
        ("actor.model.model_type=json:dumps", "actor.model.model_type"),
        ("actor.model.model_type=no.such.module:Thing", "actor.model.model_type"),
        ("actor.model.model_type=':Thing'", "actor.model.model_type"),
        ("actor.model.model_type=..", "actor.model.model_type"),
    ],
)
def test_unknown_simulator_or_policy(load, sets, path):
    findings = [f for f in load(sets=[sets]).findings if f.code == "JR013"]
    if sets != "actor.model={}":
        assert [f.paths for f in findings] == [(path,)]


def test_unknown_name_lists_and_suggests(load):
    finding = only(load(sets=["actor.model.model_type=openpy"]))
    assert "openpi" in finding.message
    assert finding.fix == "did you mean `openpi`?"


def test_a_missing_model_type_is_said(load):
    finding = only(load(("    model_type: tests.doubles.toy:ToyModel\n", "")))
    assert (finding.code, finding.paths) == ("JR013", ("actor.model.model_type",))


def test_all_sections_report_at_once(load):
    loaded = load(
        ("max_steps: 4", "max_steps: x"),
        ("group_size: 8", "group_sise: 8"),
        ("total_num_envs: 80", "total_num_envs: -1"),
        ("pipeline_stage_num: 1", "pipeline_stage_num: 0"),
        ("steps: 10", "steps: 10\n  foo: 1"),
        ("model_type: tests.doubles.toy:ToyModel", "model_type: nope"),
    )
    assert {f.paths[0] for f in loaded.findings} == {
        "runner.max_steps",
        "algorithm.group_sise",
        "env.train.total_num_envs",
        "rollout.pipeline_stage_num",
        "sft.foo",
        "actor.model.model_type",
    }
    assert all(f.line is not None for f in loaded.findings)


def test_what_is_right_is_still_built(load):
    loaded = load(
        ("micro_batch_size: 32", "micro_batch_sise: 32"),
        ("model_type: tests.doubles.toy:ToyModel", "model_type: nope"),
        ("total_num_envs: 80", "total_num_envs: x"),
    )
    assert loaded.config is None
    assert loaded.partial.actor.gradient_accumulation_steps == 2
    assert loaded.partial.env.train.max_episode_steps == 80
    assert loaded.partial.env.eval.total_num_envs == 40
    assert loaded.partial.runner.max_steps == 4
    assert {"actor.micro_batch_size", "actor.model", "env.train.total_num_envs"} <= loaded.unparsed


def test_a_config_without_env_and_actor(tmp_path):
    path = tmp_path / "my.yaml"
    path.write_text("runner: {max_steps: 3}\n")
    loaded = load_config(path)
    assert [f.paths for f in loaded.findings] == [("env",), ("actor",)]
    assert loaded.partial.runner.max_steps == 3


@pytest.mark.parametrize(
    ("key", "value", "message", "fix"),
    [
        ("runner.max_steps", '"5"', '`runner.max_steps: "5"` is text', "write `5` without quotes"),
        ("runner.max_steps", '" 5 "', 'max_steps: " 5 "` is text', "write `5`"),
        ("runner.seed", "1_0", "`runner.seed: 1_0` is text", "write `10`"),
        ("actor.optim.lr", "'1e-5'", "is text", "write `1e-5` without quotes"),
        ("actor.optim.betas", '["0.9", 0]', '0: "0.9"` is text', "write `0.9` without quotes"),
        ("runner.eval_at_end", '"true"', 'end: "true"` is text', "write `true` without quotes"),
        ("runner.eval_at_end", "yes", "must be true or false", "write `true`"),
        ("sft.max_seconds", '"9"', "is text", "write `9` without quotes"),
        ("runner", "null", "section of keys", "leave it out, or set the keys in it"),
    ],
)  # fmt: skip
def test_text_is_no_number_and_no_switch(load, key, value, message, fix):
    finding = only(load(sets=[f"{key}={value}"]))
    assert finding.code == "JR011"
    assert message in finding.message
    assert finding.fix.startswith(fix)


def test_every_count_is_bounded():
    """A count beyond it makes plans and checks slow, and no run has one."""
    unbounded = [
        f"{cls.__name__}.{name}"
        for cls in {*sections(Config), *(registry.load(kind, one) for kind in ("envs", "policies")
                    for one in registry.names(kind))}
        for name, field in cls.model_fields.items()
        if any(getattr(limit, "ge", None) == 1 for limit in field.metadata)
        and not any(hasattr(limit, "le") for limit in field.metadata)
    ]  # fmt: skip
    assert not unbounded


def test_problems_come_in_the_order_of_the_file(load):
    loaded = load(
        ("micro_batch_size: 32", "micro_batch_size: x"),
        ("group_size: 8", "group_size: x"),
        sets=["runner.seed=x"],
    )
    lines = [finding.line for finding in loaded.findings]
    assert loaded.findings[0].paths == ("runner.seed",)
    assert lines[1:] == sorted(lines[1:])
    assert len(lines) == 3


def test_the_rest_of_very_many_problems_is_counted_under_its_code(tmp_path):
    path = tmp_path / "my.yaml"
    path.write_text(TOY_YAML + "".join(f"key{i}: 1\n" for i in range(2400)))
    start = time.process_time()
    *told, rest = load_config(path).findings
    assert time.process_time() - start < 2.0, "0.5 s"
    assert {finding.code for finding in told} == {"JR012"}
    assert (rest.code, rest.paths) == ("JR012", ("key50",))
    assert "and 2350 more unknown keys" in rest.message


def test_a_missing_space_behind_a_colon_is_seen(tmp_path):
    path = tmp_path / "my.yaml"
    path.write_text(TOY_YAML.replace("runner:\n", "profiler:\n  enable:true\nrunner:\n"))
    assert only(load_config(path)).fix == "a space is missing: write `enable: true`"


def test_a_key_of_another_simulator_says_whose_it_is(load):
    for key in ("env.enable_offload", "env.train.enable_offload"):
        loaded = load(sets=[f"{key}=true"])
        assert only(loaded).fix == "delete it; only `type: maniskill` or `type: wan` has this key"
        assert key not in loaded.unparsed


def test_a_key_that_is_a_number_is_named_whole(tmp_path):
    path = tmp_path / "my.yaml"
    path.write_text(TOY_YAML.replace("runner:\n", "1.0: b\nrunner:\n  2.5: c\n"))
    first, second = load_config(path).findings
    assert first.message == "unknown key `1.0`"
    assert second.message == "unknown key `2.5` in `runner`"
    assert "nested" not in first.fix + second.fix


def test_a_very_long_argument_is_not_repeated_whole(load):
    loaded = load(sets=[f"runner.seed={'x' * 10_000}"])
    assert len(only(loaded).message) < 200
    assert len(loaded.source_map.locate("runner.seed").text) < 200


@pytest.mark.parametrize("name", ["", " ", "..", ".", "/abs", "a/b", "x" * 101, "a\x1b[31m", "a "])
def test_an_experiment_is_one_folder(tmp_path, name):
    path = tmp_path / "my.yaml"
    quoted = json.dumps(name)
    path.write_text(f"extends: quickstart\nrunner: {{logger: {{experiment_name: {quoted}}}}}\n")
    finding = only(load_config(path))
    assert (finding.code, finding.paths) == ("JR011", ("runner.logger.experiment_name",))
    assert "one folder" in finding.message or "at most 100 letters" in finding.message
