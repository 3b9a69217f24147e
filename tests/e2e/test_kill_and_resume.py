"""The whole product on the reach double: a killed rank and a full disk, and how runs go on."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from joyrlinf_core.config.dump import dump_config
from tests.core.engine.harness import largest_difference, make_config, make_policy, weights

ROOT = Path(__file__).parents[2]
JOYRL = [sys.executable, "-m", "joyrlinf_cli.main"]


def environment(tmp_path: Path) -> dict[str, str]:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return dict(os.environ) | {
        "PYTHONPATH": os.pathsep.join(paths),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "OMP_NUM_THREADS": "1",
    }


def write_config(tmp_path: Path, name: str, **more: object) -> Path:
    policy = tmp_path / "policy"
    if not policy.exists():
        make_policy(policy, make_config())
    config = make_config(
        actor__model__model_path=str(policy),
        **{
            "runner__max_steps": 6,
            "runner__save_interval": 1,
            "runner__keep_checkpoints": 10,
            "runner__logger__log_path": str(tmp_path / "results"),
            "runner__logger__experiment_name": name,
        }
        | more,
    )
    path = tmp_path / f"{name}.yaml"
    path.write_text(dump_config(config))
    return path


def run_directory(tmp_path: Path, name: str) -> Path:
    (found,) = (tmp_path / "results" / name / "runs").iterdir()
    return found


def worker_pid_after(run_dir: Path, step: int) -> int:
    """Wait until the checkpoint of a step is announced; return the pid of rank 0."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        events = run_dir / "events.jsonl"
        lines = events.read_text().splitlines() if events.exists() else []
        saved = [e for e in map(json.loads, lines[:-1]) if e["kind"] == "checkpoint"]
        if any(event["step"] >= step for event in saved):
            status = json.loads((run_dir / "logs" / "status_rank0.json").read_text())
            return int(status["process"].split(":")[0])
        time.sleep(0.02)
    raise TimeoutError(f"{run_dir} never saved step {step}")


def first_run_directory(tmp_path: Path, name: str, process: subprocess.Popen[str]) -> Path:
    deadline = time.monotonic() + 60
    runs = tmp_path / "results" / name / "runs"
    while time.monotonic() < deadline and process.poll() is None:
        if runs.is_dir() and list(runs.iterdir()):
            return run_directory(tmp_path, name)
        time.sleep(0.05)
    raise TimeoutError("no run directory appeared")


@pytest.mark.slow
def test_killed_and_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    env = environment(tmp_path)
    straight = write_config(tmp_path, "straight")
    done = subprocess.run(
        [*JOYRL, "train", str(straight)], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

    killed = write_config(tmp_path, "killed")
    process = subprocess.Popen(
        [*JOYRL, "train", str(killed)],
        env=env,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        run_dir = first_run_directory(tmp_path, "killed", process)
        os.kill(worker_pid_after(run_dir, 3), signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()  # its workers notice and end
    assert process.returncode == 5
    assert "SIGKILL" in errors or "signal 9" in errors

    resumed = subprocess.run(
        [*JOYRL, "resume", str(run_dir)], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    assert resumed.returncode == 0, resumed.stderr
    expected = weights(run_directory(tmp_path, "straight"), 6)
    assert largest_difference(expected, weights(run_dir, 6)) == 0.0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 300 MB."""
    disk = tmp_path / "results"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=300m", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk, and not in every container")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Take all space that is left."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(2**16))
    return filler


@pytest.mark.slow
def test_run_on_a_full_disk_ends_with_a_reason_and_can_go_on(
    tmp_path: Path, small_disk: Path
) -> None:
    env = environment(tmp_path)
    # Deleting old checkpoints would make room again.
    config = write_config(tmp_path, "full", runner__max_steps=2000, runner__keep_checkpoints=2000)
    process = subprocess.Popen(
        [*JOYRL, "train", str(config)],
        env=env,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        run_dir = first_run_directory(tmp_path, "full", process)
        worker_pid_after(run_dir, 2)
        filler = fill(small_disk)
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()  # its workers notice and end
    assert process.returncode == 5
    assert "no space left" in errors
    assert "joyrl resume" in errors
    assert "Traceback" not in errors

    filler.unlink()
    saved = sorted(int(path.name.rpartition("_")[2]) for path in run_dir.glob("checkpoints/*_*"))
    target = saved[-1] + 3
    resumed = subprocess.run(
        [*JOYRL, "resume", str(run_dir), "--set", f"runner.max_steps={target}"],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert resumed.returncode == 0, resumed.stderr
    assert weights(run_dir, target)
