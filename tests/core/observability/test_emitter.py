import errno
import json
import math
import os

import numpy as np
import pytest

from joyrlinf_core.errors import RunFailedError
from joyrlinf_core.observability.emitter import Emitter
from joyrlinf_core.observability.events import RunStarted, Step, Warned
from joyrlinf_core.observability.reader import read_records
from joyrlinf_core.observability.run_dir import RunDir


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def run_dir(tmp_path):
    return RunDir(tmp_path)


def lines(run_dir):
    return run_dir.events.read_text().splitlines()


def test_events_are_whole_lines_with_time_and_rank(run_dir):
    emitter = Emitter(run_dir, 3, clock=Clock())
    emitter.emit(Warned("X", "message", "fix"))
    assert json.loads(lines(run_dir)[0]) == {
        "time": 1000.0, "rank": 3, "kind": "warning", "code": "X", "message": "message",
        "fix": "fix",
    }  # fmt: skip


def test_numbers_that_json_lacks_come_back(run_dir):
    emitter = Emitter(run_dir, 0)
    metrics = {"a": math.nan, "b": -math.inf, "c": np.float32(0.5)}
    emitter.emit(Step(1, metrics, {}, np.int64(2)))
    json.loads(lines(run_dir)[0], parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))
    read = read_records(run_dir.events)[0].event.metrics
    assert math.isnan(read["a"])
    assert read["b"] == -math.inf
    assert read["c"] == 0.5


def test_heartbeats_are_rare_unless_something_changes(run_dir):
    clock = Clock()
    emitter = Emitter(run_dir, 0, clock=clock)
    for done in range(100):
        clock.now += 0.01
        emitter.phase("rollout", 0, done=done, total=101)
    assert len(lines(run_dir)) == 2
    emitter.phase("rollout", 0, done=101, total=101)
    emitter.phase("update", 0)
    emitter.phase("update", 1)
    emitter.phase("update", 1)
    shown = [(r.event.phase, r.event.step, r.event.done) for r in read_records(run_dir.events)]
    assert shown[2:] == [("rollout", 0, 101), ("update", 0, 0), ("update", 1, 0)]


def test_sink_that_raises_is_dropped_with_one_warning(run_dir):
    class Broken:
        calls = 0

        def write(self, _record):
            self.calls += 1
            raise OSError("no network")

        def close(self):
            raise OSError("no network")

    broken, closing = Broken(), Broken()
    closing.write = lambda _record: None
    emitter = Emitter(run_dir, 0, [broken, closing])
    for _ in range(3):
        emitter.emit(Warned("X", "message"))
    emitter.close()
    assert broken.calls == 1
    warnings = [r.event for r in read_records(run_dir.events) if r.event.code == "sink-dropped"]
    assert len(warnings) == 2
    assert "no network" in warnings[0].message


def test_full_disk_is_an_error_not_silence(run_dir, monkeypatch):
    emitter = Emitter(run_dir, 0)

    def full(_descriptor, _data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(RunFailedError, match=r"no space left on /.*: \d+ MB free") as caught:
        emitter.emit(Warned("X", "message"))
    assert str(run_dir.events) in caught.value.message
    monkeypatch.setattr(os, "write", lambda _descriptor, data: len(data) // 2)
    with pytest.raises(RunFailedError, match="no space left on"):
        emitter.emit(Warned("X", "message"))


def test_missing_directory_is_an_error(tmp_path):
    with pytest.raises(RunFailedError, match="No such file"):
        Emitter(RunDir(tmp_path / "gone"), 0)


def test_resumed_run_starts_on_a_fresh_line(run_dir):
    first = Emitter(run_dir, 0)
    first.emit(Warned("A", "before"))
    first.close()
    with run_dir.events.open("a") as file:
        file.write('{"kind": "step", "torn')
    second = Emitter(run_dir, 0)
    second.emit(RunStarted("train", "x", 1, 0, 3))
    assert [r.event.kind for r in read_records(run_dir.events)] == ["warning", "run_started"]
