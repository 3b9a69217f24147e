import json
import re

import pytest

from joyrlinf_core.config.loader import load_config
from joyrlinf_core.config.schema.base import Section
from joyrlinf_core.errors import ConfigError
from joyrlinf_core.plan.build import build_plan, check_loaded
from joyrlinf_core.plan.rules import RULES, SKIPPED, Origins, check
from joyrlinf_core.plan.rules.rule import RuleContext
from tests.doubles.toy import TOY_YAML

PLACEMENT = "cluster.component_placement"


def codes(findings):
    return [finding.code for finding in findings]


def errors(findings):
    return sorted(f.code for f in findings if f.severity == "error")


def written(overrides):
    """The overrides are what the user wrote."""
    return Origins(frozenset(overrides))


def test_the_base_of_the_examples_has_no_findings(make_config):
    assert check(make_config()) == []


@pytest.mark.parametrize("code", sorted(RULES))
def test_rule_accepts_its_good_example(make_config, code):
    rule = RULES[code]
    config = make_config(rule.passes)
    assert RuleContext(config).applies(rule)
    assert code not in codes(check(config, origins=written(rule.passes)))


@pytest.mark.parametrize("code", sorted(RULES))
def test_rule_reports_its_bad_example(make_config, code):
    rule = RULES[code]
    found = check(make_config(rule.fails), origins=written(rule.fails))
    found = [f for f in found if f.code == code]
    assert found
    for finding in found:
        assert finding.paths
        assert all(_is_read(path, rule.reads) for path in finding.paths)
        assert finding.fix


def _is_read(path, reads):
    return any(path == r or path.startswith(f"{r}.") or r.startswith(f"{path}.") for r in reads)


@pytest.mark.parametrize("code", sorted(RULES))
def test_rule_is_skipped_where_its_keys_could_not_be_read(make_config, code):
    rule = RULES[code]
    config = make_config(rule.fails)
    for read in rule.reads:
        for bad in (read, read.partition(".")[0]):
            found = check(config, unparsed=frozenset({bad}), origins=written(rule.fails))
            assert code not in codes(found)
            assert bad in found[-1].message


@pytest.mark.parametrize("code", sorted(RULES))
def test_rule_reads_only_what_it_names(make_config, code, monkeypatch):
    """Rules run on half-read configs: anything else that they touched could be missing there."""
    # Trying out a fix reads everything, with all its rules' own skips.
    monkeypatch.setattr(RuleContext, "mends", lambda *_: False)
    rule = RULES[code]
    touched = set()

    class Spy:
        def __init__(self, target, path):
            self.__dict__.update(_target=target, _path=path)

        def __getattr__(self, name):
            value = getattr(self._target, name)
            path = f"{self._path}.{name}" if self._path else name
            if name in type(self._target).model_fields:
                touched.add(path)
                return Spy(value, path) if isinstance(value, Section) else value
            if isinstance(getattr(type(self._target), name, None), property):
                return getattr(type(self._target), name).fget(self)
            return value

    for example in (rule.passes, rule.fails):
        config = Spy(make_config(example), "")
        list(rule.check(RuleContext(config, origins=written(example))))
    leaves = {t for t in touched if not any(o.startswith(f"{t}.") for o in touched)}
    assert all(_is_read(path, rule.reads) for path in leaves), leaves


# --- fixes ------------------------------------------------------------------------------------

_KEY = re.compile(r"[a-z_]+(\.[a-z_]+)+ ")

ADVICE_ONLY = {
    *("JR202", "JR401", "JR402", "JR403", "JR408", "JR409", "JR501", "JR507", "JR701"),
    *("JR702", "JR706"),
    *(code for code in RULES if code.startswith("JR8")),
}
"""Rules whose fix holds no value that could be tried."""


