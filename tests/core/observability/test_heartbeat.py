import threading

import pytest

from joyrlinf_core.errors import RunFailedError
from joyrlinf_core.observability import activity, heartbeat
from joyrlinf_core.observability.emitter import Emitter
from joyrlinf_core.observability.events import Alive, Phase
from joyrlinf_core.observability.heartbeat import Heartbeat
from joyrlinf_core.observability.reader import read_records
from joyrlinf_core.observability.run_dir import RunDir


class Clock:
    def __init__(self):
        self.now = 1000.0

    def time(self):
        return self.now

    monotonic = time


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(activity, "_threads", {})
    clock = Clock()
    monkeypatch.setattr(heartbeat, "time", clock)
    return clock


@pytest.fixture
def beating(tmp_path, clock):
    """An emitter and its heartbeat, which beats when asked; and what it has written."""
    emitter = Emitter(RunDir(tmp_path), 0, clock=clock.time)
    beat = Heartbeat(emitter, pytest.fail)

    def run(seconds, work=lambda: None):
        """Beat for some seconds, and do the work before each beat."""
        before = len(read_records(tmp_path / "events.jsonl"))
        for _ in range(int(seconds / heartbeat.TICK_SECONDS)):
            clock.now += heartbeat.TICK_SECONDS
            work()
            beat.beat()
        return [record.event for record in read_records(tmp_path / "events.jsonl")[before:]]

    return emitter, run


def test_a_rank_that_settles_says_where_it_is_and_then_nothing(beating):
    emitter, run = beating
    emitter.phase("rollout", 11, done=0, total=6)
    emitter.phase("rollout", 11, done=3, total=6)
    with activity.block("rollout/env_wait"):
        told = run(60)
    assert told[:1] == [Phase("rollout", 11, 3, 6)], "the latest progress comes late, not never"
    assert told[1:] == [Alive("rollout/env_wait", False, "", heartbeat.SETTLED_SECONDS)]


def test_a_wait_that_ends_is_told_again(beating):
    _, run = beating
    with activity.waiting("weights"):
        assert [event.waits_for for event in run(60)] == ["weights"]
    assert [event.waits_for for event in run(60)] == [""]


def test_a_rank_that_gets_on_shows_it_now_and_then(beating):
    _, run = beating
    told = run(60, activity.moved)
    assert 10 <= len(told) <= 60 / heartbeat.BEAT_SECONDS
    assert {event.idle for event in told} == {0.0}


def test_other_events_of_a_rank_are_signs_of_life_enough(beating):
    emitter, run = beating
    told = run(60, lambda: emitter.phase("rollout", 0))
    assert {type(event) for event in told} == {Phase}


def test_a_full_disk_ends_the_process(tmp_path, monkeypatch):
    monkeypatch.setattr(heartbeat, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(heartbeat, "SETTLED_SECONDS", 0.0)
    failed = threading.Event()
    emitter = Emitter(RunDir(tmp_path), 0)
    error = RunFailedError("no space left")
    monkeypatch.setattr(emitter, "emit", lambda _event: (_ for _ in ()).throw(error))
    caught = []
    with Heartbeat(emitter, lambda raised: (caught.append(raised), failed.set())):
        activity.moved()
        assert failed.wait(30)
    assert caught == [error]
