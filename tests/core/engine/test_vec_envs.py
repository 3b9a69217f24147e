from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from joyrlinf_core.engine import vec_envs
from joyrlinf_core.envs.metaworld import MetaWorldConfig
from tests.core.engine.counting import CountingConfig


class Closable:
    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def context(stages: int, ranks: int = 1) -> Any:
    config = SimpleNamespace(rollout=SimpleNamespace(pipeline_stage_num=stages))
    placement = SimpleNamespace(env_ranks=tuple(range(ranks)))
    batch = SimpleNamespace(group_size=2)
    return SimpleNamespace(plan=SimpleNamespace(config=config, placement=placement, batch=batch))


def test_a_stage_that_can_not_be_built_closes_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Closable] = []

    def build(*_: Any, **__: Any) -> Closable:
        if len(built) == 2:
            raise RuntimeError("no third one")
        built.append(Closable())
        return built[-1]

    monkeypatch.setattr(vec_envs, "build_vec_env", build)
    with pytest.raises(RuntimeError, match="third"), ExitStack() as opened:
        vec_envs.build_vec_envs(context(3), CountingConfig(total_num_envs=6), opened)
    assert [env.closed for env in built] == [True, True]


def test_envs_are_dealt_to_ranks_and_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def build(_: Any, size: int, **__: Any) -> Closable:
        sizes.append(size)
        return Closable()

    monkeypatch.setattr(vec_envs, "build_vec_env", build)
    with ExitStack() as opened:
        vec_envs.build_vec_envs(context(2, ranks=2), CountingConfig(total_num_envs=12), opened)
    assert sizes == [3, 3]


@pytest.mark.parametrize(
    ("changes", "shared"),
    [
        ({}, True),
        ({"total_num_envs": 2, "num_workers": 3, "infer_micro_batch_size": 4}, True),
        ({"num_episodes": 9, "rollout_epoch": 5, "max_steps_per_rollout_epoch": 300}, True),
        ({"eval_split": "selection"}, True),
        ({"max_episode_steps": 150}, False),
        ({"tasks": ("reach-v3",)}, False),
        ({"ignore_terminations": True}, False),
        ({"reward_coef": 2.0}, False),
        ({"camera": "corner"}, False),
    ],
)
def test_evaluation_shares_simulators_where_episodes_go_alike(
    changes: dict[str, Any], shared: bool
) -> None:
    train = MetaWorldConfig(type="metaworld", total_num_envs=4)
    evaluation = train.model_copy(update=changes)
    assert vec_envs.can_share(train, evaluation) == shared


def test_running_episodes_are_not_disturbed() -> None:
    train = CountingConfig(auto_reset=True)
    assert not vec_envs.can_share(train, train)


def test_another_simulator_is_not_shared() -> None:
    train = MetaWorldConfig(type="metaworld", total_num_envs=4)
    assert not vec_envs.can_share(train, CountingConfig())
