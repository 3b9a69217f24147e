import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from joyrlinf_core.observability.rank_status import RankStatus
from joyrlinf_core.observability.run_dir import RunDir
from joyrlinf_core.plan.build import assemble
from joyrlinf_core.plan.run_plan import BatchPlan, Placement

LAUNCHER_TESTS = Path(__file__).parent / "launcher"


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Returns a function that starts a worker of the fake job, without torchrun."""
    monkeypatch.syspath_prepend(str(LAUNCHER_TESTS))
    from joyrlinf_core.config.schema import Config

    run_dir = RunDir(tmp_path)
    run_dir.logs.mkdir()

    def begin(behave, world_size="1"):
        config = Config.model_validate(
            {
                "env": {"train": {"type": "fake_parts:FakeEnv"}},
                "actor": {"model": {"model_type": "fake_parts:FakeModel"}},
                "runner": {"logger": {"logger_backends": []}},
            }
        )
        placement = Placement(
            mode="colocated", world_size=1, num_nodes=1, ranks_per_node=1,
            ranks_per_node_inferred=True, env_ranks=(0,), rollout_ranks=(0,), actor_ranks=(0,),
        )  # fmt: skip
        batch = BatchPlan(**dict.fromkeys(BatchPlan.model_fields, 1))
        plan = assemble("train", {"behave": behave}, config, placement, batch)
        run_dir.plan.write_text(plan.model_dump_json())
        environment = {
            **os.environ, "RANK": "0", "WORLD_SIZE": world_size, "PYTHONPATH": str(LAUNCHER_TESTS),
        }  # fmt: skip
        command = [sys.executable, str(LAUNCHER_TESTS / "fake_worker.py"), str(tmp_path)]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)

    return run_dir, begin


def test_known_error_leaves_message_and_fix(start):
    run_dir, begin = start
    process = begin("joyrl_error")
    assert process.wait(60) == 5
    status = RankStatus.read(run_dir.rank_status(0))
    assert (status.state, status.exit_code) == ("failed", 5)
    assert status.failure.message == "simulator 3 crashed"
    assert status.failure.fix == "look at its log"
    assert status.failure.traceback == ""
    # Everything that was printed is in the log, nothing on the terminal.
    assert process.stdout.read() == b""
    assert "SimulatorCrashError" in run_dir.rank_log(0, 0).read_text()


def test_wrong_number_of_ranks_is_found_before_any_group(start):
    run_dir, begin = start
    assert begin("steps:1", world_size="4").wait(60) == 5
    message = RankStatus.read(run_dir.rank_status(0)).failure.message
    assert message == "torchrun started 4 ranks, the plan has 1"


def test_sigterm_asks_every_rank_to_stop(start):
    run_dir, begin = start
    process = begin("until_stopped")
    deadline = time.monotonic() + 60
    while not (run_dir.root / "ready_rank0").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert run_dir.stop_request.exists()
    assert RankStatus.read(run_dir.rank_status(0)).state == "stopped"
