"""What the fixes of placement and batch rules offer, and which rules wait for others."""

import pytest

from joyrlinf_core.config.loader import load_config
from joyrlinf_core.plan.build import check_loaded
from joyrlinf_core.plan.rules import SKIPPED, check
from tests.core.plan.test_rules import PLACEMENT, changes, codes, errors


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"rollout.pipeline_stage_num": 3}, "not checked: JR104 (after JR102)"),
        ({"algorithm.group_size": 7}, "not checked: JR103 (after JR104)"),
        (
            {PLACEMENT: {"env,rollout": "0", "actor": "0-2"}},
            "not checked: JR103 (after JR105)",
        ),
        (
            {PLACEMENT: {"env,rollout,actor": "1-3"}, "rollout.pipeline_stage_num": 3},
            "not checked: JR101-JR111 (after JR205)",
        ),
    ],
)
def test_rules_that_wait_for_a_broken_one_are_named(make_config, overrides, message):
    *found, skipped = check(make_config(overrides))
    assert skipped.code == SKIPPED
    assert skipped.message == message
    said = message.partition("after ")[2].rstrip(")")
    assert said in codes(found)


def test_envs_that_are_no_whole_groups_are_said_once(make_config):
    apart = {PLACEMENT: {"env,rollout": "0", "actor": "0-1"}, "env.train.total_num_envs": 100}
    assert "JR105" not in codes(check(make_config({**apart, "algorithm.group_size": 8})))
    stages = {**apart, "algorithm.group_size": 8, "rollout.pipeline_stage_num": 3}
    (found,) = [f for f in check(make_config(stages)) if f.code == "JR105"]
    assert "100 envs % group_size 8 = 4" in found.message


def test_a_pair_is_offered_where_no_single_value_is_near(make_config):
    odd = {"actor.micro_batch_size": 48, "actor.gradient_accumulation_steps": 7}
    (found,) = [f for f in check(make_config(odd)) if f.code == "JR103"]
    assert "actor.micro_batch_size" in found.fix
    assert " and actor.gradient_accumulation_steps " in found.fix


def test_a_short_episode_is_mended_at_its_own_key(make_config):
    (found,) = [
        f
        for f in check(
            make_config({"env.train.max_episode_steps": 78, "env.eval.max_episode_steps": 78})
        )
        if f.code == "JR106"
    ]
    assert "env.train.max_episode_steps 40 or 80" in found.fix


TWO_NODES = {
    "cluster.num_nodes": 2,
    "cluster.gpus_per_node": 2,
    "env.eval.total_num_envs": 40,
    "env.train.total_num_envs": 64,
}


@pytest.mark.parametrize(
    ("overrides", "code", "fix"),
    [
        (
            {PLACEMENT: {"env,rollout": "0-1", "actor": "3", "reward": "2"}},
            "JR201",
            '{"env,rollout": "0-1", "actor": "2-3"}',
        ),
        (
            {**TWO_NODES, PLACEMENT: {"env,rollout,actor": "0-1"}},
            "JR205",
            "cluster.placement_basis per_node",
        ),
        (
            {**TWO_NODES, PLACEMENT: {"env,rollout,actor": "0-1"}},
            "JR205",
            '{"env,rollout,actor": "0-3"}',
        ),
        (
            {
                **TWO_NODES,
                "cluster.placement_basis": "per_node",
                PLACEMENT: {"env,rollout": "0", "actor": "2"},
            },
            "JR204",
            '{"env,rollout": "0", "actor": "1"}',
        ),
    ],
)
def test_the_nearest_placement_that_works_is_offered(load_toy, overrides, code, fix):
    found = check_loaded(load_toy(overrides))
    (broken,) = [f for f in found if f.code == code]
    assert fix in broken.fix
    for change in changes(broken.fix):
        assert not errors(check_loaded(load_toy(overrides, change))), change


@pytest.mark.parametrize(
    ("preset", "sets", "fixes"),
    [
        (
            "quickstart",
            "rollout.pipeline_stage_num=96",
            {"JR104": "rollout.pipeline_stage_num 12, or env.train.total_num_envs 1536"},
        ),
        (
            "quickstart",
            f"{PLACEMENT}.env,rollout,actor=0-191",
            {"JR102": "env.train.total_num_envs 6144"},
        ),
        (
            "maniskill-gr00t-sync",
            "actor.model.num_action_chunks=32",
            {
                "JR106": "actor.model.num_action_chunks 10",
                "JR405": "actor.model.num_action_chunks 10",
            },
        ),
        (
            "wan-libero-spatial-pi05-async",
            "actor.model.num_action_chunks=7",
            {
                "JR106": "actor.model.num_action_chunks 8",
                "JR704": "actor.model.num_action_chunks 8",
            },
        ),
        (
            "maniskill-pi05-async-2node",
            "env.train.total_num_envs=385",
            {
                "JR101": "env.train.total_num_envs 384 or 480",
                "JR105": "env.train.total_num_envs 384 or 480",
            },
        ),
        (
            "maniskill-pi05-sync",
            f'{PLACEMENT}={{"env,rollout": 0-3}}',
            {
                "JR201": f'{PLACEMENT} {{"env,rollout": "0-3", "actor": "4-7"}} or '
                '{"env,rollout,actor": "0-3"}'
            },
        ),
        (
            "maniskill-pi05-sync",
            f"{PLACEMENT}.agent=0-7",
            {"JR201": f'{PLACEMENT} {{"env,rollout,actor": "0-7"}}'},
        ),
        ("maniskill-pi05-sync", "cluster.gpus_per_node=9", {"JR205": "cluster.gpus_per_node 8"}),
        (
            "quickstart",
            "env.eval.total_num_envs=999999999",
            {"JR109": "env.eval.total_num_envs 999999996 or 1000000000"},
        ),
        (
            "quickstart",
            "env.eval.total_num_envs=1000000000",
            {},
        ),
    ],
)
def test_what_is_offered_mends_all_that_one_value_can(preset, sets, fixes):
    """What the user set goes first, and no offer leads to another error where one leads to none."""
    found = [f for f in check_loaded(load_config(preset, [sets])) if f.severity == "error"]
    told = {f.code: f.fix for f in found}
    assert {code: told[code] for code in fixes} == fixes
    assert len({(f.code, f.fix) for f in found}) == len(told)
    for code, fix in fixes.items():
        for change in changes(fix):
            after = check_loaded(load_config(preset, [sets, *change]))
            assert not [f for f in after if f.severity == "error" and f.code == code], change


@pytest.mark.parametrize("role", ["env", "rollout", "actor", "env,actor", "rollout,actor"])
@pytest.mark.parametrize("gpus", [None, 4, 8])
def test_a_role_without_ranks_gets_some_and_the_others_keep_theirs(load_toy, role, gpus):
    cluster = {PLACEMENT: {role: "0-3"}, "cluster.gpus_per_node": gpus}
    many = {**cluster, "env.train.total_num_envs": 64, "env.eval.total_num_envs": 64}
    (found,) = [f for f in check_loaded(load_toy(many)) if f.code == "JR201"]
    for change in changes(found.fix):
        loaded = load_toy(many, change)
        assert "JR201" not in codes(check_loaded(loaded)), change
        placed = loaded.config.cluster.component_placement
        ranks = {one: value for key, value in placed.items() for one in key.split(",")}
        assert all(ranks[one] == "0-3" for one in role.split(",")), change
