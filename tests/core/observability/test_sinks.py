import sys
import types

from joyrlinf_core.observability.events import EvalResult, Phase, Record, RunStarted, Step
from joyrlinf_core.observability.run_dir import RunDir
from joyrlinf_core.observability.sinks.scalars import scalars
from joyrlinf_core.observability.sinks.tensorboard import TensorBoardSink


def started(start_step):
    return Record(1.0, 0, RunStarted("train", "d", 1, start_step, 9))


def step(number, value):
    return Record(float(number), 0, Step(number, {"train/a": value}, {"rollout": 0.5}, 1.0))


def test_scalars_of_a_step_and_of_an_evaluation():
    assert scalars(step(3, 2.0).event) == (
        3, {"train/a": 2.0, "time/rollout": 0.5, "time/step": 1.0},
    )  # fmt: skip
    _, values = scalars(EvalResult(4, "end", 2, 0.5, 0.1, 0.9, {"x": 1.0, "y": 0.0}, 7.0, 1.0))
    assert values["eval/success_rate"] == 0.5
    assert values["eval/task/y"] == 0.0
    assert scalars(Phase("a", 1)) == (0, {})


def test_resumed_curves_do_not_go_back(tmp_path):
    run_dir = RunDir(tmp_path)
    for start, numbers, value in ((0, (1, 2, 3, 4, 5), 1.0), (3, (4, 5, 6), 2.0)):
        sink = TensorBoardSink(run_dir)
        sink.write(step(9, 0.0))
        sink.write(started(start))
        for number in numbers:
            sink.write(step(number, value))
        sink.close()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(run_dir.tensorboard))
    read.Reload()
    found = {event.step: event.value for event in read.Scalars("train/a")}
    assert [event.step for event in read.Scalars("train/a")] == [1, 2, 3, 4, 5, 6]
    assert found == {1: 1, 2: 1, 3: 1, 4: 2, 5: 2, 6: 2}


def test_wandb_is_offline_without_a_key_and_goes_on_in_the_same_run(tmp_path, monkeypatch):
    from joyrlinf_core.observability.sinks.wandb import WandbSink

    calls, logged = [], []
    run = types.SimpleNamespace(
        id="abc", log=logged.append, finish=lambda: None, define_metric=lambda *_, **__: None
    )
    stub = types.ModuleType("wandb")
    stub.init = lambda **settings: calls.append(settings) or run
    monkeypatch.setitem(sys.modules, "wandb", stub)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for start in (0, 3):
        sink = WandbSink(RunDir(tmp_path), "experiment", {"a": 1})
        sink.write(started(start))
        sink.write(step(start + 1, 2.0))
        sink.close()
    assert [call["id"] for call in calls] == [None, "abc"]
    assert {call["mode"] for call in calls} == {"offline"}
    assert [entry["global_step"] for entry in logged] == [1, 4]
