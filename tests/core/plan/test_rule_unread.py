"""A key that could not be read keeps only those rules from being checked that come to it."""

import pytest

from joyrlinf_core.config.loader import load_config
from joyrlinf_core.plan.build import check_loaded
from joyrlinf_core.plan.rules import SKIPPED
from joyrlinf_core.plan.rules.unread import UnreadKeyError, guarded

FILTER = {"algorithm.filter_rewards": True, "algorithm.rewards_lower_bound": 1.5}
METAWORLD = {"type": "metaworld", "total_num_envs": 80, "max_episode_steps": 80}
LIBERO = {"type": "libero", "total_num_envs": 80, "max_episode_steps": 80}
OFT = {"model_type": "openvla_oft", "num_action_chunks": 8, "num_images_in_input": 3}
GR00T = {"model_type": "gr00t", "num_action_chunks": 10}


def test_a_guarded_section_raises_where_an_unread_key_is_asked_for(make_config):
    config = make_config({"env.train": LIBERO, "env.eval": None})
    safe = guarded(config, {"env.train.max_episode_steps", "algorithm.gamma", "sft"})
    assert safe.env.train.largest_return == 1.0  # `use_rel_reward` is on: no episode length
    assert safe.env.train.action_dim == 7
    assert type(safe.env.train).__name__ == "LiberoConfig"
    assert safe.algorithm.group_size == config.algorithm.group_size
    for read, key in (
        (lambda: safe.env.train.steps_per_epoch, "env.train.max_episode_steps"),
        (lambda: getattr(safe.algorithm, "gamma", None), "algorithm.gamma"),
        (lambda: safe.sft, "sft"),
    ):
        with pytest.raises(UnreadKeyError) as raised:
            read()
        assert raised.value.key == key
    assert config.env.train.steps_per_epoch == 80  # the config itself stays readable


def test_a_guard_covers_what_is_inside_a_mapping(make_config):
    safe = guarded(make_config(), {"cluster.component_placement.actor"})
    with pytest.raises(UnreadKeyError, match=r"component_placement\.actor"):
        _ = safe.cluster.component_placement
    assert safe.cluster.num_nodes == 1


@pytest.mark.parametrize(
    ("overrides", "bad", "code"),
    [
        (FILTER, {"env.train.num_workers": "many"}, "JR304"),
        (FILTER, {"env.train.image_size": "huge"}, "JR304"),
        (
            {"algorithm.filter_rewards": True, "algorithm.rewards_upper_bound": 4.5},
            {"env.train.no_such_key": 1},
            "JR305",
        ),
        ({"actor.model.action_dim": 7}, {"env.train.total_num_envs": "x"}, "JR406"),
        ({"algorithm.entropy_bonus": 0.01}, {"actor.model.add_value_head": "x"}, "JR309"),
        (
            {"actor.model": {**OFT, "num_action_chunks": 10}, "env.train": LIBERO},
            {"env.train.settle_steps": "x"},
            "JR412",
        ),
        (
            {"actor.model": {**GR00T, "padding_value": 512}, "env.train": LIBERO},
            {"env.train.rollout_epoch": "x"},
            "JR413",
        ),
        (
            {"env.eval.total_num_envs": 3, "rollout.pipeline_stage_num": 2},
            {"env.eval.reward_coef": "x"},
            "JR109",
        ),
        (
            {"profiler.enable": True, "profiler.steps": [0, 3]},
            {"profiler.save_path": 3},
            "JR503",
        ),
    ],
)
def test_a_bad_value_beside_does_not_hide_a_rule(load_toy, overrides, bad, code):
    base = {"env.train": METAWORLD, "env.eval": None} if "env.train.image_size" in bad else {}
    if "env.train" in overrides:
        base = {"env.eval": None}
    found = check_loaded(load_toy({**base, **overrides, **bad}))
    codes = [finding.code for finding in found if finding.code.startswith(("JR011", "JR012"))]
    assert codes, "the bad value itself is reported"
    assert code in [finding.code for finding in found]


def test_what_a_rule_comes_to_is_named(load_toy):
    overrides = {"env.train": {**LIBERO, "use_rel_reward": False}, "env.eval": None}
    *_, skipped = check_loaded(load_toy({**overrides, **FILTER, "env.train.max_episode_steps": 0}))
    assert skipped.code == SKIPPED
    needs = next(part for part in skipped.message.split("; ") if "max_episode_steps" in part)
    assert "JR304" in needs
    *_, skipped = check_loaded(load_toy({**overrides, "env.train.max_episode_steps": 0}))
    assert "JR304" not in skipped.message, "without the filter the rule does not ask"


def test_a_base_that_is_not_there_is_named_and_not_what_it_would_bring(tmp_path):
    path = tmp_path / "my.yaml"
    path.write_text("extends: nope\nrunner:\n  seed: 3\nsft:\n  seed: 3\n")
    *_, skipped = check_loaded(load_config(path))
    assert skipped.code == SKIPPED
    assert "rules that need what `extends` would bring" in skipped.message
    assert len(skipped.message) < 80


def test_dozens_of_rules_are_counted(tmp_path):
    path = tmp_path / "my.yaml"
    path.write_text("extends: quickstart\nenv:\n  train: 3\n")
    *_, skipped = check_loaded(load_config(path))
    assert " more (need env" in skipped.message
    assert len(skipped.message) < 300
