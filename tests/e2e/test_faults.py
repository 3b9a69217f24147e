"""Faults in real runs of three ranks: who is blamed, how fast the run ends, how it goes on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.core.engine.harness import make_config, make_policy
from tests.doubles import warm_start
from tests.e2e.fault_runs import END_SECONDS, Campaign, Trial, check_failed, check_left

pytestmark = pytest.mark.exhaustive

ASYNC = {"algorithm__pipeline_mode": "async", "algorithm__max_staleness": 1}
SPLIT = {"cluster__component_placement": {"env": "0", "rollout": "1", "actor": "2"}}
MODES = {
    "sync": {},
    "async": ASYNC,
    "split": SPLIT,
    "async split": SPLIT | ASYNC,
    "two actors": {"cluster__component_placement": {"env,rollout": "0", "actor": "1-2"}},
}
"""By name: keys of the config. In the first two, ranks 0 and 1 act and rank 2 learns."""

BOTH = pytest.mark.parametrize("campaign", ["sync", "async"], indirect=True)
APART = pytest.mark.parametrize("campaign", ["split", "async split"], indirect=True)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A policy directory and the socket of a warm start."""
    root = tmp_path_factory.mktemp("w")
    policy = make_policy(root / "policy", make_config())
    with warm_start.serving(root) as server:
        yield policy, server


@pytest.fixture(scope="module")
def campaign(
    request: pytest.FixtureRequest,
    parts: tuple[Path, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Campaign:
    """A run that has made a step, to be ruined again and again."""
    mode = request.param
    made = Campaign(mode, tmp_path_factory.mktemp("runs"), *parts, MODES[mode])
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


@BOTH
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
    digest = check_failed(trial, rank, f"RuntimeError: told to fail in {place}")
    assert "in do_raise" in digest.detail


@BOTH
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
    assert check_failed(trial, rank, headline).fix


@BOTH
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_rank_that_hangs_is_named(campaign: Campaign, rank: int) -> None:
    place = "loss" if rank == 2 else "env.step"
    expected = "update of step" if rank == 2 else "rollout of step"
    trial = campaign.resume(
        campaign.fault(place, "hang", rank, call=3), runner__stuck_after_seconds=3.0
    )
    digest = check_failed(trial, rank, f"is stuck: {expected}", within=END_SECONDS + 3)
    assert "in do_hang" in digest.detail
    for other in range(3):
        assert "Thread 0x" in trial.run_dir.rank_log(0, other).read_text()


@pytest.mark.parametrize("campaign", ["async"], indirect=True)
def test_a_thread_that_hangs_is_named(campaign: Campaign) -> None:
    trial = campaign.resume(campaign.fault("send", "hang", 1), runner__stuck_after_seconds=3.0)
    check_failed(trial, 1, "is stuck: rollout/send", within=END_SECONDS + 3)


@BOTH
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
    assert campaign.newest.name == f"global_step_{steps[-1]}"


@APART
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_killed_rank_is_named_where_all_roles_are_apart(campaign: Campaign, rank: int) -> None:
    place = ("env.step", "policy.predict", "loss")[rank]
    trial = campaign.resume(campaign.fault(place, "kill", rank))
    check_failed(trial, rank, "died without a message: it was killed (SIGKILL)")


@APART
def test_the_error_of_a_simulator_elsewhere_is_that_of_its_own_rank(campaign: Campaign) -> None:
    trial = campaign.resume(campaign.fault("env.step", "raise", 0))
    digest = check_failed(trial, 0, "RuntimeError: told to fail in env.step")
    assert "in do_raise" in digest.detail


@APART
def test_simulators_that_hang_elsewhere_are_named(campaign: Campaign) -> None:
    trial = campaign.resume(
        campaign.fault("env.step", "hang", 0, call=3), runner__stuck_after_seconds=3.0
    )
    check_failed(trial, 0, "is stuck: simulators for rank 1", within=END_SECONDS + 3)
    assert "in do_hang" in trial.run_dir.rank_log(0, 0).read_text()


@pytest.mark.parametrize("campaign", ["two actors"], indirect=True)
@pytest.mark.parametrize("rank", [1, 2])
def test_the_actor_whose_loss_is_not_finite_is_named(campaign: Campaign, rank: int) -> None:
    trial = campaign.resume(campaign.fault("policy.score", "score", rank))
    check_failed(trial, rank, "the update is not finite: policy_loss = nan")


@BOTH
def test_a_tracker_that_can_not_be_opened_is_dropped_with_a_warning(campaign: Campaign) -> None:
    campaign.run_dir.tensorboard.write_text("in the way of a directory")
    trial = campaign.finish(runner__logger__logger_backends=["tensorboard"])
    campaign.run_dir.tensorboard.unlink()
    check_goes_on(trial, steps=1)


@BOTH
def test_a_tracker_that_fails_later_is_dropped_with_a_warning(campaign: Campaign) -> None:
    fault = campaign.fault("sink", "raise", 2, call=3)
    trial = campaign.finish(2, fault, runner__logger__logger_backends=["tensorboard"])
    check_goes_on(trial, steps=2)


def check_goes_on(trial: Trial, steps: int) -> None:
    assert (trial.outcome.exit_code, trial.outcome.state) == (0, "completed"), trial.outcome
    (warning,) = trial.heard.kinds("warning")
    assert warning.code == "sink-dropped"
    assert "TensorBoardSink" in warning.message
    assert len(trial.heard.kinds("step")) == steps
    check_left(trial)


@pytest.fixture
def small_disk(parts: tuple[Path, Path], tmp_path: Path) -> Iterator[Campaign]:
    """A run on a disk of 320 MB, of which the launcher wants most to be free."""
    disk = tmp_path / "results"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=320m", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk, and not in every container")
    yield Campaign("small disk", tmp_path, *parts, {})
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize(("place", "rank"), [("save", 2), ("env.step", 0)])
def test_a_full_disk_is_named_and_the_run_goes_on_once_there_is_room(
    small_disk: Campaign, mode: str, place: str, rank: int
) -> None:
    small_disk.config = MODES[mode]
    assert small_disk.begin(runner__max_steps=1).outcome.exit_code == 0
    filler = small_disk.root / "results" / "filler"
    # The first save comes with a checkpoint that can be gone back to.
    trial = small_disk.resume(small_disk.fault(place, "fill", rank, argument=str(filler)))
    digest = trial.outcome.digest
    assert trial.outcome.exit_code == 5
    assert digest is not None
    assert "no space left on" in digest.headline
    assert "Traceback" not in digest.detail
    assert trial.seconds < END_SECONDS
    check_left(trial)
    filler.unlink()
    while shutil.disk_usage(filler.parent).free < 2**27:
        time.sleep(0.05)  # until the rank that wrote it is gone altogether
    assert small_disk.finish().outcome.exit_code == 0
