import re

import pytest

from joyrlinf_core.config.loader import load_config
from joyrlinf_core.config.schema.base import Section
from joyrlinf_core.errors import ConfigError
from joyrlinf_core.plan.build import build_plan, check_loaded
from joyrlinf_core.plan.rules import RULES, check
from joyrlinf_core.plan.rules.rule import RuleContext
from tests.doubles.toy import TOY_YAML


def codes(findings):
    return [finding.code for finding in findings]


def test_the_base_of_the_examples_has_no_findings(make_config):
    assert check(make_config()) == []


@pytest.mark.parametrize("code", sorted(RULES))
def test_rule_accepts_its_good_example(make_config, code):
    assert code not in codes(check(make_config(RULES[code].passes)))


@pytest.mark.parametrize("code", sorted(RULES))
def test_rule_reports_its_bad_example(make_config, code):
    rule = RULES[code]
    found = [f for f in check(make_config(rule.fails)) if f.code == code]
    assert found
    for finding in found:
        assert finding.paths
        assert all(_is_read(path, rule.reads) for path in finding.paths)
        assert finding.fix or code == "JR402"


def _is_read(path, reads):
    return any(path == r or path.startswith(f"{r}.") or r.startswith(f"{path}.") for r in reads)


@pytest.mark.parametrize("code", sorted(RULES))
def test_rule_is_skipped_where_its_keys_could_not_be_read(make_config, code):
    rule = RULES[code]
    config = make_config(rule.fails)
    for read in rule.reads:
        assert code not in codes(check(config, unparsed=frozenset({read})))
        assert code not in codes(check(config, unparsed=frozenset({read.partition(".")[0]})))


@pytest.mark.parametrize("code", sorted(RULES))
def test_rule_reads_only_what_it_names(make_config, code):
    """Rules run on half-read configs: anything else that they touched could be missing there."""
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
        list(rule.check(RuleContext(Spy(make_config(example), ""))))
    leaves = {t for t in touched if not any(o.startswith(f"{t}.") for o in touched)}
    assert all(_is_read(path, rule.reads) for path in leaves), leaves


@pytest.mark.parametrize("code", ["JR101", "JR102", "JR103", "JR104", "JR106", "JR107", "JR109"])
def test_every_value_in_a_fix_works(make_config, code):
    overrides = dict(RULES[code].fails)
    (finding,) = [f for f in check(make_config(overrides)) if f.code == code]
    tried = 0
    for part in finding.fix.split(", or "):
        key, _, values = part.partition(" ")
        for value in re.findall(r"\d+", values):
            assert code not in codes(check(make_config({**overrides, key: int(value)})))
            tried += 1
    assert tried


def test_samples_message_shows_the_arithmetic(make_config):
    (found,) = check(
        make_config({"actor.micro_batch_size": 24, "actor.gradient_accumulation_steps": 4})
    )
    assert "8 x 80 = 640" in found.message
    assert "24 x 4 = 96" in found.message
    assert "640 % 96 = 64" in found.message
    assert "actor.micro_batch_size 20 or 32" in found.fix


def test_sync_elsewhere_than_colocated_is_for_the_next_release(make_config):
    placement = {"env,rollout": "0-1", "actor": "2-3"}
    found = check(make_config({"cluster.component_placement": placement}))
    assert codes(found) == ["JR206"]
    assert "runs from the next release" in found[0].message


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
    found = check_loaded(load_config(path))
    assert [(f.code, f.line) for f in found] == [("JR012", 2), ("JR103", 15)]


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
    assert codes(check_loaded(load_config(path))) == ["JR013", "JR011", "JR301"]


def test_a_broken_file_runs_no_rule(tmp_path):
    path = tmp_path / "my.yaml"
    path.write_text("a: [")
    assert codes(check_loaded(load_config(path))) == ["JR003"]


def test_policy_directory_that_lacks_files(make_config, tmp_path):
    config = make_config({"actor.model.model_path": str(tmp_path)})
    (found,) = check(config)
    assert (found.code, found.severity) == ("JR402", "error")
    (tmp_path / "weights").touch()
    assert check(config) == []


def test_absent_policy_directory_is_an_error_only_for_a_run(make_config):
    config = make_config({"actor.model.model_path": "/no/such/policy"})
    assert [f.severity for f in check(config)] == ["warning"]
    assert [f.severity for f in check(config, job="train")] == ["error"]
    assert check(config, job="sft") == []


def test_a_policy_may_come_from_the_command_line(make_config):
    config = make_config({"sft": None})
    assert codes(check(config, job="train")) == ["JR401"]
    assert codes(check(config, job="sft")) == ["JR401"]
    assert check(config, job="eval") == []


def test_every_module_keeps_to_its_hundred():
    hundreds = {"batch": "1", "placement": "2", "algorithm": "3", "policy": "4", "runner": "5"}
    for code, rule in RULES.items():
        assert code[2] == hundreds[rule.check.__module__.rpartition(".")[2]]


def test_build_plan_refuses_what_the_rules_refuse(make_config):
    with pytest.raises(ConfigError) as caught:
        build_plan(make_config({"algorithm.group_size": 7}), "train")
    assert codes(caught.value.findings) == ["JR104"]
