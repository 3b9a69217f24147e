from __future__ import annotations

import math
from pathlib import Path

import pytest

from joyrlinf_core.engine import learner as learner_module
from joyrlinf_core.errors import CheckpointError, NonFiniteError, RunFailedError
from joyrlinf_core.observability.run_dir import RunDir
from tests.core.engine.harness import (
    largest_difference,
    make_config,
    make_policy,
    run,
    run_ranks,
    stop_in_phase,
    weights,
)

TWO_RANKS = {"env,rollout,actor": "0-1"}


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_policy(tmp_path_factory.mktemp("policy") / "p", make_config()))


@pytest.fixture(scope="module")
def one_rank(policy: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs") / "one"
    run(make_config(actor__model__model_path=policy), root)
    return root


def test_same_seed_gives_bit_identical_weights(policy: str, one_rank: Path, tmp_path: Path) -> None:
    run(make_config(actor__model__model_path=policy), tmp_path / "again")
    assert largest_difference(weights(one_rank, 3), weights(tmp_path / "again", 3)) == 0.0


def test_training_changes_weights_and_another_seed_differs(
    policy: str, one_rank: Path, tmp_path: Path
) -> None:
    config = make_config(actor__model__model_path=policy, runner__seed=8)
    run(config, tmp_path / "other")
    assert largest_difference(weights(one_rank, 3), weights(tmp_path / "other", 3)) > 1e-4


def test_two_ranks_agree_with_one(policy: str, one_rank: Path, tmp_path: Path) -> None:
    config = make_config(
        actor__model__model_path=policy,
        actor__micro_batch_size=8,
        cluster__component_placement=TWO_RANKS,
    )
    run_ranks(config, tmp_path / "two", 2)
    assert largest_difference(weights(one_rank, 3), weights(tmp_path / "two", 3)) < 1e-5


def test_sharded_ranks_agree_with_one(policy: str, one_rank: Path, tmp_path: Path) -> None:
    config = make_config(
        actor__model__model_path=policy,
        actor__micro_batch_size=8,
        actor__fsdp__strategy="fsdp2",
        cluster__component_placement=TWO_RANKS,
    )
    run_ranks(config, tmp_path / "sharded", 2)
    assert largest_difference(weights(one_rank, 3), weights(tmp_path / "sharded", 3)) < 1e-5


def test_resumed_run_equals_an_uninterrupted_one(policy: str, tmp_path: Path) -> None:
    straight = make_config(actor__model__model_path=policy, runner__max_steps=6)
    run(straight, tmp_path / "straight")
    first = make_config(actor__model__model_path=policy, runner__max_steps=3)
    run(first, tmp_path / "parts")
    second = make_config(
        actor__model__model_path=policy,
        runner__max_steps=6,
        runner__resume_dir=str(RunDir(tmp_path / "parts").checkpoint(3)),
    )
    _, events = run(second, tmp_path / "parts")
    assert [step.step for step in events.steps] == [4, 5, 6]
    assert (
        largest_difference(weights(tmp_path / "straight", 6), weights(tmp_path / "parts", 6)) == 0
    )


def test_stages_and_accumulation_do_not_change_the_result(
    policy: str, one_rank: Path, tmp_path: Path
) -> None:
    config = make_config(
        actor__model__model_path=policy,
        rollout__pipeline_stage_num=2,
        actor__micro_batch_size=4,
        actor__gradient_accumulation_steps=4,
    )
    run(config, tmp_path / "staged")
    assert largest_difference(weights(one_rank, 3), weights(tmp_path / "staged", 3)) < 1e-5


def test_ppo_trains_policy_and_value_head(policy: str, tmp_path: Path) -> None:
    config = make_config(
        actor__model__model_path=policy,
        actor__model__add_value_head=True,
        algorithm__adv_type="gae",
        algorithm__loss_type="actor_critic",
        algorithm__group_size=1,
        runner__max_steps=2,
    )
    _, events = run(config, tmp_path / "ppo")
    before, after = events.steps
    assert after.metrics["train/value_loss"] > 0
    assert math.isfinite(after.metrics["train/grad_norm"])
    assert before.metrics["train/samples"] == 2 * before.metrics["rollout/policy_rows"]
    changed = weights(tmp_path / "ppo", 2)
    assert any("value_head" in name for name in changed)


@pytest.mark.parametrize("reward_type", ["chunk_level", "action_level"])
def test_auto_reset_goes_on_across_steps(policy: str, tmp_path: Path, reward_type: str) -> None:
    config = make_config(
        actor__model__model_path=policy,
        env__train__auto_reset=True,
        env__train__max_episode_steps=12,
        env__train__max_steps_per_rollout_epoch=32,
        algorithm__reward_type=reward_type,
        algorithm__logprob_type=reward_type,
    )
    _, events = run(config, tmp_path / "auto")
    assert len(events.steps) == 3
    # Nobody waits under auto-reset: every column plays every chunk.
    assert all(step.metrics["rollout/policy_rows"] == 32 * 8 for step in events.steps)
    assert events.steps[0].metrics["rollout/trajectories"] > 32


def test_action_level_and_filter_run(policy: str, tmp_path: Path) -> None:
    config = make_config(
        actor__model__model_path=policy,
        algorithm__reward_type="action_level",
        algorithm__logprob_type="token_level",
        algorithm__filter_rewards=True,
    )
    status, events = run(config, tmp_path / "filtered")
    assert status == "completed"
    assert all(
        0 <= step.metrics["train/clip_fraction"] <= 1
        for step in events.steps
        if "train/clip_fraction" in step.metrics
    )


def test_time_limit_ends_the_run_with_a_checkpoint(policy: str, tmp_path: Path) -> None:
    config = make_config(
        actor__model__model_path=policy, runner__max_steps=1000, runner__max_seconds=0.01
    )
    status, events = run(config, tmp_path / "short")
    assert status == "completed"
    assert len(events.steps) == 1
    assert weights(tmp_path / "short", 1)


EVALUATES = {
    "runner__eval_at_start": True,
    "runner__eval_at_end": True,
    "runner__val_check_interval": 1,
}


def test_a_stop_before_the_first_step_makes_none_and_saves_nothing(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_in_phase(monkeypatch, "simulators", "eval")
    config = make_config(actor__model__model_path=policy, **EVALUATES)
    status, events = run(config, tmp_path / "run")
    assert (status, events.steps, events.evals) == ("stopped", [], [])
    assert not RunDir(tmp_path / "run").checkpoints.exists()


def test_a_stop_in_an_evaluation_between_steps_keeps_the_step(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_in_phase(monkeypatch, "rollout", "eval")
    config = make_config(actor__model__model_path=policy, **EVALUATES)
    status, events = run(config, tmp_path / "run")
    assert (status, [step.step for step in events.steps]) == ("stopped", [1])
    assert [result.label for result in events.evals] == ["start"]
    assert weights(tmp_path / "run", 1)


def test_a_run_that_was_stopped_in_its_last_evaluation_makes_up_for_it(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = EVALUATES | {"runner__max_steps": 1}
    with monkeypatch.context() as patch:
        stop_in_phase(patch, "rollout", "save", "eval")
        status, events = run(
            make_config(actor__model__model_path=policy, **changes), tmp_path / "run"
        )
    assert (status, len(events.steps)) == ("stopped", 1)
    assert [result.label for result in events.evals] == ["start"]
    resumed = make_config(
        actor__model__model_path=policy,
        runner__resume_dir=str(RunDir(tmp_path / "run").checkpoint(1)),
        **changes,
    )
    status, events = run(resumed, tmp_path / "run")
    assert (status, events.steps) == ("completed", [])
    assert [(result.step, result.label) for result in events.evals] == [(1, "end")]


def test_a_checkpoint_of_another_policy_is_refused_with_the_way_out(
    policy: str, one_rank: Path, tmp_path: Path
) -> None:
    config = make_config(
        actor__model__model_path=policy,
        actor__model__add_value_head=True,
        runner__max_steps=6,
        runner__resume_dir=str(RunDir(one_rank).checkpoint(3)),
    )
    with pytest.raises(CheckpointError, match="does not fit") as caught:
        run(config, tmp_path / "run")
    assert "actor.model" in caught.value.fix


@pytest.mark.parametrize(("max_steps", "status"), [(2, "stopped"), (1, "completed")])
def test_a_stop_request_saves_and_stops_where_steps_are_left(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_steps: int, status: str
) -> None:
    stop_in_phase(monkeypatch, "rollout")
    config = make_config(actor__model__model_path=policy, runner__max_steps=max_steps)
    ended, events = run(config, tmp_path / "run")
    assert (ended, len(events.steps)) == (status, 1)
    assert weights(tmp_path / "run", 1)


def test_another_policy_in_the_update_is_noticed(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = learner_module.Learner.update

    def tampered(self, batch, step):
        for parameter in self._policy.module.parameters():
            parameter.data.mul_(1.5)
        return update(self, batch, step)

    monkeypatch.setattr(learner_module.Learner, "update", tampered)
    with pytest.raises(RunFailedError, match=r"\|ratio - 1\|"):
        run(make_config(actor__model__model_path=policy), tmp_path / "tampered")


def test_non_finite_gradient_stops_the_run(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learner_module, "clip_gradients", lambda *_: math.nan)
    with pytest.raises(NonFiniteError, match="gradient norm"):
        run(make_config(actor__model__model_path=policy), tmp_path / "nan")


def test_non_finite_step_can_be_skipped(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learner_module, "clip_gradients", lambda *_: math.nan)
    config = make_config(
        actor__model__model_path=policy, algorithm__on_nonfinite="skip", runner__max_steps=1
    )
    _, events = run(config, tmp_path / "skip")
    assert events.steps[0].metrics["train/steps_nonfinite"] > 0


def test_evaluation_does_not_depend_on_ranks(policy: str, tmp_path: Path) -> None:
    import json

    rates = []
    for ranks in (1, 2):
        config = make_config(
            actor__model__model_path=policy,
            actor__micro_batch_size=16 // ranks,
            runner__max_steps=1,
            runner__eval_at_start=True,
            cluster__component_placement={"env,rollout,actor": f"0-{ranks - 1}"},
        )
        root = tmp_path / f"ranks{ranks}"
        run_ranks(config, root, ranks)
        lines = (root / "events.jsonl").read_text().splitlines()
        evals = [e for e in map(json.loads, lines) if e["kind"] == "eval"]
        rates.append([(e["episodes"], e["success_rate"], e["mean_steps"]) for e in evals])
    assert rates[0] == rates[1]
    assert rates[0][0][0] == 10
