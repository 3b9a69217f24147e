"""Two processes on one GPU through the real CUDA MPS."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from joyrlinf_core.launcher.mps_daemon import CONTROL, MARK
from tests.e2e.test_kill_and_resume import JOYRL, environment, run_directory, write_config

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which(CONTROL) is None, reason=f"{CONTROL} is not on the PATH"),
]

ASYNC = {
    "launcher__mps": True,
    "cluster__device": "cuda",
    "cluster__gpus_per_node": 2,
    "cluster__component_placement": {"env,rollout": "0", "actor": "1"},
    "algorithm__pipeline_mode": "async",
    "algorithm__max_staleness": 1,
    "actor__micro_batch_size": 8,
    "actor__gradient_accumulation_steps": 2,
}


def start(tmp_path: Path, name: str, **more: object) -> subprocess.Popen[str]:
    config = write_config(tmp_path, name, **{**ASYNC, **more})
    return subprocess.Popen(
        [*JOYRL, "train", str(config)],
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def events(run_dir: Path) -> list[dict[str, object]]:
    path = run_dir / "events.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines[:-1]]


def daemons() -> list[int]:
    """Return ids of daemons and servers that a launcher has started."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{MARK}=".encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def test_acting_and_learning_share_a_gpu(tmp_path: Path) -> None:
    process = start(tmp_path, "shared")
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 0, output
    run_dir = run_directory(tmp_path, "shared")
    assert sum(event["kind"] == "step" for event in events(run_dir)) == 6
    log = (run_dir / "logs" / "mps_control.log").read_text()
    # A process that does not find the daemon runs without it, and says nothing.
    assert log.count("NEW CLIENT") >= 2, log
    assert daemons() == []


def test_a_killed_rank_ends_the_run_and_the_daemon(tmp_path: Path) -> None:
    process = start(tmp_path, "killed", runner__max_steps=100_000)
    deadline = time.monotonic() + 200
    runs = tmp_path / "results" / "killed" / "runs"
    while not (runs.is_dir() and any(e["kind"] == "step" for e in events(next(runs.iterdir())))):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert daemons()
    run_dir = run_directory(tmp_path, "killed")
    status = json.loads((run_dir / "logs" / "status_rank0.json").read_text())
    os.kill(int(status["process"].split(":")[0]), signal.SIGKILL)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 5, output
    assert "rank 0" in output
    assert daemons() == []
