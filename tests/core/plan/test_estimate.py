import pytest

from joyrlinf_core.errors import ConfigError
from joyrlinf_core.plan import advice
from joyrlinf_core.plan.build import build_plan
from joyrlinf_core.plan.estimate import DOES_NOT_FIT, UNKNOWN, Machine, estimate_all
from joyrlinf_core.plan.hardware import GIB, Card
from joyrlinf_core.plan.roofline import Rates
from joyrlinf_core.plan.rules.changes import changed

SIZED = {"actor.model.model_type": "tests.doubles.sized:SizedModel", "actor.model.row": 10**6}


def machine(gib, **host):
    return Machine(Card("c", int(gib * GIB), 1e12, 1e12, 1e12, "test"), **host)


def estimate(config, *machines):
    return estimate_all(config, machines, Rates())


def test_a_plan_that_fits_has_no_finding(make_config):
    (one,) = estimate(make_config(SIZED), machine(8))
    assert one.fits
    assert one.findings == ()
    # 16 MB of training state and 32 rows of 2 x 10 MB.
    assert one.need == 16_000_000 + 640_000_000
    assert one.throughput.step_seconds > 0


def test_a_tenth_of_the_card_is_left_free(make_config):
    config, need = make_config(SIZED), 656_000_000 / GIB
    assert estimate(config, machine(need / 0.9 + 1e-6))[0].fits
    assert not estimate(config, machine(need / 0.9 - 1e-6))[0].fits


def test_every_suggestion_is_planned_again(make_config):
    config = make_config(SIZED)
    (one,) = estimate(config, machine(0.4))
    (finding,) = one.findings
    assert (finding.code, finding.severity) == (DOES_NOT_FIT, "error")
    assert finding.message == (
        "does not fit: rank 0 needs 0.611 GiB, c has 0.4 GiB, of which 0.36 GiB are to be planned "
        "with"
    )
    assert finding.fix == (
        "actor.micro_batch_size 16 and actor.gradient_accumulation_steps 4, or "
        "actor.gradient_checkpointing true, or actor.precision bf16"
    )
    assert finding.paths[0] == "actor.micro_batch_size"


def fits_within(gib):
    def fits(config):
        plan = build_plan(config, None)
        return not machine(gib).shortage(plan, plan.memory)

    return fits


@pytest.mark.parametrize("gib", [0.6, 0.4, 0.2, 0.1, 0.05, 0.03, 0.025, 0.02])
@pytest.mark.parametrize(
    "placement", [{"env,rollout,actor": "0"}, {"env,rollout,actor": "0-1"}], ids=["one", "two"]
)
def test_suggestions_fit_keep_the_batch_and_are_mild(make_config, gib, placement):
    config = make_config(
        {**SIZED, "cluster.component_placement": placement, "actor.gradient_accumulation_steps": 1}
    )
    fits = fits_within(gib)
    for change in advice.find(config, fits):
        other = changed(config, change)
        assert fits(other)
        for key in change:
            if not key.endswith("accumulation_steps"):
                fewer = {name: value for name, value in change.items() if name != key}
                if key == "actor.micro_batch_size":
                    fewer.pop("actor.gradient_accumulation_steps")
                assert not fewer or not fits(changed(config, fewer))
        if "env.train.total_num_envs" not in change:
            assert (
                build_plan(other, None).batch.optimizer_steps_per_update
                == build_plan(config, None).batch.optimizer_steps_per_update
            )


def test_several_keys_where_none_suffices(make_config):
    # Predicting 80 rows takes 160 MB, the update 640 MB; 50 MiB need both smaller.
    (change,) = advice.find(make_config(SIZED), fits_within(50 / 1024))
    assert change == {
        "actor.micro_batch_size": 1,
        "actor.gradient_accumulation_steps": 64,
        "actor.model.predict_micro_batch_size": 10,
    }


def test_nothing_helps(make_config):
    (one,) = estimate(make_config(SIZED), machine(0.001))
    assert one.findings[0].fix == advice.NOTHING_HELPS


def test_a_fix_is_looked_for_only_where_no_card_suffices(make_config):
    config = make_config(SIZED)
    small, large = estimate(config, machine(0.4), machine(8))
    assert (small.fits, large.fits) == (False, True)
    assert small.findings == large.findings == ()
    small, larger = estimate(config, machine(0.3), machine(0.4))
    assert small.findings == ()
    assert larger.findings


def test_host_memory_of_a_node(make_config):
    # 80 columns of 8 rows of 658 bytes.
    config = make_config({**SIZED, "env.train.rollout_epoch": 8})
    need = 80 * (64 * 658 + 8)
    assert estimate(config, machine(8, host_memory=need * 2))[0].fits
    (one,) = estimate(config, machine(8, host_memory=need))
    assert "rollouts on node 0 take" in one.findings[0].message
    assert one.findings[0].fix == ("env.train.total_num_envs 40, or env.train.rollout_epoch 4")


def test_a_cpu_rank_has_one_memory(make_config):
    config = make_config(SIZED)
    on_cpu = Machine(Card("cpu", 8 * GIB, 1e12, 1e12, 1e12, "test"))
    (one,) = estimate(config, on_cpu)
    assert one.need == 656_000_000 + 80 * (8 * 658 + 8)


def test_unknown_sizes(make_config):
    (one,) = estimate(make_config(), machine(8))
    assert one.throughput is None
    assert one.fits
    assert (one.findings[0].code, one.findings[0].severity) == (UNKNOWN, "warning")


def test_an_invalid_config_is_not_estimated(make_config):
    with pytest.raises(ConfigError):
        estimate(make_config({**SIZED, "algorithm.group_size": 7}), machine(8))


def test_fewer_trained_weights_where_the_family_has_such_a_key(make_config):
    config = make_config({**SIZED, "actor.model.row": 1})
    fixes = advice.find(config, fits_within(0.01))
    assert {"actor.model.train_expert_only": True} in fixes


def test_processes_that_share_a_card_share_its_memory(make_config):
    config = make_config(
        {
            **SIZED,
            "launcher.mps": True,
            "cluster.device": "cuda",
            "cluster.component_placement": {"env,rollout": "0", "actor": "1"},
        }
    )
    plan = build_plan(config, None)
    (_, need), alone = machine(8).fullest(plan, plan.memory), [g.peak for g in plan.memory.ranks]
    assert need == sum(alone) > max(alone)
    assert (
        machine(0.4).shortage(plan, plan.memory).startswith("ranks 0-1, which share a card, need")
    )