def changes(fix):
    """Yield the changes that a fix names, each a list of `--set` arguments."""
    for alternative in fix.split(", or "):
        if not _KEY.match(alternative):
            continue
        *together, last = alternative.split(" and ")
        fixed = ["=".join(part.split(" ", 1)) for part in together]
        key, _, values = last.partition(" ")
        for value in values.partition(", with ")[0].split(" or "):
            yield [*fixed, f"{key}={value}"]


MORE_EXAMPLES = [
    ("JR101", {"env.train.total_num_envs": 81, PLACEMENT: {"env,rollout,actor": "0-1"}}),
    ("JR103", {"actor.gradient_accumulation_steps": 7}),
    ("JR103", {"env.train.rollout_epoch": 3, "actor.micro_batch_size": 128}),
    ("JR105", {PLACEMENT: {"env,rollout": "0-1", "actor": "0-3"}}),
    ("JR106", {"actor.model.num_action_chunks": 9}),
    ("JR109", {"env.eval.total_num_envs": 41, PLACEMENT: {"env,rollout,actor": "0-4"}}),
    (
        "JR110",
        {
            PLACEMENT: {"env": "0", "rollout": "1-4", "actor": "0"},
            "algorithm.group_size": 40,
            "env.eval": None,
        },
    ),
    ("JR111", {"env.train.infer_micro_batch_size": 200}),
    ("JR201", {PLACEMENT: {"env": "0"}, "cluster.gpus_per_node": 2}),
    ("JR203", {PLACEMENT: {"env,rollout,actor": "all"}}),
    ("JR204", {PLACEMENT: {"env,rollout,actor": "0-4"}, "cluster.gpus_per_node": 2}),
    ("JR205", {PLACEMENT: {"env,rollout": "0", "actor": "2"}}),
    ("JR205", {PLACEMENT: {"env,rollout,actor": "0-1"}, "cluster.gpus_per_node": 4}),
    ("JR208", {"algorithm.pipeline_mode": "async"}),
    (
        "JR208",
        {
            "algorithm.pipeline_mode": "async",
            "cluster.num_nodes": 2,
            "cluster.gpus_per_node": 2,
            PLACEMENT: {"env,rollout,actor": "all"},
            "env.eval.total_num_envs": 40,
        },
    ),
    (
        "JR301",
        {
            "algorithm.group_size": 1,
            "env.train.total_num_envs": 20,
            "actor.micro_batch_size": 40,
        },
    ),
    ("JR302", {"algorithm.adv_type": "gae"}),
    (
        "JR304",
        {
            "algorithm.filter_rewards": True,
            "algorithm.rewards_lower_bound": 3,
            "algorithm.rewards_upper_bound": 4,
        },
    ),
    (
        "JR309",
        {
            "actor.model": {
                "model_type": "openpi",
                "variant": "tiny-pi0",
                "num_action_chunks": 10,
            },
            "algorithm.entropy_bonus": 0.01,
        },
    ),
    ("JR502", {"runner.save_interval": 7, "runner.val_check_interval": 10}),
    ("JR503", {"profiler.enable": True, "profiler.ranks": [0, 5]}),
    ("JR505", {"profiler.enable": True, "algorithm.pipeline_mode": "async"}),
    (
        "JR703",
        {
            "env.train": {"type": "wan", "total_num_envs": 80},
            "env.eval": None,
            "algorithm.pipeline_mode": "async",
            PLACEMENT: {"env,rollout": "0", "actor": "1"},
        },
    ),
]


@pytest.mark.parametrize(
    ("code", "example"), [(code, RULES[code].fails) for code in sorted(RULES)] + MORE_EXAMPLES
)
def test_every_value_in_a_fix_works(load_toy, code, example):
    """Applied through the loader, it removes the finding and adds no error."""
    before = check_loaded(load_toy(example))
    found = [finding for finding in before if finding.code == code]
    assert found
    tried = 0
    for finding in found:
        for change in changes(finding.fix):
            after = check_loaded(load_toy(example, change))
            assert codes(after).count(code) < len(found), change
            assert not set(errors(after)) - set(errors(before)), change
            tried += 1
    assert bool(tried) == (code not in ADVICE_ONLY) or example is not RULES[code].fails


