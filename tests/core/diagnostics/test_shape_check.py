"""`shape_check`: sound configs pass every check, and each broken layout is reported by name."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest
import torch

from joyrlinf_core.algorithms.advantages import grpo
from joyrlinf_core.algorithms.losses import actor
from joyrlinf_core.batch.flatten import flatten
from joyrlinf_core.config import presets
from joyrlinf_core.config.loader import load_config
from joyrlinf_core.diagnostics.shape_check import shape_check
from joyrlinf_core.diagnostics.shapes import run as shape_run
from joyrlinf_core.diagnostics.shapes import update_checks
from joyrlinf_core.plan.build import build_plan
from tests.doubles.toy import TOY_YAML

ALL = 20
"""Checks of one config."""


def plan_of(name, *sets):
    loaded = load_config(name, sets)
    assert loaded.config is not None, loaded.findings
    return build_plan(loaded.config, None)


def two_actors(*sets):
    """A plan of 2 actors x 4 groups of 8, C 10, D 4, T 6, with the reward filter on."""
    return plan_of(
        "quickstart",
        "cluster.component_placement={'env,rollout,actor': '0-1'}",
        "env.train.total_num_envs=64",
        "rollout.pipeline_stage_num=1",
        "actor.micro_batch_size=32",
        "actor.gradient_accumulation_steps=2",
        "algorithm.filter_rewards=true",
        *sets,
    )


def outcome(report):
    return {check.name: check for check in report.checks}


def failed(report):
    return {check.name for check in report.checks if check.status == "failed"}


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_passes_quickly(name):
    started = time.process_time()
    report = shape_check(plan_of(name))
    assert not failed(report), report.checks
    assert len(report.checks) == ALL
    assert report.ran.t == report.planned.t
    assert time.process_time() - started < 4


def test_tensors_have_the_shapes_of_the_layout_table():
    report = shape_check(two_actors("algorithm.logprob_type=token_level"))
    shapes = {(row.stage, row.tensor): row.shape for row in report.rows}
    assert shapes["rollout", "rewards"] == (6, 32, 10)
    assert shapes["rollout", "prev_logprobs"] == (6, 32, 10, 4)
    assert shapes["rollout", "group"] == (32,)
    assert shapes["advantage", "advantages"] == (6, 32)
    assert shapes["flat", "advantages"] == (192,)
    assert shapes["flat", "prev_logprobs"] == (192, 10, 4)
    assert shapes["micro-batch", "mask"] == (32,)
    assert shapes["loss", "loss"] == ()
    images = next(row for row in report.rows if row.tensor == "inputs.images")
    assert (images.dtype, images.nbytes) == ("uint8", 6 * 32 * 64 * 64 * 3)


def test_large_plans_are_reduced_and_shown_in_full():
    report = shape_check(plan_of("quickstart", "env.train.total_num_envs=2048"))
    planned, ran = report.planned, report.ran
    assert planned.samples > 1024 >= ran.samples
    assert ran.columns % (4 * ran.group_size) == 0
    assert ran.step_rows == planned.step_rows
    rewards = next(row for row in report.rows if row.tensor == "rewards")
    assert rewards.shape == (planned.t, planned.columns, planned.chunk)
    assert rewards.ran == (ran.t, ran.columns, ran.chunk)
    assert rewards.nbytes == 4 * math.prod(rewards.shape)
    assert f"B {ran.columns} of {planned.columns}" in report.notes[0]


HUGE = [
    ("quickstart", "env.train.total_num_envs=999999936"),
    ("quickstart", "env.train.rollout_epoch=100", "env.train.auto_reset=true"),
    ("quickstart", "env.train.rollout_epoch=10000"),
    ("quickstart", "env.train.rollout_epoch=100000000", "env.train.auto_reset=true"),
    ("quickstart", "env.train.max_episode_steps=100000"),
    ("quickstart", "actor.micro_batch_size=57600", "env.train.rollout_epoch=300"),
    (
        "quickstart",
        "algorithm.group_size=100000000",
        "env.train.total_num_envs=400000000",
        "actor.micro_batch_size=1",
        "actor.gradient_accumulation_steps=1",
    ),
    (
        "libero-gr00t-goal-async",
        "env.train.total_num_envs=1000000000",
        "actor.micro_batch_size=100",
    ),
    (
        "maniskill-openvla-oft-sync",
        "env.train.max_episode_steps=1000000",
        "actor.model.num_action_chunks=1000",
        "actor.micro_batch_size=1000",
        "actor.gradient_accumulation_steps=32",
    ),
    (
        "quickstart",
        "cluster.component_placement={'env,rollout,actor': 0-9999}",
        "env.train.total_num_envs=160000",
        "env.eval.total_num_envs=20000",
        "actor.micro_batch_size=48",
        "actor.gradient_accumulation_steps=1",
        "algorithm.update_epoch=1",
    ),
]


@pytest.mark.parametrize("sets", HUGE, ids=range(len(HUGE)))
def test_no_plan_takes_long(sets):
    plan = plan_of(*sets)
    started = time.process_time()
    report = shape_check(plan)
    assert time.process_time() - started < 4, "0.4 to 1.5 s"
    assert not failed(report), report.checks
    assert len(report.checks) == ALL
    assert report.ran.samples <= 8192
    assert report.planned.samples == plan.batch.samples_per_actor


def test_what_is_cut_of_a_huge_plan_is_said():
    report = shape_check(plan_of("quickstart", "env.train.rollout_epoch=10000"))
    assert (report.planned.t, report.ran.t) == (60_000, 12)
    assert (report.ran.groups, report.ran.optimizer_steps) == (4, 4)
    assert "T 12 of 60000" in report.notes[0]
    assert "in full" not in report.notes[0]


def test_pictures_that_take_too_much_are_cut():
    report = shape_check(two_actors("env.train.image_size=512", "actor.model.variant=tiny-pi05"))
    images = next(row for row in report.rows if row.tensor == "inputs.images")
    assert images.shape == (6, 32, 1, 512, 512, 3)
    assert 2 * math.prod(images.ran) <= 64 << 20
    assert f"images as {list(images.ran[2:])}" in report.notes[0]
    assert not failed(report)


@pytest.mark.parametrize(
    ("adv_type", "loss_type", "values"),
    [("grpo", "actor", "false"), ("gae", "actor_critic", "true"), ("gae", "actor", "true")],
)
@pytest.mark.parametrize(
    ("reward_type", "logprob_type"),
    [("chunk_level", "action_level"), ("action_level", "token_level")],
)
@pytest.mark.parametrize("auto_reset", ["false", "true"])
@pytest.mark.parametrize("ignore_terminations", ["false", "true"])
def test_every_kind_of_update_passes(
    adv_type, loss_type, values, reward_type, logprob_type, auto_reset, ignore_terminations
):
    plan = two_actors(
        f"algorithm.adv_type={adv_type}",
        f"algorithm.loss_type={loss_type}",
        f"actor.model.add_value_head={values}",
        f"algorithm.reward_type={reward_type}",
        f"algorithm.logprob_type={logprob_type}",
        f"env.train.auto_reset={auto_reset}",
        f"env.train.ignore_terminations={ignore_terminations}",
        "env.train.max_episode_steps=37",
        "env.train.max_steps_per_rollout_epoch=60",
    )
    report = shape_check(plan)
    assert not failed(report), report.checks
    checks = outcome(report)
    assert checks["advantages of groups"].status == ("ok" if adv_type == "grpo" else "skipped")
    assert "can change the loss" in checks["micro-batches add up"].detail


def test_one_action_a_chunk_and_several_epochs():
    report = shape_check(
        two_actors(
            "actor.model.num_action_chunks=1",
            "env.train.rollout_epoch=2",
            "actor.micro_batch_size=48",
        )
    )
    assert not failed(report), report.checks
    assert "0 episodes end inside a chunk" in outcome(report)["mask ends with the episode"].detail


def test_a_policy_that_tells_nothing_gets_images_and_state(tmp_path):
    (tmp_path / "toy.yaml").write_text(TOY_YAML)
    report = shape_check(plan_of(tmp_path / "toy.yaml"))
    assert not failed(report)
    names = {row.tensor for row in report.rows if row.tensor.startswith(("inputs", "replay"))}
    assert names == {"inputs.images", "inputs.state"}
    assert "do not tell what they store" in report.notes[1]


def test_an_estimator_and_a_loss_of_your_own_are_run():
    report = shape_check(
        two_actors(
            "algorithm.adv_type='tests.docs.examples:leave_one_out'",
            "algorithm.loss_type='tests.docs.examples:unclipped'",
            "algorithm.filter_rewards=false",
        )
    )
    assert not failed(report), report.checks
    assert outcome(report)["reward filter"].status == "skipped"


def test_filter_and_groups_have_something_to_do():
    checks = outcome(shape_check(two_actors()))
    assert checks["reward filter"].detail == "4 of 8 groups kept, bounds [0.1, 0.9]"
    assert checks["scores of episodes and groups"].detail == (
        "64 episodes in 8 groups, 4 with variance"
    )
    assert checks["masked entries are zero"].detail.endswith("weights sum to 32 of 64")


# What follows breaks one thing each and expects to be told of it.


def test_rows_in_another_order(monkeypatch):
    def column_major(batch, result, level):
        def turned(value):
            return value.transpose(0, 1)

        names = ("advantages", "mask", "weights", "valid_actions")
        return flatten(
            batch, replace(result, **{name: turned(getattr(result, name)) for name in names}), level
        )

    monkeypatch.setattr(shape_run, "flatten", column_major)
    report = shape_check(two_actors())
    assert failed(report) == {"row order"}
    assert "chunk step" in outcome(report)["row order"].detail


def test_log_probs_of_other_rows(monkeypatch):
    def rolled(batch, result, level):
        flat = flatten(batch, result, level)
        return replace(flat, prev_logprobs=flat.prev_logprobs.roll(1, 0))

    monkeypatch.setattr(shape_run, "flatten", rolled)
    report = shape_check(two_actors())
    assert failed(report) == {"log-prob level", "first ratio"}
    assert "row 0 is not the sum over" in outcome(report)["log-prob level"].detail


def test_observations_that_are_copied(monkeypatch):
    def copied(batch, result, level):
        flat = flatten(batch, result, level)
        return replace(flat, inputs={name: value.clone() for name, value in flat.inputs.items()})

    monkeypatch.setattr(shape_run, "flatten", copied)
    report = shape_check(two_actors())
    assert failed(report) == {"stored once"}
    assert outcome(report)["stored once"].detail == "inputs.images is copied"


def changed_rollout(monkeypatch, change):
    make = shape_run.make_rollout
    monkeypatch.setattr(shape_run, "make_rollout", lambda *a, **k: change(make(*a, **k)))


def test_log_probs_with_swapped_axes(monkeypatch):
    changed_rollout(
        monkeypatch, lambda b: replace(b, prev_logprobs=b.prev_logprobs.transpose(2, 3))
    )
    report = shape_check(two_actors("algorithm.logprob_type=action_level"))
    checks = outcome(report)
    assert checks["rollout layout"].detail == (
        "prev_logprobs is [6, 32, 4, 10] float32, expected [T, B, C, D] = [6, 32, 10, 4] float32"
    )
    assert "prev_logprobs is [192, 4] float32" in checks["flat layout"].detail
    assert checks["loss can be computed"].status == "failed"
    assert "stored log-probs have shape (32, 4)" in checks["loss can be computed"].detail
    assert checks["micro-batches add up"].status == "skipped"


def test_tokens_that_do_not_divide(monkeypatch):
    changed_rollout(
        monkeypatch, lambda b: replace(b, prev_logprobs=b.prev_logprobs.flatten(2)[..., :39])
    )
    report = shape_check(two_actors())
    checks = outcome(report)
    assert "hold 39 tokens a chunk" in checks["flat batch can be computed"].detail
    assert checks["row order"].detail == "there is no flat batch"
    assert not report.ok


def test_rewards_of_another_type(monkeypatch):
    changed_rollout(monkeypatch, lambda b: replace(b, rewards=b.rewards.double()))
    report = shape_check(two_actors())
    assert "rewards is [6, 32, 10] float64" in outcome(report)["rollout layout"].detail


def test_a_group_on_two_actors():
    """Actor 0 gets half a group of rank 1 for half of its own last one."""
    plan = two_actors()
    first, second = plan.shards
    shards = (
        first.model_copy(update={"columns": 28}),
        first.model_copy(
            update={"source": 1, "source_column": 0, "destination_column": 28, "columns": 4}
        ),
        second.model_copy(update={"source": 0, "source_column": 28, "columns": 4}),
        second.model_copy(update={"source_column": 4, "destination_column": 4, "columns": 28}),
    )
    report = shape_check(plan.model_copy(update={"shards": shards}))
    assert not report.ok
    assert "neighbours" in outcome(report)["groups stay whole"].detail


def test_a_column_that_nobody_gets():
    plan = two_actors()
    short = plan.shards[0].model_copy(update={"columns": 24})
    report = shape_check(plan.model_copy(update={"shards": (short, plan.shards[1])}))
    detail = outcome(report)["groups stay whole"].detail
    assert detail == "actor 0 gets 24 columns, expected B = 32"


def test_a_mask_that_drops_the_ending_action(monkeypatch):
    mask_of = shape_run.episode_mask

    def too_short(batch, *, auto_reset):
        mask = mask_of(batch, auto_reset=auto_reset)
        return replace(mask, valid=mask.valid & ~batch.dones)

    monkeypatch.setattr(shape_run, "episode_mask", too_short)
    report = shape_check(two_actors())
    assert "dropped" in outcome(report)["mask ends with the episode"].detail


def test_a_mask_that_keeps_what_follows(monkeypatch):
    mask_of = grpo.episode_mask

    def too_long(batch, *, auto_reset):
        mask = mask_of(batch, auto_reset=auto_reset)
        return replace(mask, valid=torch.ones_like(mask.valid))

    monkeypatch.setattr(grpo, "episode_mask", too_long)
    assert "late rewards do not count" in failed(shape_check(two_actors()))


def test_a_filter_that_lets_everything_through(monkeypatch):
    monkeypatch.setattr(grpo, "kept_groups", lambda groups, config: groups.size > 0)
    report = shape_check(two_actors())
    assert "reward filter" in failed(report)
    assert "is kept" in outcome(report)["reward filter"].detail


def test_masked_rows_with_a_weight(monkeypatch):
    weights = grpo.trajectory_weights
    monkeypatch.setattr(
        grpo, "trajectory_weights", lambda m, s: torch.full_like(weights(m, s), torch.nan)
    )
    assert "masked entries are zero" in failed(shape_check(two_actors()))


def test_advantages_of_another_formula(monkeypatch):
    standardised = grpo._standardised
    monkeypatch.setattr(grpo, "_standardised", lambda t, g: 2 * standardised(t, g))
    assert failed(shape_check(two_actors())) == {"advantages of groups"}


def test_a_loss_that_averages_over_the_micro_batch(monkeypatch):
    weighted = actor.weighted_sum
    monkeypatch.setattr(actor, "weighted_sum", lambda e, w, n: weighted(e, w, n) / len(w))
    report = shape_check(two_actors())
    assert failed(report) == {"micro-batches add up", "optimizer steps add up"}


def test_minibatches_that_leave_samples_out(monkeypatch):
    cut = shape_run.minibatch.minibatch_rows
    monkeypatch.setattr(
        shape_run.minibatch,
        "minibatch_rows",
        lambda *a, **k: tuple(rows[:-1] for rows in cut(*a, **k)),
    )
    report = shape_check(two_actors())
    assert outcome(report)["minibatches"].detail == "steps of [63] samples, expected 64"


def test_an_active_row_that_is_left_out(monkeypatch):
    active = shape_run.minibatch.active_rows
    monkeypatch.setattr(shape_run.minibatch, "active_rows", lambda *a, **k: active(*a, **k)[1:])
    assert "micro-batches add up" in failed(shape_check(two_actors()))


def test_a_check_that_crashes_hides_no_other(monkeypatch):
    def crash(run):
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(update_checks, "row_order", crash)
    report = shape_check(two_actors())
    assert outcome(report)["row order"].detail == "ZeroDivisionError: by zero"
    assert failed(report) == {"row order"}
    assert len(report.checks) == ALL
