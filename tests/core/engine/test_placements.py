"""Every placement, sync and async, learns what one rank alone learns."""

from __future__ import annotations

from pathlib import Path

import pytest

from joyrlinf_core.observability.run_dir import RunDir
from tests.core.engine.harness import largest_difference, make_config, make_policy, weights
from tests.core.engine.many_ranks import Case, history, run_cases, status

ACROSS = {
    "disaggregated 1 and 1": {"env,rollout": "0", "actor": "1"},
    "disaggregated 2 and 2": {"env,rollout": "0-1", "actor": "2-3"},
    "disaggregated 2 and 1": {"env,rollout": "0-1", "actor": "2"},
    "disaggregated 1 and 2": {"env,rollout": "0", "actor": "1-2"},
    "hybrid, acting on one": {"env,rollout": "0", "actor": "0-1"},
    "hybrid, acting on the second": {"env,rollout": "1", "actor": "0-1"},
}
"""By name: placements in which env and rollout are the same ranks."""

SPLIT = {
    "split": {"env": "0", "rollout": "1", "actor": "2"},
    "split, two simulate": {"env": "0-1", "rollout": "2", "actor": "3"},
    "split, two act": {"env": "0", "rollout": "1-2", "actor": "3"},
    "hybrid, all apart": {"env": "0", "rollout": "1", "actor": "0-1"},
}
"""Env and rollout on different ranks."""

PPO = {
    "actor__model__add_value_head": True,
    "algorithm__adv_type": "gae",
    "algorithm__loss_type": "actor_critic",
    "algorithm__group_size": 1,
}


def world(placement: dict[str, str]) -> int:
    return 1 + max(int(part[-1]) for part in placement.values())


def case(policy: str, placement: dict[str, str], stop_after: int | None = None, **changes) -> Case:
    config = make_config(
        actor__model__model_path=policy,
        # 8 rows divide into the samples of one and of two actors alike.
        actor__micro_batch_size=8,
        actor__gradient_accumulation_steps=2 // actors(placement),
        cluster__component_placement=placement,
        **changes,
    )
    return Case(config, world(placement), stop_after)


def actors(placement: dict[str, str]) -> int:
    named = next(ranks for roles, ranks in placement.items() if "actor" in roles)
    return 2 if "-" in named else 1


ONE = {"env,rollout,actor": "0"}
ASYNC = {"algorithm__pipeline_mode": "async"}
APART = ACROSS["disaggregated 1 and 1"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("placements")
    policy = str(make_policy(directory / "policy", make_config()))
    cases = {"one": case(policy, ONE), "one ppo": case(policy, ONE, **PPO)}
    # Both modes deliver the same bytes, see `comm`; here they take turns.
    for index, (name, placement) in enumerate((ACROSS | SPLIT).items()):
        mode = ("v1", "v2")[index % 2]
        cases[name] = case(policy, placement, algorithm__comm_mode=mode)
    for name, placement in ACROSS.items():
        if "hybrid" not in name:
            cases[f"async, {name}"] = case(policy, placement, **ASYNC)
    cases |= {
        "sharded": case(policy, ACROSS["disaggregated 1 and 2"], actor__fsdp__strategy="fsdp2"),
        "async, split": case(policy, SPLIT["split, two simulate"], **ASYNC),
        "async, sharded": case(
            policy, ACROSS["disaggregated 2 and 2"], actor__fsdp__strategy="fsdp2", **ASYNC
        ),
        "async, exact": case(policy, APART, algorithm__proximal="exact", **ASYNC),
        "async, ppo": case(policy, APART, **PPO, **ASYNC),
        "stale": case(
            policy,
            ACROSS["disaggregated 2 and 1"],
            algorithm__max_staleness=2,
            algorithm__comm_mode="v2",
            runner__max_steps=6,
            runner__eval_at_start=True,
            runner__eval_at_end=True,
            runner__val_check_interval=2,
            **ASYNC,
        ),
        "stopped": case(
            policy,
            ACROSS["disaggregated 2 and 2"],
            stop_after=2,
            algorithm__max_staleness=1,
            runner__max_steps=1000,
            **ASYNC,
        ),
    }
    checkpoint = RunDir(directory / "async, disaggregated 1 and 1").checkpoint(3)
    cases["six"] = case(policy, ONE, runner__max_steps=6)
    cases["resumed"] = case(
        policy, APART, runner__max_steps=6, runner__resume_dir=str(checkpoint), **ASYNC
    )
    run_cases(directory, cases)
    return directory


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ACROSS, *SPLIT])
def test_sync_ranks_learn_what_one_learns(runs: Path, name: str) -> None:
    assert largest_difference(weights(runs / "one", 3), weights(runs / name, 3)) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "sharded",
        "async, disaggregated 1 and 1",
        "async, disaggregated 2 and 2",
        "async, disaggregated 2 and 1",
        "async, disaggregated 1 and 2",
        "async, split",
        "async, sharded",
        "async, exact",
    ],
)
def test_async_without_staleness_learns_what_sync_learns(runs: Path, name: str) -> None:
    assert largest_difference(weights(runs / "one", 3), weights(runs / name, 3)) < 1e-5


@pytest.mark.slow
def test_ppo_learns_async_too(runs: Path) -> None:
    got = weights(runs / "async, ppo", 3)
    assert any("value_head" in name for name in got)
    assert largest_difference(weights(runs / "one ppo", 3), got) < 1e-5


@pytest.mark.slow
def test_a_resumed_async_run_equals_an_uninterrupted_sync_one(runs: Path) -> None:
    assert sorted(history(runs, "resumed").steps) == [4, 5, 6]
    assert largest_difference(weights(runs / "six", 6), weights(runs / "resumed", 6)) < 1e-5


@pytest.mark.slow
def test_no_sample_is_older_than_allowed_and_every_due_version_is_evaluated(runs: Path) -> None:
    told = history(runs, "stale")
    assert sorted(told.steps) == [1, 2, 3, 4, 5, 6]
    ages = [step.metrics["train/staleness_max"] for step in told.steps.values()]
    assert max(ages) <= 2
    # The first batches are made before any update.
    assert ages[0] == 0
    assert [(result.step, result.label) for result in told.evals] == [
        (0, "start"),
        (2, "interval"),
        (4, "interval"),
        (6, "end"),
    ]
    assert all(result.episodes == 10 for result in told.evals)
    played = [step.metrics["rollout/policy_rows"] for step in told.steps.values()]
    assert min(played) > 0


@pytest.mark.slow
def test_a_stop_request_ends_every_rank_with_a_checkpoint(runs: Path) -> None:
    assert [status(runs, "stopped", rank) for rank in (2, 3)] == ["stopped", "stopped"]
    last = max(history(runs, "stopped").steps)
    assert 2 <= last < 1000
    assert weights(runs / "stopped", last)
