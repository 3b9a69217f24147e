"""What the profiler keys make of a training run."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import torch

from tests.core.engine.harness import make_config, make_policy, run

ALWAYS = {
    "rollout/reset",
    "rollout/predict",
    "rollout/env_wait",
    "update/advantages",
    "update/forward_backward",
    "update/gradients",
    "update/optimizer",
}
AFTER_THE_STEP = {"eval", "save"}


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_policy(tmp_path_factory.mktemp("policy") / "p", make_config()))


def two_steps(policy: str, root: Path, **profiler: object) -> None:
    config = make_config(
        actor__model__model_path=policy,
        runner__max_steps=2,
        runner__val_check_interval=1,
        runner__save_interval=1,
        runner__eval_at_start=False,
        runner__eval_at_end=False,
        profiler=profiler,
    )
    run(config, root)


def ranges(trace: Path) -> dict[str, int]:
    """Return how often each named range is in a trace."""
    opener = gzip.open if trace.suffix == ".gz" else open
    with opener(trace, "rt") as file:
        events = json.load(file)["traceEvents"]
    names = [event["name"] for event in events if event.get("cat") == "user_annotation"]
    return {name: names.count(name) for name in names}


def test_the_named_step_is_traced_with_its_ranges(policy: str, tmp_path: Path) -> None:
    two_steps(policy, tmp_path / "run", enable=True, steps=(1,))
    folder = tmp_path / "run" / "profiler"
    assert [path.name for path in folder.iterdir()] == ["rank0_step1.json.gz"]
    found = ranges(folder / "rank0_step1.json.gz")
    assert found.keys() >= ALWAYS | AFTER_THE_STEP
    # 16 steps of an episode in chunks of 4; one reset; one evaluation and one checkpoint follow.
    assert [found[name] for name in ("rollout/predict", "rollout/env_wait")] == [4, 4]
    assert [found[name] for name in ("rollout/reset", "eval", "save")] == [1, 1, 1]


def test_steps_count_from_one_and_traces_go_where_they_are_told(
    policy: str, tmp_path: Path
) -> None:
    plain = {"torch": {"compress": False}}
    place = tmp_path / "traces"
    two_steps(
        policy, tmp_path / "run", enable=True, steps=(2,), save_path=str(place), tool_config=plain
    )
    assert [path.name for path in place.iterdir()] == ["rank0_step2.json"]
    assert ranges(place / "rank0_step2.json").keys() >= ALWAYS | {"eval"}
    assert not (tmp_path / "run" / "profiler").exists()


@pytest.mark.parametrize("profiler", [{}, {"enable": True, "ranks": (1,)}])
def test_off_or_on_another_rank_nothing_is_recorded(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profiler: dict[str, object]
) -> None:
    def fail(*_arguments: object, **_named: object) -> None:
        raise AssertionError("used although nothing is to be recorded")

    monkeypatch.setattr(torch.profiler, "profile", fail)
    monkeypatch.setattr(torch.profiler, "record_function", fail)
    two_steps(policy, tmp_path / "run", **profiler)
    assert not (tmp_path / "run" / "profiler").exists()