def test_a_fix_that_would_break_another_rule_is_not_suggested(make_config):
    # 84 steps would make whole chunks of 7, but 12 x 80 samples are no whole batches of 128.
    config = make_config({"actor.model.num_action_chunks": 7, "actor.micro_batch_size": 64})
    (finding,) = [f for f in check(config) if f.code == "JR106"]
    assert "84" not in finding.fix


def test_a_fix_knows_that_evaluation_inherits(load_toy):
    """No number of envs divides both 3 ranks for training and what evaluation was given."""
    example = {PLACEMENT: {"env,rollout,actor": "0-2"}, "env.eval": {}}
    loaded = load_toy({**example, "env.eval": {"total_num_envs": 42}})
    found, _ = check_loaded(loaded)
    assert found.fix == "env.train.total_num_envs 72 or 96"


# --- messages ---------------------------------------------------------------------------------


def test_samples_message_shows_the_arithmetic(make_config):
    (found,) = check(
        make_config({"actor.micro_batch_size": 24, "actor.gradient_accumulation_steps": 4})
    )
    assert "8 x 80 = 640" in found.message
    assert "24 x 4 = 96" in found.message
    assert "640 % 96 = 64" in found.message
    assert "actor.micro_batch_size 20 or 32" in found.fix


@pytest.mark.parametrize(
    ("overrides", "code", "parts"),
    [
        (
            {PLACEMENT: {"env": "0", "rollout": "1-3", "actor": "0"}},
            "JR110",
            ["80 envs / 1 stage = 80", "80 % 3 rollout ranks = 2"],
        ),
        (
            {
                PLACEMENT: {"env": "0", "rollout": "1-4", "actor": "0"},
                "algorithm.group_size": 40,
            },
            "JR110",
            ["80 envs / 4 rollout ranks / 1 stage = 20 envs; 20 % group_size 40 = 20"],
        ),
        (
            {PLACEMENT: {"env": "0-1", "rollout": "2-4", "actor": "0"}},
            "JR109",
            ["40 % (6, for 2 env ranks and 3 rollout ranks, x 1 stage) = 4"],
        ),
        (
            {"env.train.infer_micro_batch_size": 200},
            "JR111",
            ["infer_micro_batch_size 200 has no effect: a call has 80 envs at most"],
        ),
        (
            {"runner.save_interval": 25, "runner.val_check_interval": 10},
            "JR502",
            ["save_interval 25 % val_check_interval 10 = 5"],
        ),
        ({"algorithm.pipeline_mode": "async"}, "JR208", ["rollout 0 and actor 0 share 0"]),
    ],
)
def test_messages_show_numbers(make_config, overrides, code, parts):
    (found,) = [f for f in check(make_config(overrides)) if f.code == code]
    assert all(part in found.message for part in parts), found.message


@pytest.mark.parametrize(
    ("save", "evaluate", "reported"),
    [(10, 5, False), (5, 10, True), (-1, 10, False), (0, 3, False), (10, -1, False), (7, 0, False)],
)
def test_intervals_that_are_off_are_not_compared(make_config, save, evaluate, reported):
    config = make_config({"runner.save_interval": save, "runner.val_check_interval": evaluate})
    assert ("JR502" in codes(check(config))) == reported


@pytest.mark.parametrize(
    ("reward", "logprob", "legal"),
    [
        ("chunk_level", "chunk_level", True),
        ("chunk_level", "action_level", True),
        ("chunk_level", "token_level", True),
        ("action_level", "action_level", True),
        ("action_level", "token_level", True),
        ("action_level", "chunk_level", False),
    ],
)
def test_pairs_of_levels(make_config, reward, logprob, legal):
    config = make_config({"algorithm.reward_type": reward, "algorithm.logprob_type": logprob})
    usual = reward == logprob == "chunk_level"
    expected = [] if usual else ["JR308"] if legal else ["JR303"]
    assert codes(check(config)) == expected


