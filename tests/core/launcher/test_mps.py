"""`launcher.mps` with a fake of NVIDIA's programs: what workers get, and that no daemon is left."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from joyrlinf_core.errors import EnvironmentNotReadyError, ExitCode
from joyrlinf_core.launcher import meeting_place, mps, run_directory
from joyrlinf_core.launcher.mps_daemon import MARK, MpsDaemon
from joyrlinf_core.launcher.supervisor import supervise
from tests.core.launcher.test_supervisor import Recorder, wait_for

GPUS = "0, GPU-aa, Default, NVIDIA H200\n1, GPU-bb, Default, NVIDIA H200\n"
HERE = Path(__file__).parent


def install(folder, name, text):
    program = folder / name
    program.write_text(text)
    program.chmod(0o755)


@pytest.fixture
def nvidia(tmp_path, monkeypatch):
    """A directory at the front of the PATH with fakes of both programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    install(folder, "nvidia-smi", f"#!/bin/sh\nprintf '{GPUS}'\n")
    body = (HERE / "fake_mps_control.py").read_text()
    install(folder, "nvidia-cuda-mps-control", f"#!{sys.executable} -S\n{body}")
    monkeypatch.setenv("PATH", os.pathsep.join([str(folder), os.environ["PATH"]]))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    # A daemon that the user runs: nothing may be said to it.
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path / "of-the-user"))
    return folder


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Directory of all private directories; short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="mps-", dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)
        assert daemons(folder) == []


@pytest.fixture
def make_shared(make_plan):
    """Returns a function that makes a plan with two processes on each GPU."""

    def make(ranks=2, device="cpu", **args):
        config = {"launcher": {"mps": True}, "cluster": {"device": device}}
        return make_plan(ranks=ranks, config=config, **args)

    return make


def daemons(folder):
    """Return ids of daemons and servers of launches in this folder."""
    mark, found = f"{MARK}={folder}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if any(line.startswith(mark) for line in environment):
            found.append(int(path.parent.name))
    return found


def write_worker(tmp_path, after):
    """A worker that notes its environment, then does what it is told."""
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import json, os, sys, time\n"
        "from pathlib import Path\n"
        "from joyrlinf_core import worker\n"
        "from joyrlinf_core.observability.run_dir import RunDir\n"
        "def job(context):\n"
        "    note = context.run_dir.root / f'environment_{context.rank}'\n"
        "    note.with_suffix('.new').write_text(json.dumps(dict(os.environ)))\n"
        "    note.with_suffix('.new').rename(note)\n"
        f"    {after}\n"
        "    return 'completed'\n"
        "sys.exit(worker.run_worker(RunDir(Path(sys.argv[1])), lambda: job))\n"
    )
    return [str(worker)]


def noted(run_dir, rank):
    return json.loads((run_dir.root / f"environment_{rank}").read_text())


KILL_ONE = "time.sleep(0.2); context.rank or os.kill(os.getpid(), 9); time.sleep(60)"
RAISE = "raise ValueError('broken')"


