"""Faults of `joyrl train` itself: torchrun, the terminal's text, every process of the job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from joyrlinf_core.checkpoint.store import latest
from joyrlinf_core.config.dump import dump_config
from joyrlinf_core.observability.rank_status import read_all
from joyrlinf_core.observability.run_dir import RunDir
from tests.core.engine.harness import make_config, make_policy

ROOT = Path(__file__).parents[2]
END_SECONDS = 15.0
APART = {"env,rollout": "0", "actor": "1"}


@contextmanager
def training(tmp_path: Path, **changes: object) -> Iterator[tuple[RunDir, subprocess.Popen[str]]]:
    """Start a run of two ranks that saves each step; yield once the first step is saved."""
    policy = make_policy(tmp_path / "policy", make_config())
    config = make_config(
        **{
            "env__train__total_num_envs": 8,
            "actor__micro_batch_size": 8,
            "actor__model__model_path": str(policy),
            "cluster__component_placement": APART,
            "runner__max_steps": 10**6,
            "runner__save_interval": 1,
            "runner__logger__log_path": str(tmp_path / "results"),
            "runner__logger__logger_backends": [],
        }
        | changes
    )
    (tmp_path / "run.yaml").write_text(dump_config(config))
    process = subprocess.Popen(
        [sys.executable, "-m", "joyrlinf_cli.main", "train", str(tmp_path / "run.yaml")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        found: list[Path] = []

        def saved() -> bool:
            found[:] = tmp_path.glob("results/*/runs/*/checkpoints/global_step_1")
            return bool(found)

        wait_for(saved, process)
        yield RunDir(found[0].parents[1]), process
    finally:
        process.kill()  # its workers notice and end


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 200
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def processes_of(run_dir: RunDir) -> list[int]:
    """Return torchrun, the ranks, and whatever else was started for a run; not the launcher."""
    status = read_all(run_dir.logs)[0]
    environment = Path(f"/proc/{status.process.split(':')[0]}/environ").read_bytes().split(b"\0")
    (launch,) = [line for line in environment if line.startswith(b"JOYRL_LAUNCH_ID=")]
    found = []
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            if launch in place.read_bytes().split(b"\0"):
                found.append(int(place.parent.name))
        except OSError:
            continue
    return found


def alive(pids: list[int]) -> list[int]:
    """Return those that run; a zombie whose parent is gone does not."""
    states = {}
    for pid in pids:
        try:
            states[pid] = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
    return [pid for pid, state in states.items() if state != "Z"]


@pytest.mark.slow
def test_a_killed_actor_ends_the_command_with_what_to_do(tmp_path: Path) -> None:
    with training(tmp_path, algorithm__pipeline_mode="async") as (run_dir, process):
        pids = processes_of(run_dir)
        assert len(pids) >= 3
        victim = int(read_all(run_dir.logs)[1].process.split(":")[0])
        os.kill(victim, signal.SIGKILL)
        struck = time.monotonic()
        _, errors = process.communicate(timeout=120)
        assert time.monotonic() - struck < END_SECONDS
    assert process.returncode == 5
    first, *rest = [line for line in errors.splitlines() if line.startswith(("error:", "  "))]
    assert first == "error: rank 1 died without a message: it was killed (SIGKILL)"
    assert f"  log: {run_dir.rank_log(0, 1)}" in rest
    newest = latest(run_dir.checkpoints)
    assert newest.path is not None
    assert newest.skipped == ()
    assert f"{newest.path.name} is whole; go on from it with: joyrl resume {run_dir.root}" in errors
    assert alive(pids) == []


@pytest.mark.slow
def test_a_job_that_is_told_to_end_saves_and_ends(tmp_path: Path) -> None:
    """As schedulers do: a signal for every process of the job, torchrun among them."""
    with training(tmp_path) as (run_dir, process):
        pids = processes_of(run_dir)
        for pid in [process.pid, *pids]:
            os.kill(pid, signal.SIGTERM)
        struck = time.monotonic()
        process.communicate(timeout=120)
        assert time.monotonic() - struck < END_SECONDS
    assert process.returncode == 75
    events = [json.loads(line) for line in run_dir.events.read_text().splitlines()]
    last = max(event["step"] for event in events if event["kind"] == "step")
    newest = latest(run_dir.checkpoints)
    assert newest.path is not None
    assert newest.path.name == f"global_step_{last}"
    assert alive(pids) == []
