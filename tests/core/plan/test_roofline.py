import pytest

from joyrlinf_core.plan.batching import build_batch
from joyrlinf_core.plan.build import assemble
from joyrlinf_core.plan.hardware import CARDS, GIB, Card, cpu_card
from joyrlinf_core.plan.memory import footprint_of
from joyrlinf_core.plan.placement import resolve_placement
from joyrlinf_core.plan.roofline import Rates, throughput

FAST_MEMORY = Card("c", 8 * GIB, 2e9, 1e9, float("inf"), "test")
FAST_MATHS = Card("c", 8 * GIB, float("inf"), float("inf"), 1e9, "test")


def speed(make_config, card=FAST_MEMORY, rates=None, **overrides):
    config = make_config({"actor.model.model_type": "tests.doubles.sized:SizedModel", **overrides})
    placement = resolve_placement(config.cluster)
    plan = assemble("train", {}, config, placement, build_batch(config, placement, "train"))
    return throughput(plan, plan.memory, footprint_of(config), card, rates or Rates(mfu=0.5))


def test_arithmetic_bounds(make_config):
    """640 rows of 2 MFLOP and 640 samples of 6 MFLOP, at half of 1 GFLOP/s."""
    found = speed(make_config)
    assert found.predict_seconds == pytest.approx(640 * 2e6 / 5e8)
    assert found.update_seconds == pytest.approx(640 * 6e6 / 5e8)
    assert found.step_seconds == pytest.approx(found.predict_seconds + found.update_seconds)
    assert found.simulation_seconds == 0
    assert found.env_steps_per_second == pytest.approx(6400 / found.step_seconds)


def test_bf16_is_computed_at_its_own_rate(make_config):
    half = speed(make_config, **{"actor.precision": "bf16"})
    assert half.predict_seconds == pytest.approx(speed(make_config).predict_seconds / 2)


def test_memory_bounds(make_config):
    """8 calls read 4 MB of weights; 20 micro-batches read them 3 times; 10 AdamW steps."""
    found = speed(make_config, FAST_MATHS)
    assert found.predict_seconds == pytest.approx(8 * 4e6 / 1e9)
    assert found.update_seconds == pytest.approx(20 * 3 * 4e6 / 1e9 + 10 * 28e6 / 1e9)
    frozen = speed(make_config, FAST_MATHS, **{"actor.model.train_expert_only": True})
    assert frozen.update_seconds == pytest.approx(20 * 1.2 * 4e6 / 1e9 + 10 * 2.8e6 / 1e9)
    smaller = speed(make_config, FAST_MATHS, **{"actor.model.predict_micro_batch_size": 20})
    assert smaller.predict_seconds == pytest.approx(4 * found.predict_seconds)


def test_update_epochs_and_ranks(make_config):
    once = speed(make_config)
    assert speed(make_config, **{"algorithm.update_epoch": 3}).update_seconds == pytest.approx(
        3 * once.update_seconds
    )
    two = speed(make_config, **{"cluster.component_placement": {"env,rollout,actor": "0-1"}})
    assert two.step_seconds == pytest.approx(once.step_seconds / 2)


def test_simulation_adds_up_or_hides(make_config):
    """6400 env steps at 1000 a second take 6.4 s, inference 2.56 s."""
    rates = Rates(mfu=0.5, env_steps_per_second=1000)
    serial = speed(make_config, rates=rates)
    assert serial.simulation_seconds == pytest.approx(6.4)
    assert serial.rollout_seconds == pytest.approx(6.4 + 2.56)
    staged = speed(make_config, rates=rates, **{"rollout.pipeline_stage_num": 2})
    assert staged.rollout_seconds == pytest.approx(6.4 + 2.56 / 8)


def test_async_takes_the_longer_of_the_two(make_config):
    apart = {"cluster.component_placement": {"env,rollout": "0", "actor": "1"}}
    found = speed(make_config, **apart, **{"algorithm.pipeline_mode": "async"})
    assert found.step_seconds == pytest.approx(max(found.rollout_seconds, found.update_seconds))
    after = speed(make_config, **apart)
    assert after.step_seconds == pytest.approx(after.rollout_seconds + after.update_seconds)


def test_sharing_a_card_hides_simulation_alone(make_config):
    shared = {
        "cluster.component_placement": {"env,rollout": "0", "actor": "1"},
        "algorithm.pipeline_mode": "async",
        "launcher.mps": True,
    }
    found = speed(make_config, **shared)
    assert found.step_seconds == pytest.approx(found.predict_seconds + found.update_seconds)
    slow = speed(make_config, rates=Rates(0.5, env_steps_per_second=100), **shared)
    assert slow.step_seconds == pytest.approx(slow.rollout_seconds)


def test_fsdp2_steps_on_a_share_of_the_weights(make_config):
    two = {"cluster.component_placement": {"env,rollout,actor": "0-1"}}
    whole = speed(make_config, FAST_MATHS, **two)
    shard = speed(make_config, FAST_MATHS, **two, **{"actor.fsdp.strategy": "fsdp2"})
    assert whole.update_seconds - shard.update_seconds == pytest.approx(5 * 14e6 / 1e9)


@pytest.mark.parametrize("card", CARDS.values(), ids=CARDS)
def test_cards_are_plausible(card):
    assert 8 * GIB < card.usable < card.memory < 300 * GIB
    assert 1.5 < card.bf16_flops / card.fp32_flops < 40
    # Operations per byte: where the roofline bends.
    assert 50 < card.bf16_flops / card.bandwidth < 500
    assert card.source


def test_a_cpu_is_shared_by_its_ranks():
    one, four = cpu_card(1, 2), cpu_card(4, 2)
    assert one.memory // 4 == four.memory
    assert one.bf16_flops == four.bf16_flops == cpu_card(1, 1).bf16_flops * 2
