import json

import pytest

from joyrlinf_core.errors import EnvironmentNotReadyError, UsageError
from joyrlinf_core.launcher.nodes import facts as facts_module
from joyrlinf_core.launcher.nodes.crew import Value
from joyrlinf_core.launcher.nodes.facts import check_same, own_facts
from tests.doubles.checkpoints import write_checkpoint


class Answers:
    """A crew whose other nodes have said already what they will say."""

    node, hosts = 0, ("a", "b", "c")

    def __init__(self, *others):
        self.others = list(others)

    def put(self, label, value, *, limit=None):
        self.values = [value, *self.others.pop(0)]

    def answer(self):
        return [Value(value) for value in self.values]

    def poll(self):
        return []


@pytest.fixture
def config(make_plan):
    return make_plan(nodes=2).config


def facts(config, **more):
    given = {"command": "train", "ranks_per_node": 8, "policy": None, "checkpoint": None}
    return own_facts(config, **{**given, **more})


def test_equal_nodes_go_on(config):
    own = facts(config)
    assert set(own) >= {"joyrl", "python", "torch", "config", "world size", "policy files"}
    check_same(Answers([own, own]), own, config)


def test_versions_name_the_node_and_both_values(config):
    own = facts(config) | {"torch": "2.13.0"}
    with pytest.raises(EnvironmentNotReadyError) as error:
        check_same(Answers([own, own | {"torch": "2.12.1"}]), own, config)
    assert error.value.message == (
        "the nodes differ: torch is 2.13.0 on node 0, a, node 1, b and 2.12.1 on node 2, c"
    )


def test_configs_name_the_keys(config, make_plan):
    keys = {"seed": 7, "logger": {"log_path": "/other", "logger_backends": ["tensorboard"]}}
    other = make_plan(nodes=2, config={"runner": keys}).config
    own, its = facts(config), facts(other)
    assert own["config"] != its["config"]
    documents = [json.loads(facts_module._as_text(one)) for one in (config, other)]
    with pytest.raises(UsageError) as error:
        check_same(Answers([own, its], documents), own, config)
    assert "config key runner.seed is 0 on node 0, a, node 1, b and 7 on node 2, c" in str(
        error.value
    )
    assert "config key runner.logger.logger_backends is [] on node 0, " in str(error.value)
    assert "log_path" not in str(error.value)


def test_places_may_differ_and_what_lies_there_may_not(config, tmp_path):
    logger = config.runner.logger.model_copy(update={"log_path": "/elsewhere"})
    runner = config.runner.model_copy(update={"logger": logger, "resume_dir": "/here"})
    model = config.actor.model.model_copy(update={"model_path": "/there"})
    actor = config.actor.model_copy(update={"model": model})
    moved = config.model_copy(update={"runner": runner, "actor": actor})
    assert facts(moved)["config"] == facts(config)["config"]
    found = []
    for directory, weight in (("a", 1.0), ("b", 1.0), ("c", 2.0)):
        path = tmp_path / directory / "global_step_3"
        write_checkpoint(path)
        (path / "actor" / "meta.json").write_text(str(weight))
        found.append(facts(config, checkpoint=path)["checkpoint"])
    assert found[0] == found[1] != found[2]
    assert found[0].startswith("global_step_3 (")


def test_policies_differ_by_names_and_sizes(config, tmp_path):
    for name, size in (("one", 10), ("two", 11), ("same", 10)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(b"x" * size)
    one, two, same = (
        facts(config, policy=tmp_path / name)["policy files"] for name in ("one", "two", "same")
    )
    assert one == same != two
    assert one.startswith("1 of 10 bytes (")


def test_a_change_of_the_source_is_seen(monkeypatch, tmp_path):
    def digest_of(text):
        (tmp_path / "module.py").write_text(text)
        return facts_module._digest_of_source()

    monkeypatch.setattr(facts_module, "__file__", str(tmp_path / "a" / "b" / "facts.py"))
    assert digest_of("x = 1\n") != digest_of("x = 2\n")
