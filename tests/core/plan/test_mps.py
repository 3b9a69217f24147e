"""`launcher.mps` in rules and plans."""

import pytest

from joyrlinf_core.config.loader import load_config
from joyrlinf_core.plan.build import build_plan, check_loaded
from joyrlinf_core.plan.catalogue import missing_runtime
from joyrlinf_core.plan.weight_sync import on_one_gpu

PAIRS = {
    "launcher.mps": True,
    "cluster.gpus_per_node": 4,
    "cluster.component_placement": {"env,rollout": "0-1", "actor": "2-3"},
}


@pytest.mark.parametrize(
    ("placement", "refused"),
    [
        ({"env,rollout": "0-1", "actor": "2-3"}, False),
        ({"env,rollout": "0-1,3", "actor": "2"}, False),
        ({"env,rollout": "1,3", "actor": "0,2"}, True),
        ({"env,rollout": "0-1", "actor": "0-3"}, True),
    ],
)
def test_a_gpu_has_one_actor_at_most(load_toy, placement, refused):
    loaded = load_toy({**PAIRS, "cluster.component_placement": placement})
    found = [f for f in check_loaded(loaded) if f.code == "JR212"]
    assert bool(found) == refused
    if refused:
        assert found[0].message == "ranks 0 and 2 share a GPU and are both actors"


def test_jobs_without_roles_have_a_process_a_gpu(make_config):
    plan = build_plan(make_config(PAIRS), "eval")
    assert plan.placement.actor_ranks == (0, 1)
    assert [rank.device for rank in plan.ranks] == [0, 1]
    assert on_one_gpu(plan.placement, {0, 1}, mps=plan.config.launcher.mps) is None
    assert plan.config.cluster.gpus_per_node == 2
    train = build_plan(make_config(PAIRS), "train")
    assert [rank.device for rank in train.ranks] == [0, 1, 0, 1]


def test_the_preset_lacks_its_simulator_alone():
    names = ("maniskill-pi05-async-mps", "maniskill-pi05-async")
    configs = [config for name in names if (config := load_config(name).config) is not None]
    with_mps, without = map(missing_runtime, configs)
    assert with_mps == without
