import pytest

from joyrlinf_core.errors import EnvironmentNotReadyError
from joyrlinf_core.plan.build import build_plan
from joyrlinf_core.plan.rules import check
from joyrlinf_core.plan.weight_sync import weights_over_nccl

APART = {"cluster.component_placement": {"env,rollout": "0", "actor": "1"}}
SHARING = {**APART, "launcher.mps": True}


def plan_of(make_config, overrides):
    return build_plan(make_config({"cluster.device": "cuda", **overrides}), None)


@pytest.mark.parametrize(
    ("overrides", "on_gpus", "expected"),
    [
        (APART, True, True),
        (APART, False, False),
        (SHARING, True, False),
        ({**APART, "algorithm.weight_sync": "gloo"}, True, False),
        ({**APART, "algorithm.weight_sync": "nccl"}, True, True),
    ],
)
def test_weights_go_from_gpu_to_gpu_where_each_rank_has_one(
    make_config, overrides, on_gpus, expected
):
    plan = plan_of(make_config, overrides)
    assert weights_over_nccl(plan, on_gpus=on_gpus) is expected


def test_a_config_that_insists_on_nccl_is_told_why_not(make_config):
    plan = plan_of(make_config, {**APART, "algorithm.weight_sync": "nccl"})
    with pytest.raises(EnvironmentNotReadyError, match="policies run on the CPU"):
        weights_over_nccl(plan, on_gpus=False)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({**SHARING, "cluster.device": "cuda"}, "ranks 0 and 1 share a GPU (`launcher.mps`)"),
        ({**APART, "cluster.device": "cpu"}, "`cluster.device` is cpu"),
        ({**APART, "cluster.device": "cuda"}, None),
    ],
)
def test_the_rule_names_who_is_in_the_way(make_config, overrides, said):
    config = make_config({**overrides, "algorithm.weight_sync": "nccl"})
    found = [one for one in check(config) if one.code == "JR213"]
    if said is None:
        assert not found
    else:
        assert said in found[0].message
        assert found[0].fix == "algorithm.weight_sync auto"
