import gzip
import json

import pytest

from joyrlinf_core.config.schema import ProfilerConfig
from joyrlinf_core.profiler.ranges import annotate
from joyrlinf_core.profiler.schedule import StepProfiler


def run(config, tmp_path, rank=0, steps=4):
    profiler = StepProfiler(ProfilerConfig(**config), tmp_path, rank, role="sync", use_cuda=False)
    written = []
    for step in range(1, steps + 1):
        profiler.begin(step)
        with annotate("rollout"):
            pass
        written.append(profiler.end(step))
    return [path.name for path in written if path]


def test_only_named_steps_and_ranks_are_recorded(tmp_path):
    config = {"enable": True, "steps": (2, 3), "ranks": (0,)}
    assert run(config, tmp_path) == ["rank0_step2.json.gz", "rank0_step3.json.gz"]
    assert run(config, tmp_path, rank=1) == []
    assert run({**config, "enable": False}, tmp_path) == []
    assert run({**config, "roles": ("actor",)}, tmp_path) == []
    with gzip.open(tmp_path / "rank0_step2.json.gz") as file:
        events = json.load(file)["traceEvents"]
    assert any(event.get("name") == "rollout" for event in events)


def test_consecutive_steps_join_on_request(tmp_path):
    config = {
        "enable": True,
        "steps": (1, 2, 4),
        "all_ranks": True,
        "profile_continuous_steps": True,
        "tool_config": {"torch": {"compress": False}},
    }
    assert run(config, tmp_path, rank=3) == ["rank3_step1-2.json", "rank3_step4.json"]


def open_window(tmp_path):
    """Returns a profiler that joins steps 2 and 3."""
    config = {"enable": True, "steps": (2, 3), "profile_continuous_steps": True}
    return StepProfiler(ProfilerConfig(**config), tmp_path, 0, role="sync", use_cuda=False)


@pytest.mark.parametrize("last", [2, 3])
def test_a_run_that_stops_inside_a_window_still_writes_it(tmp_path, last):
    """Step 3 is never reached, or it is begun and its `end` is not reached."""
    with open_window(tmp_path) as profiler:
        profiler.begin(2)
        assert profiler.end(2) is None
        if last == 3:
            profiler.begin(3)
    name = "rank0_step2-3.json.gz" if last == 3 else "rank0_step2.json.gz"
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert annotate("a") is annotate("b")


def test_an_error_drops_the_window(tmp_path):
    def fail():
        with open_window(tmp_path) as profiler:
            profiler.begin(2)
            raise ValueError("broke")

    with pytest.raises(ValueError, match="broke"):
        fail()
    assert list(tmp_path.iterdir()) == []
    assert annotate("a") is annotate("b")


def test_ranges_cost_nothing_when_off():
    assert annotate("a") is annotate("b")
