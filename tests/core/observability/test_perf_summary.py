import json

import pytest

from joyrlinf_core.observability.emitter import Emitter
from joyrlinf_core.observability.events import (
    CheckpointSaved,
    EvalResult,
    Finished,
    RunStarted,
    Step,
)
from joyrlinf_core.observability.perf_summary import PerfSummary
from joyrlinf_core.observability.run_dir import RunDir


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def step(number, seconds=2.0, env_steps=100.0):
    metrics = {"env/steps": env_steps, "train/samples": 10.0}
    timings = {"rollout": 1.0, "rollout/predict": 0.25, "update": 0.5}
    return Step(number, metrics, timings, seconds)


def read(run_dir):
    return json.loads(run_dir.perf_summary.read_text())


def test_golden_numbers(tmp_path):
    run_dir, clock = RunDir(tmp_path), Clock()
    emitter = Emitter(run_dir, 0, [PerfSummary(run_dir, launched_at=90.0)], clock=clock)
    emitter.phase("load", 0)
    clock.now = 103.0
    emitter.emit(RunStarted("train", str(tmp_path), 1, 0, 30))
    emitter.phase("rollout", 0)
    for number in range(1, 26):
        # The first five steps are twice as slow; the last 20 don't see them.
        emitter.emit(step(number, seconds=4.0 if number <= 5 else 2.0))
    emitter.emit(EvalResult(25, "interval", 10, 0.5, 0.2, 0.8, {}, 9.0, 1.0))
    emitter.emit(CheckpointSaved(25, "p", 0.5))
    emitter.emit(Finished("completed", 25, 60.0))
    summary = read(run_dir)
    assert summary["status"] == "completed"
    assert (summary["steps"], summary["total_steps"]) == (25, 30)
    assert summary["startup_seconds"] == {"processes": 10.0, "load": 3.0}
    assert summary["step_seconds"] == {"run": pytest.approx(60 / 25), "last_20": 2.0}
    assert summary["env_steps_per_second"] == {"run": pytest.approx(2500 / 60), "last_20": 50.0}
    assert summary["samples_per_second"]["last_20"] == 5.0
    phases = summary["phases"]
    assert phases["rollout"]["total_seconds"] == 25.0
    assert phases["rollout"]["share"]["last_20"] == 0.5
    assert phases["rollout/predict"]["seconds_per_step"]["last_20"] == 0.25
    # A part of the rollout is not counted twice: 2.0 - (1.0 + 0.5).
    assert phases["other"]["seconds_per_step"]["last_20"] == 0.5
    assert summary["evals"][0]["success_rate"] == 0.5
    assert summary["checkpoints"] == {"saved": 1, "total_seconds": 0.5, "last": "p"}


def test_resumed_run_counts_every_step_once(tmp_path):
    run_dir = RunDir(tmp_path)
    first = Emitter(run_dir, 0, [PerfSummary(run_dir)])
    first.emit(RunStarted("train", str(tmp_path), 1, 0, 6))
    for number in (1, 2, 3, 4, 5):
        first.emit(step(number))
    first.close()
    second = Emitter(run_dir, 0, [PerfSummary(run_dir)])
    second.emit(RunStarted("train", str(tmp_path), 1, 3, 6))
    second.emit(step(4, seconds=4.0))
    summary = read(run_dir)
    assert summary["steps"] == 4
    assert summary["step_seconds"]["run"] == (3 * 2.0 + 4.0) / 4
    assert summary["status"] == "in_progress"
    assert not list(tmp_path.glob(".*tmp"))
