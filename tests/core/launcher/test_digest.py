import os

import pytest

from joyrlinf_core.launcher import digest as digest_module
from joyrlinf_core.launcher.digest import died_silently, first_failure, tail
from joyrlinf_core.observability.liveness import ProcessId
from joyrlinf_core.observability.rank_status import Failure, RankStatus, read_all
from joyrlinf_core.observability.run_dir import RunDir
from tests.doubles.checkpoints import write_checkpoint

ALIVE = str(ProcessId.of(os.getpid()))
DEAD = "999999999:1"


@pytest.fixture
def run_dir(tmp_path):
    run_dir = RunDir(tmp_path)
    run_dir.logs.mkdir()
    return run_dir


def failed(rank, time, message, *, traceback="Traceback ...", fix="", code=5):
    failure = Failure("ValueError", message, fix, traceback)
    return RankStatus(rank, DEAD, "failed", time, code, failure)


def test_earliest_failure_is_the_one_that_counts(run_dir):
    statuses = [failed(0, 20.0, "connection closed"), failed(1, 10.0, "the cause")]
    digest = first_failure(run_dir, statuses, [], run_dir.logs / "launcher.log")
    assert digest.headline == "rank 1: ValueError: the cause"
    assert digest.also == ("rank 0: ValueError: connection closed",)
    assert digest.detail == "Traceback ..."


def test_known_error_shows_fix_and_exit_code_and_no_traceback(run_dir):
    log = run_dir.rank_log(0, 0)
    log.write_text("Traceback (most recent call last):\n")
    statuses = [failed(0, 1.0, "no EGL", traceback="", fix="install it", code=4)]
    digest = first_failure(run_dir, statuses, [], run_dir.logs / "launcher.log")
    assert digest.headline == "rank 0: no EGL"
    assert (digest.fix, digest.exit_code, digest.log) == ("install it", 4, log)
    assert digest.detail == ""
    assert digest.resume == ""


def test_the_error_of_a_simulator_is_in_the_headline_and_its_traceback_below(run_dir):
    trace = "Traceback (most recent call last):\n  File ...\nValueError: no such body\n"
    statuses = [failed(1, 1.0, f"the simulator raised an exception:\n{trace}", traceback="")]
    digest = first_failure(run_dir, statuses, [], run_dir.logs / "launcher.log")
    assert digest.headline == (
        "rank 1: the simulator raised an exception: ValueError: no such body"
    )
    assert digest.detail == trace.strip()


def test_newest_whole_checkpoint_is_the_way_on(run_dir):
    for step in (3, 4, 5):
        write_checkpoint(run_dir.checkpoint(step))
    (run_dir.checkpoint(5) / "actor" / "meta.json").unlink()
    digest = first_failure(run_dir, [failed(0, 1.0, "x")], [], run_dir.logs / "launcher.log")
    assert digest.resume.startswith("global_step_4 is whole")
    assert digest.resume.endswith(f"joyrl resume {run_dir.root}")


def test_a_full_disk_is_named_where_no_rank_could_say_so(run_dir, monkeypatch):
    monkeypatch.setattr(digest_module, "free_bytes", lambda _path: 0)
    statuses = [RankStatus(0, DEAD, "running", 0.0)]
    digest = first_failure(run_dir, statuses, statuses, run_dir.logs / "launcher.log")
    assert digest.headline.startswith("rank 0: no space left on /")


@pytest.mark.parametrize(("code", "expected"), [(-9, "ended by SIGKILL"), (1, "the workers ended")])
def test_torchrun_that_ends_before_the_workers_start(run_dir, code, expected):
    digest = first_failure(run_dir, [], [], run_dir.logs / "launcher.log", code)
    assert expected in digest.headline
    assert digest.fix


@pytest.mark.parametrize(
    ("code", "expected"), [(-9, "killed (SIGKILL)"), (-11, "crashed (SIGSEGV)")]
)
def test_silent_death_goes_before_messages(run_dir, code, expected):
    log = run_dir.logs / "launcher.log"
    log.write_text(f"E failed (exitcode: {code}) local_rank: 1 (pid: 7) of binary: python\n")
    statuses = [failed(0, 1.0, "connection closed"), RankStatus(1, DEAD, "running", 0.0)]
    silent = died_silently(statuses)
    assert [status.rank for status in silent] == [1]
    digest = first_failure(run_dir, statuses, silent, log)
    assert digest.headline == f"rank 1 died without a message: it was {expected}".replace(
        "was crashed", "crashed"
    )
    assert digest.also == ("rank 0: ValueError: connection closed",)


def test_torchrun_counts_the_ranks_of_its_own_node(run_dir):
    log = run_dir.logs / "launcher_node1.log"
    log.write_text("E failed (exitcode: -9) local_rank: 1 (pid: 7) of binary: python\n")
    silent = [RankStatus(9, DEAD, "running", 0.0)]
    digest = first_failure(run_dir, silent, silent, log, first_rank=8)
    assert digest.headline == "rank 9 died without a message: it was killed (SIGKILL)"


def test_a_running_rank_has_not_died():
    assert died_silently([RankStatus(0, ALIVE, "running", 0.0)]) == []


def test_workers_that_never_started_show_what_they_printed(run_dir):
    log = run_dir.logs / "launcher.log"
    log.write_text(
        "ModuleNotFoundError: No module named 'x'\n"
        "E1130 09:20:38.1 12 torch/distributed/elastic/multiprocessing/api.py:984] failed\n"
        "Traceback (most recent call last):\n"
    )
    digest = first_failure(run_dir, [], [], log)
    assert digest.detail == "ModuleNotFoundError: No module named 'x'"
    assert digest.log == log


def test_status_file_round_trip_and_missing_log(run_dir):
    status = failed(2, 3.0, "x")
    status.write(run_dir.rank_status(2))
    assert read_all(run_dir.logs) == [status]
    assert tail(run_dir.logs / "none.log") == ""