@pytest.mark.slow
def test_workers_get_a_daemon_of_their_own_that_ends_with_them(
    make_shared, nvidia, places, tmp_path, monkeypatch
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    plan = make_shared(ranks=4)
    run_dir = run_directory.create(plan)
    worker = write_worker(tmp_path, "pass")
    outcome = supervise(plan, run_dir, Recorder(), worker=worker)
    assert outcome.exit_code == 0, outcome
    seen = [noted(run_dir, rank) for rank in range(4)]
    pipes = {each["CUDA_MPS_PIPE_DIRECTORY"] for each in seen}
    assert len(pipes) == 1
    pipe = Path(pipes.pop())
    assert pipe.parent.parent == places
    assert not pipe.exists()
    assert all(each["CUDA_VISIBLE_DEVICES"] == "GPU-bb,GPU-aa" for each in seen)
    assert all(MARK not in each for each in seen)
    assert [rank.device for rank in plan.ranks] == [0, 1, 0, 1]
    log = (run_dir.logs / "mps_control.log").read_text()
    assert log.index("Starting") < log.index("start_server") < log.index("bye")
    assert daemons(places) == []


@pytest.mark.slow
@pytest.mark.parametrize("after", [RAISE, KILL_ONE], ids=["exception", "kill -9"])
def test_the_daemon_ends_with_a_run_that_fails(make_shared, nvidia, places, tmp_path, after):
    plan = make_shared()
    run_dir = run_directory.create(plan)
    outcome = supervise(plan, run_dir, Recorder(), worker=write_worker(tmp_path, after))
    assert outcome.exit_code == 5
    assert "bye" in (run_dir.logs / "mps_control.log").read_text()
    assert daemons(places) == []


@pytest.mark.slow
@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="about a machine without a GPU")
def test_workers_that_see_no_gpu_do_not_turn_to_the_cpu(make_shared, nvidia, places, tmp_path):
    plan = make_shared(device="auto")
    run_dir = run_directory.create(plan)
    outcome = supervise(plan, run_dir, Recorder(), worker=write_worker(tmp_path, "pass"))
    assert outcome.exit_code == ExitCode.ENVIRONMENT_NOT_READY
    assert outcome.digest is not None
    assert "needs CUDA device 0, this machine shows 0" in outcome.digest.headline


LAUNCHER = """
import subprocess, sys, time
from pathlib import Path
from joyrlinf_core.launcher import mps
from joyrlinf_core.launcher.meeting_place import meeting_place
from joyrlinf_core.observability.run_dir import RunDir
from joyrlinf_core.plan.run_plan import RunPlan

run_dir = RunDir(Path(sys.argv[1]))
plan = RunPlan.model_validate_json(run_dir.plan.read_text())
with meeting_place() as place, mps.shared_gpus(plan, place, run_dir, 0) as variables:
    # Stands for a worker: it notices only after a while that its launcher is gone.
    worker = subprocess.Popen(["sleep", sys.argv[2]], env=variables)
    (run_dir.root / "place").write_text(f"{place}")
    time.sleep(120)
"""


@pytest.fixture
def launch(make_shared, nvidia, places):
    """Returns a function that starts a launcher; it gives the process and its private directory."""

    def start(worker_seconds):
        run_dir = run_directory.create(make_shared())
        command = [sys.executable, "-c", LAUNCHER, str(run_dir.root), str(worker_seconds)]
        launcher = subprocess.Popen(command)
        note = run_dir.root / "place"
        wait_for(lambda: note.exists() and note.read_text())
        assert len(daemons(places)) == 2  # and its server
        return launcher, Path(note.read_text())

    return start


def test_a_killed_launcher_leaves_no_daemon_behind(launch, places):
    launcher, place = launch(worker_seconds=1.5)
    launcher.kill()
    launcher.wait()
    killed = time.monotonic()
    wait_for(lambda: not daemons(places), seconds=20)
    assert (place / "mps" / "has_quit").exists()
    assert time.monotonic() - killed > 0.5, "workers come first"


def test_a_daemon_that_nobody_stopped_is_stopped_by_the_next_launch(launch, places):
    launcher, place = launch(worker_seconds=0)
    os.kill(guard_of(launcher.pid), signal.SIGKILL)
    launcher.kill()
    launcher.wait()
    with meeting_place.meeting_place():
        assert len(daemons(places)) == 2  # it may be at its start
    long_ago = time.time() - 3600
    os.utime(place, (long_ago, long_ago))
    with meeting_place.meeting_place():
        assert daemons(places) == []
        assert not place.exists()


