from __future__ import annotations

from typing import Any

import pytest

from tests.core.engine import three_ranks
from tests.core.engine.three_ranks import ROLLOUTS, SLEEP_S


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of three ranks saw."""
    return three_ranks.start(tmp_path_factory.mktemp("ranks"))


SIZES = {
    "two simulate": [[4, 4, 4]],
    "two simulate, auto reset": [[6, 6]],
    "two act": [[3, 3], [3, 3]],
    "two act, auto reset": [[6], [6]],
    "uneven": [[6, 6]],
    "uneven, auto reset": [[6, 6]],
}


@pytest.mark.parametrize("name", ROLLOUTS)
def test_a_rollout_is_the_one_of_local_envs(ranks: list[dict[str, Any]], name: str) -> None:
    acting = [seen[name] for seen in ranks if "sizes" in seen[name]]
    assert [seen["sizes"] for seen in acting] == SIZES[name]
    for seen in acting:
        assert seen["different"] == []
        assert seen["fields"] > 30
        assert seen["over"] > 0
        assert seen["played"] > seen["over"]


@pytest.mark.parametrize("name", [*ROLLOUTS, "evaluation", "two act slowly", "crash"])
def test_close_leaves_nothing_behind(ranks: list[dict[str, Any]], name: str) -> None:
    for seen in ranks:
        assert seen[name]["threads"] == []
        assert seen[name]["children"] == []
        assert seen[name].get("failures", 0) in (0, [], ["SimulatorCrashError"] * 2)


def test_evaluation_has_envs_of_its_own(ranks: list[dict[str, Any]]) -> None:
    seen = ranks[2]["evaluation"]
    assert seen["size"] == 4
    assert seen["state"]
    assert seen["step"] == [True] * 4
    assert seen["training"]
    assert "without send" in seen["twice"]


def test_parts_of_a_stage_simulate_at_the_same_time(ranks: list[dict[str, Any]]) -> None:
    assert SLEEP_S <= ranks[2]["two simulate slowly"]["seconds"] < 1.7 * SLEEP_S


def test_no_client_waits_for_the_simulators_of_another(ranks: list[dict[str, Any]]) -> None:
    for seen in ranks[1:]:
        assert SLEEP_S <= seen["two act slowly"]["seconds"] < 1.7 * SLEEP_S


def test_a_crash_is_told_to_all_clients_and_fails_the_env_rank(
    ranks: list[dict[str, Any]],
) -> None:
    for seen in ranks[1:]:
        told = seen["crash"]["error"]
        assert told.startswith("rank 0 (env): the simulator raised an exception:\n")
        assert "the double was told to crash" in told
        assert seen["crash"]["failures"] == []
    assert ranks[0]["crash"]["failures"] == ["SimulatorCrashError"] * 2


def test_the_death_of_an_env_rank_is_noticed_at_once(ranks: list[dict[str, Any]]) -> None:
    for seen in ranks[1:]:
        assert seen["death"]["error"].startswith("rank 0 (env) is gone: ")
        assert "look at the log of rank 0" in seen["death"]["error"]
        assert seen["death"]["seconds"] < 5
