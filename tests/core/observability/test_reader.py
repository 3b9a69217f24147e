import json
import math

import pytest

from joyrlinf_core.observability.atomic import plain
from joyrlinf_core.observability.events import (
    Alive,
    CheckpointSaved,
    EvalResult,
    Finished,
    Phase,
    Record,
    RunStarted,
    Step,
    Warned,
)
from joyrlinf_core.observability.reader import EventTail, History, read_records

EVENTS = [
    RunStarted("train", "dir", 2, 0, 10, {"torch": "2"}, {"device": "cpu"}),
    Phase("rollout", 1, 2, 3),
    Step(2, {"a": 1.0}, {"rollout": 0.5}, 1.0),
    EvalResult(3, "end", 10, 0.5, 0.2, 0.8, {"t": 0.5}, 12.0, 3.0),
    CheckpointSaved(3, "path", 0.1),
    Warned("code", "message", "fix"),
    Finished("completed", 3, 9.0),
    Alive("rollout/env_wait", False, "", 1.5),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.kind)
def test_every_event_survives_the_file(event):
    record = Record(5.0, 1, event)
    assert Record.from_json(json.loads(json.dumps(record.to_json()))) == record


def test_unknown_kinds_and_extra_fields_are_left_out():
    assert Record.from_json({"kind": "of_a_later_version", "time": 1, "rank": 0}) is None
    assert Record.from_json({"kind": "phase", "time": 1, "rank": 0}) is None
    line = {"kind": "phase", "time": 1, "rank": 0, "phase": "x", "step": 1, "new_field": 2}
    assert Record.from_json(line) == Record(1.0, 0, Phase("x", 1))


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": ["eval"]},
        {"success_rate": "high"},
        {"per_task": [1]},
        {"per_task": {"t": "x"}},
        {"label": 3},
        {"time": "late"},
        {"rank": float("inf")},
    ],
)
def test_a_value_of_another_type_is_left_out(changed):
    line = {**Record(5.0, 1, EVENTS[3]).to_json(), **changed}
    assert Record.from_json(line) is None


def test_numbers_that_json_has_no_sign_for_come_back(tmp_path):
    path = tmp_path / "events.jsonl"
    event = EvalResult(3, "nan", 10, 0.5, 0.2, 0.8, {"t": math.inf}, math.nan, 3.0)
    line = json.dumps(plain(Record(5.0, 0, event).to_json()), allow_nan=False)
    path.write_text(line + "\n")
    (record,) = read_records(path)
    assert record.event.label == "nan"
    assert math.isnan(record.event.mean_steps)
    assert record.event.per_task == {"t": math.inf}


def test_tail_waits_for_the_end_of_a_line(tmp_path):
    path = tmp_path / "events.jsonl"
    tail = EventTail(path)
    assert tail.poll() == []
    line = json.dumps(Record(1.0, 0, Phase("a", 0)).to_json())
    path.write_text(f"{line}\n{line[:20]}")
    assert len(tail.poll()) == 1
    assert tail.poll() == []
    with path.open("a") as file:
        file.write(f"{line[20:]}\n")
    assert len(tail.poll()) == 1
    assert EventTail(path, from_end=True).poll() == []


def test_torn_line_hides_no_other(tmp_path):
    path = tmp_path / "events.jsonl"
    line = json.dumps(Record(1.0, 0, Phase("a", 0)).to_json())
    path.write_text(f"{line}\n{line[:10]}\n[1]\n{line}\n")
    assert len(read_records(path)) == 2


def history_of(*events):
    history = History()
    for time, event in enumerate(events):
        history.add(Record(float(time), 0, event))
    return history


def test_resumed_run_replaces_the_steps_after_its_checkpoint():
    def step(number, value):
        return Step(number, {"a": value}, {}, 1.0)

    history = history_of(
        RunStarted("train", "d", 1, 0, 6),
        *(step(n, 1.0) for n in (1, 2, 3, 4, 5)),
        EvalResult(4, "interval", 1, 0, 0, 1, {}, 1, 1),
        CheckpointSaved(3, "p3", 1.0),
        Finished("stopped", 5, 1.0),
        RunStarted("train", "d", 1, 3, 6),
        step(4, 2.0),
    )
    assert {n: s.metrics["a"] for n, s in history.steps.items()} == {1: 1, 2: 1, 3: 1, 4: 2}
    assert history.evals == []
    assert [c.step for c in history.checkpoints] == [3]
    assert history.finished is None


def test_later_event_of_the_same_step_wins():
    history = history_of(Step(1, {"a": 1.0}, {}, 1.0), Step(1, {"a": 2.0}, {}, 1.0))
    assert history.steps[1].metrics == {"a": 2.0}