def guard_of(launcher):
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
            parent = (path.parent / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if b"mps_guard" in command and int(parent) == launcher:
            return int(path.parent.name)
    raise AssertionError("no guard")


@pytest.mark.parametrize("mood", ["stubborn", "secretive", "stubborn secretive"])
def test_a_daemon_that_does_not_quit_is_killed(
    nvidia, make_shared, places, tmp_path, monkeypatch, mood
):
    monkeypatch.setattr("joyrlinf_core.launcher.mps_daemon.QUIT_SECONDS", 0.3)
    monkeypatch.setenv("FAKE_MPS", mood)
    plan = make_shared()
    run_dir = run_directory.create(plan)
    place = places / "place"
    place.mkdir()
    with mps.shared_gpus(plan, place, run_dir, 0) as variables:
        daemon = MpsDaemon(place)
        known = daemon.processes()
        assert variables["CUDA_MPS_PIPE_DIRECTORY"] == str(daemon.pipe)
        assert len(known) == 2
    assert not any(process.alive for process in known)


def test_a_signal_to_the_whole_job_spares_the_daemon(nvidia, make_shared, places):
    plan = make_shared()
    run_dir = run_directory.create(plan)
    place = places / "place"
    place.mkdir()
    with mps.shared_gpus(plan, place, run_dir, 0):
        daemon = MpsDaemon(place)
        for process in daemon.processes():
            os.kill(process.pid, signal.SIGTERM)
        assert daemon.ask("get_server_list", 5.0)


def refusal(plan, places, tmp_path):
    run_dir = run_directory.create(plan)
    with pytest.raises(EnvironmentNotReadyError) as caught:
        supervise(plan, run_dir, Recorder(), worker=write_worker(tmp_path, "pass"))
    assert caught.value.exit_code == ExitCode.ENVIRONMENT_NOT_READY
    assert caught.value.fix
    assert not list(run_dir.root.glob("environment_*")), "a worker was started"
    assert list(places.iterdir()) == []
    return str(caught.value)


@pytest.mark.parametrize(
    ("mood", "told"),
    [
        ("refuse", ["ended with exit code 1", "no device is willing"]),
        ("silent", ["does not answer within 4 s", "command ['get_server_list']"]),
        ("faulty", ["can't use the GPUs", "erver 95 exited with status 1"]),
    ],
)
def test_a_daemon_that_does_not_start(
    nvidia, make_shared, places, tmp_path, monkeypatch, mood, told
):
    monkeypatch.setenv("FAKE_MPS", mood)
    monkeypatch.setattr(mps, "ANSWER_SECONDS", 4.0)
    monkeypatch.setattr("joyrlinf_core.launcher.mps_daemon.QUIT_SECONDS", 0.3)
    message = refusal(make_shared(), places, tmp_path)
    assert all(word in message for word in told), message


def test_what_is_missing_is_named(nvidia, make_shared, places, tmp_path, monkeypatch):
    smi = "#!/bin/sh\nprintf '0, GPU-aa, Default, H200\\n1, GPU-bb, Prohibited, H200\\n'\n"
    install(nvidia, "nvidia-smi", smi)
    plan = make_shared(ranks=4)
    with pytest.raises(EnvironmentNotReadyError, match=r"compute mode of GPU 1 \(H200\) is Prohi"):
        mps.check_ready(plan)
    mps.check_ready(make_shared(ranks=2))  # takes GPU 0 alone
    with pytest.raises(EnvironmentNotReadyError, match="need 3 GPUs; this machine has 2") as caught:
        mps.check_ready(make_shared(ranks=6))
    assert "gpus_per_node: 4" in caught.value.fix
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    with pytest.raises(EnvironmentNotReadyError, match="CUDA_VISIBLE_DEVICES=5 shows 0"):
        mps.check_ready(plan)
    install(nvidia, "nvidia-smi", "#!/bin/sh\nexit 9\n")
    assert "nvidia-smi lists none" in refusal(plan, places, tmp_path)
    (nvidia / "nvidia-cuda-mps-control").unlink()
    assert "nvidia-cuda-mps-control is not on the PATH" in refusal(plan, places, tmp_path)


def test_a_directory_with_a_long_name_is_refused(
    nvidia, make_shared, places, tmp_path, monkeypatch
):
    long = places / ("x" * 80)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert "too long" in refusal(make_shared(), long, tmp_path)


def test_nothing_is_needed_without_mps(make_plan, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    plan = make_plan()
    mps.check_ready(plan)
    with mps.shared_gpus(plan, tmp_path, run_directory.create(plan), 0) as variables:
        assert variables == {}
