from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from joyrlinf_core.engine.evaluator import Evaluator, wilson
from joyrlinf_core.envs.base import ChunkStep, VecEnv
from joyrlinf_core.errors import NonFiniteError
from joyrlinf_core.observability.events import EvalResult
from tests.core.engine.counting import CountingConfig, CountingPolicy, CountingVecEnv


@pytest.mark.parametrize(
    ("wins", "episodes", "low", "high"),
    [
        # Newcombe 1998 (Statist. Med. 17, table I, method 3).
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_interval(wins: int, episodes: int, low: float, high: float) -> None:
    interval = wilson(wins, episodes)
    assert interval.low == pytest.approx(low, abs=1e-4)
    assert interval.high == pytest.approx(high, abs=1e-4)


def test_wilson_of_nothing_is_everything() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


class Alone:
    """One rank of several that never meet: keeps what it was given."""

    def __init__(self, rank: int = 0, world_size: int = 1) -> None:
        self.rank, self.world_size = rank, world_size
        self.is_main = rank == 0
        self.rows: list[Any] = []

    def gather_json(self, value: Any) -> list[Any]:
        self.rows = value
        return [value]

    def any(self, *, flag: bool) -> bool:
        return flag


def evaluate(
    episodes: int | None,
    *,
    envs: int = 4,
    stages: int = 1,
    rank: int = 0,
    ranks: int = 1,
    spoil: Callable[[ChunkStep], None] | None = None,
    planned: int = 0,
) -> tuple[EvalResult, list[Any]]:
    """Evaluate; episode i (variation -1 - i) succeeds at step 1, 2, 3 for i < 3, others never."""
    config = CountingConfig(total_num_envs=envs, solved_at={-1: 1, -2: 2, -3: 3})
    run = SimpleNamespace(eval_env=config, runner=SimpleNamespace(seed=0))
    context: Any = SimpleNamespace(
        plan=SimpleNamespace(config=run, batch=SimpleNamespace(eval_episodes=planned)),
        device=torch.device("cpu"),
        stop_requested=lambda: False,
        emitter=SimpleNamespace(phase=lambda *_, **__: None, emit=lambda _: None),
    )
    vec_envs = [CountingVecEnv(config, envs // stages) for _ in range(stages)]
    for env in vec_envs:
        env.spoil = spoil or env.spoil
    policy: Any = CountingPolicy()
    listed: list[VecEnv] = list(vec_envs)
    group: Any = Alone(rank, ranks)
    result = Evaluator(context, policy, listed, group).run(3, "eval", episodes=episodes)
    return result, group.rows


@pytest.mark.parametrize(("envs", "stages"), [(1, 1), (2, 2), (4, 1), (4, 2), (16, 2)])
def test_every_episode_is_played_once_on_any_number_of_envs(envs: int, stages: int) -> None:
    result, rows = evaluate(7, envs=envs, stages=stages)
    wins = [(0, True, 1), (1, True, 2), (2, True, 3)]
    assert sorted(rows) == [*wins, *((i, False, 6) for i in range(3, 7))]
    assert result.success_rate == pytest.approx(3 / 7)
    assert result.mean_steps == pytest.approx((1 + 2 + 3 + 4 * 6) / 7)
    assert result.per_task == {"even": pytest.approx(2 / 4), "odd": pytest.approx(1 / 3)}


def test_a_rank_without_episodes_plays_none() -> None:
    shares = [evaluate(2, rank=rank, ranks=3)[1] for rank in range(3)]
    assert shares == [[(0, True, 1)], [(1, True, 2)], []]


def test_no_episodes_are_no_error() -> None:
    result, rows = evaluate(0, planned=5)
    assert rows == []
    assert (result.episodes, result.success_rate, result.ci_high) == (0, 0.0, 1.0)


def test_the_plan_says_how_many_where_nobody_else_does() -> None:
    assert len(evaluate(None, planned=5)[1]) == 5


def test_a_nan_in_an_evaluation_names_the_episode() -> None:
    def spoil(result: ChunkStep) -> None:
        result.observation.state[1] = float("nan")

    with pytest.raises(NonFiniteError, match=r"observation in evaluation episode 1, .*=-2\)"):
        evaluate(4, spoil=spoil)
