import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from joyrlinf_core.errors import UsageError
from joyrlinf_core.launcher import run_directory
from joyrlinf_core.launcher.supervisor import supervise
from joyrlinf_core.observability.liveness import ProcessId
from joyrlinf_core.observability.rank_status import RankStatus, read_all
from joyrlinf_core.observability.reader import read_history


class Recorder:
    """Listener that keeps what it hears."""

    def __init__(self):
        self.records = []
        self.notices = []

    def on_record(self, record):
        self.records.append(record)

    def on_notice(self, text):
        self.notices.append(text)

    def on_tick(self):
        pass


def wait_for(condition, seconds=120.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def simulators(run_dir):
    return [int(path.read_text()) for path in run_dir.root.glob("simulator_rank*")]


def gone(pid):
    return not ProcessId.of(pid).alive


def assert_no_process_left(run_dir, ranks):
    workers = [ProcessId.parse(status.process).pid for status in read_all(run_dir.logs)]
    pids = workers + simulators(run_dir)
    assert len(pids) == 2 * ranks
    wait_for(lambda: all(gone(pid) for pid in pids), seconds=15)


@pytest.fixture
def interruptible():
    """Take Ctrl-C also where pytest itself was started in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def signal_when_ready(run_dir, numbers, between=0.5):
    def send():
        wait_for(lambda: (run_dir.root / "ready_rank0").exists())
        for number in numbers:
            os.kill(os.getpid(), number)
            time.sleep(between)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread


def test_completed_run_passes_every_event_on(make_plan, fake_worker):
    plan = make_plan(ranks=2, behave="steps:3")
    run_dir = run_directory.create(plan)
    heard = Recorder()
    outcome = supervise(plan, run_dir, heard, worker=fake_worker)
    assert (outcome.exit_code, outcome.state) == (0, "completed")
    assert [r.event.step for r in heard.records if r.event.kind == "step"] == [1, 2, 3]
    assert {r.rank for r in heard.records if r.event.kind == "phase"} == {0, 1}
    assert list(read_history(run_dir.events).steps) == [1, 2, 3]
    assert [s.state for s in read_all(run_dir.logs)] == ["completed"] * 2
    assert run_dir.perf_summary.exists()
    assert_no_process_left(run_dir, ranks=2)


@pytest.mark.slow
def test_exception_in_one_rank_ends_the_run_with_its_message(make_plan, fake_worker):
    plan = make_plan(ranks=2, behave="raise:1")
    run_dir = run_directory.create(plan)
    started = time.monotonic()
    outcome = supervise(plan, run_dir, Recorder(), worker=fake_worker)
    assert time.monotonic() - started < 120
    assert outcome.exit_code == 5
    assert outcome.digest.headline == "rank 1: ValueError: the fake job broke"
    assert "do_raise" in outcome.digest.detail
    assert outcome.digest.log == run_dir.rank_log(0, 1)
    assert_no_process_left(run_dir, ranks=2)


@pytest.mark.slow
def test_killed_rank_is_named_although_its_peer_complains_first(make_plan, fake_worker):
    plan = make_plan(ranks=2, behave="kill:1")
    run_dir = run_directory.create(plan)
    outcome = supervise(plan, run_dir, Recorder(), worker=fake_worker)
    assert outcome.exit_code == 5
    assert outcome.digest.headline.startswith("rank 1 died without a message")
    assert "SIGKILL" in outcome.digest.headline
    assert "out of memory" in outcome.digest.fix
    assert_no_process_left(run_dir, ranks=2)


def stuck_after(seconds, log_path):
    logger = {"logger_backends": [], "log_path": str(log_path)}
    return {"runner": {"stuck_after_seconds": seconds, "logger": logger}}


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_hangs_is_named_with_its_stack(make_plan, fake_worker, tmp_path, victim):
    config = stuck_after(3.0, tmp_path)
    plan = make_plan(ranks=2, behave=f"hang:{victim}", config=config)
    run_dir = run_directory.create(plan)
    outcome = supervise(plan, run_dir, Recorder(), worker=fake_worker)
    digest = outcome.digest
    assert outcome.exit_code == 5
    expected = f"rank {victim} is stuck: rollout of step 12, chunk 3/6, env_wait, no sign of life"
    assert digest.headline.startswith(expected)
    assert digest.log == run_dir.rank_log(0, victim)
    assert f"rank {1 - victim} waits for other ranks since" in digest.detail
    assert "in do_hang" in digest.detail
    for rank in (0, 1):
        assert "in do_hang" in run_dir.rank_log(0, rank).read_text()
    assert_no_process_left(run_dir, ranks=2)


@pytest.mark.slow
def test_ranks_that_all_wait_end_too(make_plan, fake_worker, tmp_path):
    config = stuck_after(3.0, tmp_path)
    plan = make_plan(ranks=2, behave="all_wait", config=config)
    run_dir = run_directory.create(plan)
    outcome = supervise(plan, run_dir, Recorder(), worker=fake_worker)
    assert outcome.exit_code == 5
    assert outcome.digest.headline == "no rank gets on: all wait for one another"
    for line in ("rank 0 waits for weights since", "rank 1 waits for a batch since"):
        assert line in outcome.digest.detail
    assert_no_process_left(run_dir, ranks=2)


def test_first_signal_saves_and_stops(make_plan, fake_worker):
    plan = make_plan(behave="until_stopped:save")
    run_dir = run_directory.create(plan)
    heard = Recorder()
    signal_when_ready(run_dir, [signal.SIGTERM])
    outcome = supervise(plan, run_dir, heard, worker=fake_worker)
    assert (outcome.exit_code, outcome.state, outcome.stop_asked) == (75, "stopped", True)
    assert heard.notices[0] == "finishing the step, then saving; press again to stop now"
    assert not run_dir.stop_request.exists()
    assert_no_process_left(run_dir, ranks=1)


def test_a_signal_while_workers_start_ends_them_at_once(make_plan, fake_worker, interruptible):
    plan = make_plan(behave="slow_start")
    run_dir = run_directory.create(plan)
    heard = Recorder()
    signal_when_ready(run_dir, [signal.SIGINT])
    started = time.monotonic()
    outcome = supervise(plan, run_dir, heard, worker=fake_worker)
    assert time.monotonic() - started < 60
    assert (outcome.exit_code, outcome.state) == (130, "interrupted")
    assert heard.notices == ["stopping; nothing was started yet"]


def test_second_signal_stops_now(make_plan, fake_worker, interruptible):
    plan = make_plan(behave="ignore_stop")
    run_dir = run_directory.create(plan)
    signal_when_ready(run_dir, [signal.SIGINT, signal.SIGINT])
    outcome = supervise(plan, run_dir, Recorder(), worker=fake_worker)
    assert (outcome.exit_code, outcome.state) == (130, "interrupted")
    assert_no_process_left(run_dir, ranks=1)


def test_worker_that_cannot_start_gives_the_tail_of_the_log(make_plan, tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("import a_module_that_does_not_exist\n")
    plan = make_plan()
    run_dir = run_directory.create(plan)
    outcome = supervise(plan, run_dir, Recorder(), worker=[str(broken)])
    assert outcome.exit_code == 5
    assert "a_module_that_does_not_exist" in outcome.digest.detail
    assert outcome.digest.log.name == "launcher.log"


@pytest.mark.parametrize("victim", ["launcher", "torchrun"])
def test_workers_do_not_outlive_their_parents(make_plan, fake_worker, victim):
    plan = make_plan(behave="ignore_stop")
    run_dir = run_directory.create(plan)
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from joyrlinf_core.launcher.supervisor import supervise\n"
        "from joyrlinf_core.observability.run_dir import RunDir\n"
        "from joyrlinf_core.plan.run_plan import RunPlan\n"
        "class Quiet:\n"
        "    on_record = on_notice = lambda self, _: None\n"
        "    on_tick = lambda self: None\n"
        "run_dir = RunDir(Path(sys.argv[1]))\n"
        "plan = RunPlan.model_validate_json(run_dir.plan.read_text())\n"
        "sys.exit(supervise(plan, run_dir, Quiet(), worker=sys.argv[2:]).exit_code)\n"
    )
    command = [sys.executable, "-c", script, str(run_dir.root), *fake_worker]
    launcher = subprocess.Popen(command)
    wait_for(lambda: (run_dir.root / "ready_rank0").exists())
    worker = ProcessId.parse(read_all(run_dir.logs)[0].process).pid
    torchrun = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(launcher.pid if victim == "launcher" else torchrun, signal.SIGKILL)
    code = launcher.wait(timeout=60)
    assert code == (-signal.SIGKILL if victim == "launcher" else 5)
    wait_for(lambda: gone(torchrun), seconds=30)
    assert_no_process_left(run_dir, ranks=1)


def test_a_run_that_still_goes_on_is_not_started_twice(make_plan):
    plan = make_plan()
    run_dir = run_directory.create(plan)
    status = RankStatus(0, str(ProcessId.of(os.getpid())), "running", 0.0)
    status.write(run_dir.rank_status(0))
    with pytest.raises(UsageError, match="is in use"):
        supervise(plan, run_dir, Recorder())
    assert read_all(run_dir.logs) == [status]
