"""Faults in real runs of three ranks: who is blamed, how fast the run ends, how it goes on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from joyrlinf_core.checkpoint.store import latest
from tests.core.engine.harness import make_config, make_policy
from tests.doubles import warm_start
from tests.e2e.fault_runs import END_SECONDS, Campaign, check_failed, check_left

MODES = {
    "sync": {},
    "async": {"algorithm__pipeline_mode": "async", "algorithm__max_staleness": 1},
}


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A policy directory and the socket of a warm start."""
    root = tmp_path_factory.mktemp("w")
    policy = make_policy(root / "policy", make_config())
    with warm_start.serving(root) as server:
        yield policy, server


@pytest.fixture(scope="module", params=MODES)
def campaign(
    request: pytest.FixtureRequest,
    parts: tuple[Path, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Campaign:
    """A run that has made a step, to be ruined again and again."""
    mode = request.param
    made = Campaign(mode, tmp_path_factory.mktemp(mode), *parts, MODES[mode])
    trial = made.begin(runner__max_steps=1)
    assert trial.outcome.exit_code == 0, trial.outcome
    check_left(trial)
    return made


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Take Ctrl-C also where pytest itself was started in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_killed_rank_is_named(campaign: Campaign, rank: int) -> None:
    place = "loss" if rank == 2 else "env.step"
    trial = campaign.resume(campaign.fault(place, "kill", rank))
    check_failed(trial, rank, "died without a message: it was killed (SIGKILL)")


@pytest.mark.parametrize(
    ("campaign", "place", "rank"),
    [
        ("sync", "env.step", 1),
        ("sync", "policy.predict", 0),
        ("sync", "loss", 2),
        ("sync", "hand_over", 1),
        ("sync", "weights.receive", 0),
        ("sync", "save", 2),
        ("async", "env.step", 0),
        ("async", "policy.predict", 1),
        ("async", "loss", 2),
        ("async", "send", 1),
        ("async", "receive", 2),
        ("async", "weights.send", 2),
        ("async", "weights.receive", 0),
        ("async", "scalars.receive", 2),
        ("async", "save", 2),
    ],
    indirect=["campaign"],
)
def test_an_exception_is_the_headline(campaign: Campaign, place: str, rank: int) -> None:
    trial = campaign.resume(campaign.fault(place, "raise", rank, call=1))
    check_failed(trial, rank, f"RuntimeError: told to fail in {place}")
    assert f"told to fail in {place}" in trial.outcome.digest.headline
    assert "in do_raise" in trial.outcome.digest.detail


@pytest.mark.parametrize(
    ("place", "what", "rank", "headline"),
    [
        ("env.step", "reward", 1, "the simulator returned a NaN or infinite reward in env 8, "),
        ("env.step", "state", 0, "the simulator returned a NaN or infinite observation in env 0, "),
        ("policy.predict", "logprobs", 1, "the policy's log-probs hold NaN or infinite numbers"),
        ("policy.score", "score", 2, "the update is not finite: policy_loss = nan"),
        ("loss", "gradient", 2, "the update is not finite: gradient norm = nan"),
    ],
)
def test_numbers_that_are_not_finite_are_named(
    campaign: Campaign, place: str, what: str, rank: int, headline: str
) -> None:
    trial = campaign.resume(campaign.fault(place, what, rank))
    check_failed(trial, rank, headline)
    assert trial.outcome.digest.fix


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_rank_that_hangs_is_named(campaign: Campaign, rank: int) -> None:
    place = "loss" if rank == 2 else "env.step"
    expected = "update of step" if rank == 2 else "rollout of step"
    trial = campaign.resume(
        campaign.fault(place, "hang", rank, call=3), runner__stuck_after_seconds=3.0
    )
    check_failed(trial, rank, f"is stuck: {expected}", within=END_SECONDS + 3)
    assert "in do_hang" in trial.outcome.digest.detail
    for other in range(3):
        assert "Thread 0x" in trial.run_dir.rank_log(0, other).read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
@pytest.mark.parametrize(
    ("place", "rank"), [("env.step", 0), ("loss", 2), ("save", 2), ("evaluate", 1)]
)
@pytest.mark.usefixtures("interruptible")
def test_a_stop_request_saves_and_ends(
    campaign: Campaign, place: str, rank: int, number: int
) -> None:
    evaluates = {"runner__val_check_interval": 1, "env__eval__num_episodes": 10}
    trial = campaign.resume(
        campaign.fault(place, "pause", rank, call=1),
        signals=[number],
        **evaluates if place == "evaluate" else {},
    )
    assert (trial.outcome.exit_code, trial.outcome.state) == (75, "stopped"), trial.outcome
    assert trial.outcome.stop_asked
    assert trial.seconds < END_SECONDS
    check_left(trial)
    steps = [event.step for event in trial.heard.kinds("step")]
    newest = latest(trial.run_dir.checkpoints).path
    assert newest is not None
    assert newest.name == f"global_step_{steps[-1]}"