@pytest.mark.parametrize(
    ("low", "high", "coef", "mode", "expected"),
    [
        (0.1, 0.9, 1.0, "success", []),
        (0.5, 4.5, 5.0, "success", []),
        (0.5, 4.5, 1.0, "success", ["JR305"]),
        (-0.1, 0.9, 1.0, "success", ["JR305"]),
        (1.5, 4.5, 1.0, "success", ["JR304"]),
        (0.9, 0.1, 1.0, "success", ["JR304"]),
        (20.0, 40.0, 1.0, "dense", []),
    ],
)
def test_bounds_of_the_filter(make_config, low, high, coef, mode, expected):
    config = make_config(
        {
            "algorithm.filter_rewards": True,
            "algorithm.rewards_lower_bound": low,
            "algorithm.rewards_upper_bound": high,
            "env.train.reward_coef": coef,
            "env.train.reward_mode": mode,
        }
    )
    assert codes(check(config)) == expected


def test_bounds_that_cross_are_swapped_once(make_config):
    config = make_config(
        {
            "algorithm.filter_rewards": True,
            "algorithm.rewards_lower_bound": 0.9,
            "algorithm.rewards_upper_bound": 0.1,
        }
    )
    (found,) = check(config)
    assert found.fix == ("algorithm.rewards_lower_bound 0.1 and algorithm.rewards_upper_bound 0.9")


def test_a_horizon_that_only_the_variant_tells_is_a_warning(make_config):
    model = {"model_type": "openpi", "variant": "pi05", "num_action_chunks": 16}
    (found,) = [f for f in check(make_config({"actor.model": model})) if f.code == "JR405"]
    assert (found.severity, "16 > 10" in found.message) == ("error", True)
    elsewhere = {**model, "model_path": "/no/such/policy"}
    (found,) = [f for f in check(make_config({"actor.model": elsewhere})) if f.code == "JR405"]
    assert (found.severity, "as far as `variant` tells" in found.message) == ("warning", True)


def test_an_empty_eval_line_is_told_what_to_write(load_toy):
    found = check_loaded(load_toy({"runner.eval_at_end": True, "env.eval": None}))
    (found,) = [f for f in found if f.code == "JR501"]
    assert found.fix.startswith("write `eval: {}`")


# --- placement and what this version can't run ------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "placement", "expected"),
    [
        ("sync", {"env,rollout": "0-1", "actor": "2-3"}, []),
        ("sync", {"env,rollout": "0", "actor": "0-1"}, []),
        ("async", {"env,rollout": "0-1", "actor": "2-3"}, []),
        ("async", {"env": "0-1", "rollout": "2-3", "actor": "4"}, []),
        ("async", {"env": "0-1", "rollout": "2-3", "actor": "0-1"}, []),
        ("async", {"env,rollout": "0-1", "actor": "1"}, ["JR208", SKIPPED]),
    ],
)
def test_overlap_by_mode(make_config, mode, placement, expected):
    config = make_config({"algorithm.pipeline_mode": mode, PLACEMENT: placement})
    assert codes(check(config)) == expected


@pytest.mark.parametrize(
    ("overrides", "code"),
    [
        ({"actor.model.model_type": "tests.doubles.toy:PlannedModel"}, "JR403"),
        ({"env.train.type": "tests.doubles.toy:PlannedEnv"}, "JR701"),
        (
            {
                "env.eval.type": "tests.doubles.toy:PlannedEnv",
                "env.eval.max_episode_steps": 80,
            },
            "JR701",
        ),
    ],
)
def test_what_this_version_can_not_run_is_planned_and_refused(make_config, overrides, code):
    config = make_config(overrides)
    assert [(f.code, f.severity) for f in check(config)] == [(code, "info")]
    for job in ("train", "sft", "eval"):
        assert [(f.code, f.severity) for f in check(config, job=job)] == [(code, "error")]
    build_plan(config, None)
    with pytest.raises(ConfigError):
        build_plan(config, "train")


