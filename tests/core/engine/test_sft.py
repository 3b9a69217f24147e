from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.engine.harness import make_config, run, stop_in_phase

SFT = {
    "num_demos": 24,
    "expert_noise": 0.2,
    "steps": 120,
    "batch_size": 32,
    "eval_episodes": 24,
    "log_interval": 40,
    "optim": {"lr": 3e-3, "lr_warmup_steps": 5},
}


def test_sft_learns_and_writes_a_policy_that_training_takes(tmp_path: Path) -> None:
    config = make_config(sft=SFT)
    output = tmp_path / "policy"
    status, events = run(config, tmp_path / "sft", job="sft", args={"output": str(output)})
    assert status == "completed"
    first, *_, last = events.steps
    assert last.metrics["sft/action_error"] < first.metrics["sft/action_error"]
    assert last.metrics["sft/loss"] < first.metrics["sft/loss"]
    (evaluation,) = events.evals
    assert (evaluation.label, evaluation.episodes) == ("sft", 24)
    trained = make_config(actor__model__model_path=str(output), runner__max_steps=1)
    status, _ = run(trained, tmp_path / "train")
    assert status == "completed"


def test_sft_from_stored_demonstrations_gives_the_same_policy(tmp_path: Path) -> None:
    short = SFT | {"steps": 5, "eval_episodes": 0}
    a, b = tmp_path / "a", tmp_path / "b"
    run(make_config(sft=short), tmp_path / "runs_a", job="sft", args={"output": str(a)})
    stored = short | {"dataset": str(tmp_path / "runs_a" / "demos")}
    run(make_config(sft=stored), tmp_path / "runs_b", job="sft", args={"output": str(b)})
    name = "model.safetensors"
    assert (a / name).read_bytes() == (b / name).read_bytes()


def test_no_successful_demonstration_is_said(tmp_path: Path) -> None:
    from joyrlinf_core.errors import RunFailedError

    config = make_config(
        sft=SFT | {"num_demos": 2},
        env__train__max_episode_steps=1,
        env__train__close=0.001,
        actor__model__num_action_chunks=1,
    )
    with pytest.raises(RunFailedError, match="none of 2 scripted episodes"):
        run(config, tmp_path / "none", job="sft", args={"output": str(tmp_path / "p")})


@pytest.mark.parametrize(
    ("phase", "status", "made"),
    [("demos", "stopped", False), ("sft", "stopped", False), ("eval", "completed", True)],
)
def test_a_stop_keeps_a_policy_that_is_trained_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str, status: str, made: bool
) -> None:
    stop_in_phase(monkeypatch, phase)
    config = make_config(sft=SFT | {"steps": 5})
    output = tmp_path / "policy"
    ended, events = run(config, tmp_path / "sft", job="sft", args={"output": str(output)})
    assert (ended, output.exists(), events.evals) == (status, made, [])


def test_demonstrations_may_take_longer_than_the_task_allows(tmp_path: Path) -> None:
    from joyrlinf_core.demos import store

    longer = SFT | {"max_episode_steps": 30, "steps": 1, "eval_episodes": 0, "expert_noise": 0.0}
    config = make_config(
        sft=longer, env__train__max_episode_steps=2, actor__model__num_action_chunks=2
    )
    run(config, tmp_path / "run", job="sft", args={"output": str(tmp_path / "p")})
    demonstrations = store.read(tmp_path / "run" / "demos")
    assert len(demonstrations) == SFT["num_demos"]
    assert max(len(demo.actions) for demo in demonstrations) > 2
