import os

import pytest

from joyrlinf_core.launcher.digest import died_silently, first_failure, tail
from joyrlinf_core.observability.liveness import ProcessId
from joyrlinf_core.observability.rank_status import Failure, RankStatus, read_all
from joyrlinf_core.observability.run_dir import RunDir

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


def test_known_error_shows_fix_log_lines_and_its_exit_code(run_dir):
    log = run_dir.rank_log(0, 0)
    log.write_text("".join(f"line {n}\n" for n in range(100)))
    statuses = [failed(0, 1.0, "no EGL", traceback="", fix="install it", code=4)]
    digest = first_failure(run_dir, statuses, [], run_dir.logs / "launcher.log")
    assert digest.headline == "rank 0: no EGL"
    assert (digest.fix, digest.exit_code, digest.log) == ("install it", 4, log)
    assert digest.detail.splitlines() == [f"line {n}" for n in range(80, 100)]


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