# --- files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["JR402", "JR408", "JR409", "JR507", "JR702"])
def test_an_absent_file_is_an_error_only_for_a_run(make_config, code):
    config = make_config(RULES[code].fails)

    def severities(**options):
        return [f.severity for f in check(config, **options) if f.code == code]

    assert severities() == ["warning"]
    assert severities(check_paths=True) == ["error"]
    assert severities(job="train") == ["error"]


def test_policy_directory_that_lacks_files(make_config, tmp_path):
    config = make_config({"actor.model.model_path": str(tmp_path)})
    (found,) = check(config)
    assert (found.code, found.severity) == ("JR402", "error")
    (tmp_path / "weights").touch()
    assert check(config) == []


def test_a_policy_directory_matters_only_to_training(make_config):
    config = make_config({"actor.model.model_path": "/no/such/policy"})
    assert check(config, job="sft") == []
    assert check(config, job="eval") == []


def test_a_policy_may_come_from_the_command_line(make_config):
    config = make_config({"sft": None})
    assert codes(check(config, job="train")) == ["JR401"]
    assert codes(check(config, job="sft")) == ["JR401"]
    assert check(config, job="eval") == []


def test_a_checkpoint_must_be_whole(make_config, tmp_path):
    directory = tmp_path / "global_step_3"
    (directory / "actor").mkdir(parents=True)
    for name in ("meta.json", "model.pt", "optimizer.pt"):
        (directory / "actor" / name).touch()
    config = make_config({"runner.resume_dir": f"{directory}/"})
    (found,) = check(config, job="train")
    assert found.message.endswith("actor/ lacks scheduler.pt")
    (directory / "actor" / "scheduler.pt").touch()
    assert check(config, job="train") == []
    (found,) = check(make_config({"runner.resume_dir": f"{directory}", "runner.max_steps": 3}))
    assert "nothing is left to do" in found.message
    (found,) = check(make_config({"runner.resume_dir": str(tmp_path)}))
    assert "does not end in `global_step_<N>`" in found.message


# --- keys without effect ----------------------------------------------------------------------


def test_only_own_keys_without_effect_are_reported(load_toy, tmp_path):
    found = check_loaded(load_toy({"algorithm.gamma": 0.9}))
    assert [(f.code, f.severity, f.line) for f in found] == [("JR801", "warning", 2)]
    (tmp_path / "above.yaml").write_text("extends: my.yaml\nrunner: {max_steps: 5}\n")
    above = tmp_path / "above.yaml"
    assert check_loaded(load_config(above)) == ()
    (found,) = check_loaded(load_config(above, ["algorithm.gae_lambda=0.9"]))
    assert (found.code, found.paths) == ("JR801", ("algorithm.gae_lambda",))


def test_a_file_that_writes_every_key_is_not_taken_at_its_word(make_config, tmp_path):
    from joyrlinf_core.config.dump import dump_config

    path = tmp_path / "config.yaml"
    path.write_text(dump_config(make_config()))
    assert check_loaded(load_config(path)) == ()
    assert codes(check_loaded(load_config(path, ["algorithm.gamma=0.9"]))) == ["JR801"]


def test_episodes_of_training_serve_evaluation(load_toy):
    assert check_loaded(load_toy({"env.train.num_episodes": 50})) == ()


# --- what could not be read -------------------------------------------------------------------


def test_independent_problems_come_together(make_config):
    found = check(
        make_config(
            {
                "algorithm.group_size": 7,
                "runner.eval_at_start": True,
                "env.eval": None,
                "algorithm.adv_type": "gae",
                "rollout.pipeline_stage_num": 3,
            }
        )
    )
    assert {"JR102", "JR302", "JR501"} <= set(codes(found))


