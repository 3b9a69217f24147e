import gzip
import json

from joyrlinf_core.config.schema import ProfilerConfig
from joyrlinf_core.profiler.ranges import annotate
from joyrlinf_core.profiler.schedule import StepProfiler


def run(config, tmp_path, rank=0, steps=4):
    profiler = StepProfiler(ProfilerConfig(**config), tmp_path, rank, use_cuda=False)
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


def test_ranges_cost_nothing_when_off():
    assert annotate("a") is annotate("b")
