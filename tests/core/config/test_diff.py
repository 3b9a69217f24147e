import pytest

from joyrlinf_core.config.diff import Difference, differences
from joyrlinf_core.config.dump import inline
from joyrlinf_core.config.loader import load_config
from tests.doubles.toy import TOY_YAML


@pytest.fixture
def load(tmp_path):
    def loaded(*sets, text=TOY_YAML):
        path = tmp_path / "my.yaml"
        path.write_text(text)
        return load_config(path, sets).config

    return loaded


def test_equal_configs(load):
    assert differences(load(), load("runner.max_steps=4", "meta.title=other")) == []


def test_what_is_written_or_default_does_not_matter(load):
    assert differences(load(), load("runner.seed=0", "algorithm.adv_type=grpo")) == []


def test_values_in_the_order_of_the_schema(load):
    found = differences(load(), load("actor.optim.lr=1e-3", "runner.seed=1"))
    assert found == [
        Difference("runner.seed", 0, 1),
        Difference("actor.optim.lr", 1e-5, 1e-3),
    ]


def test_evaluation_inherits_before_it_is_compared(load):
    found = differences(load(), load("env.train.max_episode_steps=40"))
    assert [one.path for one in found] == [
        "env.train.max_episode_steps",
        "env.eval.max_episode_steps",
    ]


def test_a_mapping_that_is_no_section_is_one_value(load):
    (one,) = differences(
        load(),
        load(
            "cluster.component_placement={env,rollout,actor: 0-1}".replace(
                "{env,rollout,actor", "{'env,rollout,actor'"
            )
        ),
    )
    assert one.path == "cluster.component_placement"
    assert (inline(one.a), inline(one.b)) == (
        "{'env,rollout,actor': '0'}",
        "{'env,rollout,actor': 0-1}",
    )


def test_a_key_that_one_side_lacks(load):
    found = differences(load(), load("env.eval=null", "actor.model.model_type=openpi"))
    eval_keys = [one for one in found if one.path.startswith("env.eval.")]
    assert eval_keys
    assert all(one.in_a and not one.in_b for one in eval_keys)
    by_path = {one.path: one for one in found}
    assert by_path["actor.model.width"].to_json() == {"path": "actor.model.width", "a": 16}
    assert by_path["actor.model.variant"].to_json() == {"path": "actor.model.variant", "b": "pi05"}
    places = [i for i, one in enumerate(found) if one.path.startswith("actor.model.")]
    assert places == list(range(places[0], places[-1] + 1)), "a section stays together"


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        1,
        1e-7,
        "yes",
        "12:30",
        "a, b",
        "[x",
        "a: b",
        "a\nb",
        [],
        {},
        ["a,b", 1],
        {"a,b": [1]},
    ],
)
def test_inline_values_are_what_set_takes(load, value):
    config = load(f"algorithm.adv_args={{key: {inline(value)}}}")
    assert config.algorithm.adv_args == {"key": value}