def test_schema_errors_do_not_hide_rules(tmp_path):
    path = tmp_path / "my.yaml"
    text = TOY_YAML.replace("max_steps: 4", "max_stepz: 4").replace(
        "micro_batch_size: 32", "micro_batch_size: 30"
    )
    path.write_text(text)
    *found, skipped = check_loaded(load_config(path))
    assert [(f.code, f.line) for f in found] == [("JR012", 2), ("JR103", 15)]
    assert (skipped.code, skipped.severity) == (SKIPPED, "info")
    assert skipped.message == "not checked: JR503, JR504 (need runner.max_steps)"


def test_skipped_rules_are_named_with_what_they_wait_for(make_config):
    found = check(
        make_config(), unparsed=frozenset({"actor.micro_batch_size", "runner.save_interval"})
    )
    (skipped,) = found
    assert skipped.message.startswith("not checked: JR101-JR108, JR110, JR111 (need actor.micro")
    assert skipped.message.endswith("; JR502 (needs runner.save_interval)")
    assert json.dumps(skipped.to_json())


def test_rules_for_other_classes_are_not_called_skipped(make_config):
    (skipped,) = check(make_config(), unparsed=frozenset({"algorithm.pipeline_mode"}))
    assert "JR703" not in skipped.message  # the toy has no enable_offload


def test_the_caret_goes_where_the_user_wrote(tmp_path):
    (tmp_path / "base.yaml").write_text(TOY_YAML)
    path = tmp_path / "my.yaml"
    path.write_text("extends: base.yaml\nactor: {gradient_accumulation_steps: 7}\n")
    (found,) = check_loaded(load_config(path))
    assert (found.code, found.paths[0]) == ("JR103", "actor.gradient_accumulation_steps")
    assert (found.file, found.line) == (str(path), 2)
    (found,) = check_loaded(load_config(path, ["env.train.total_num_envs=96"]))
    assert (found.paths[0], found.file) == ("env.train.total_num_envs", None)


def test_sections_that_failed_take_their_rules_along(tmp_path):
    path = tmp_path / "my.yaml"
    path.write_text("env: {train: {type: nope}}\nactor: 3\nalgorithm: {group_size: 1}\n")
    *found, skipped = check_loaded(load_config(path))
    assert codes(found) == ["JR013", "JR011", "JR301"]
    assert "need actor" in skipped.message


def test_a_broken_file_runs_no_rule(tmp_path):
    path = tmp_path / "my.yaml"
    path.write_text("a: [")
    assert codes(check_loaded(load_config(path))) == ["JR003"]


def test_every_module_keeps_to_its_hundred():
    hundreds = {
        "batch": "1",
        "batch_calls": "1",
        "launcher": "2",
        "placement": "2",
        "algorithm": "3",
        "policy": "4",
        "policy_inputs": "4",
        "runner": "5",
        "env": "7",
        "unused": "8",
        "unused_settings": "8",
    }
    for code, rule in RULES.items():
        assert code[2] == hundreds[rule.check.__module__.rpartition(".")[2]]


def test_build_plan_refuses_what_the_rules_refuse(make_config):
    with pytest.raises(ConfigError) as caught:
        build_plan(make_config({"algorithm.group_size": 7}), "train")
    assert codes(caught.value.findings) == ["JR104", SKIPPED]


@pytest.mark.parametrize(
    ("sets", "fix"),
    [
        (["env.eval.num_episodes=1001"], "env.eval.num_episodes 900, or env.eval.eval_split all"),
        (["env.eval.num_episodes=5001"], "env.eval.num_episodes 900"),
        (["env.eval.eval_split=all", "env.eval.num_episodes=5000"], "env.eval.num_episodes 4500"),
    ],
)
def test_libero_says_how_many_episodes_it_has(sets, fix):
    loaded = load_config("libero-pi05-90", sets)
    (found,) = [f for f in check_loaded(loaded) if f.severity == "error"]
    assert (found.code, found.paths[0]) == ("JR508", "env.eval.num_episodes")
    assert found.fix == fix
