from __future__ import annotations

from typing import Any

import pytest

from tests.core.comm.weights import weight_ranks

HEADER = 8 * (3 + 2)
PARAMETERS = 48 + 32 + 336 + 144 + 80 + 16
BUFFERS = 8 + 12
BUCKETS = 3


@pytest.fixture(scope="session")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of three ranks saw."""
    return weight_ranks.start(tmp_path_factory.mktemp("weights"))


@pytest.mark.parametrize(("case", "acting"), [("plain", (1, 2)), ("sharded", (2,))])
def test_every_trained_tensor_arrives_bit_by_bit(
    seen: list[dict[str, Any]], case: str, acting: tuple[int, ...]
) -> None:
    for rank in acting:
        assert seen[rank][case]["same"] == [True] * 3
        assert seen[rank][case]["applied"] == [1, 2, 3]
        assert seen[rank][case]["again"] is None


@pytest.mark.parametrize("case", ["plain", "sharded"])
def test_only_what_can_have_changed_travels(seen: list[dict[str, Any]], case: str) -> None:
    sent = seen[0][case]
    first = HEADER + PARAMETERS + BUFFERS
    assert sent["bytes"] == [first, HEADER + PARAMETERS, HEADER + PARAMETERS]
    assert sent["calls"] == [1 + BUCKETS + 2, 1 + BUCKETS, 1 + BUCKETS]
    assert seen[2][case]["frozen"]


def test_an_actor_with_a_shard_sends_nothing(seen: list[dict[str, Any]]) -> None:
    assert seen[1]["sharded"]["calls"] == [0, 0, 0]


def test_actors_with_shards_may_act_with_whole_copies(seen: list[dict[str, Any]]) -> None:
    assert [rank["beside"]["same"] for rank in seen] == [[True, True]] * 3


def test_buffers_travel_when_they_have_changed(seen: list[dict[str, Any]]) -> None:
    calls = [1 + BUCKETS + 2, 1 + BUCKETS + 1, 1 + BUCKETS + 1, 1 + BUCKETS]
    assert seen[0]["buffers"]["calls"] == calls
    for rank in (1, 2):
        got = seen[rank]["buffers"]
        assert got["first"] == [0, [0.0, 0.0, 0.0]]
        # The count came with a version that was never applied; the cache is not persistent.
        assert got["then"] == [7, [1.0, 2.0, 3.0], [0.0, 0.0]]
        assert got["last"] == [7, [1.0, 2.0, 3.0]]


@pytest.mark.parametrize("rank", [1, 2])
def test_threads_swap_whole_versions(seen: list[dict[str, Any]], rank: int) -> None:
    got = seen[rank]["threads"]
    assert got["from_the_start"] is True
    assert got["newest"] == [3, None, True]
    assert got["held"] == [4, None, True]
    assert got["waits_behind"].startswith(
        "waits for version 6, last received 6: 4 is held until it is evaluated"
    )
    assert got["released"] == [6, True]
    assert got["evaluated_late"] is True
    assert got["last"] == 11


@pytest.mark.parametrize("rank", [1, 2])
def test_who_waits_is_told_what_is_missing_or_that_the_run_ends(
    seen: list[dict[str, Any]], rank: int
) -> None:
    got = seen[rank]["threads"]
    assert got["not_in_time"].startswith("waits for version 12, last received 11: rank 0 sent no")
    assert got["stopped"] == [False, True]


def test_a_broken_broadcast_leaves_the_policy_whole(seen: list[dict[str, Any]]) -> None:
    assert [rank["cut"]["raised"] for rank in seen] == ["connection reset"] * 3
    assert seen[0]["cut"]["next"] == "weights could not be sent: connection reset"
    for rank in (1, 2):
        got = seen[rank]["cut"]
        assert got["whole"]
        assert got["next"] == got["waiting"]
        assert got["next"] == "weights from rank 0 stopped coming after version 1: connection reset"


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("shape", "`large.weight` is (33, 5) on rank 0, (34, 5) on rank 2"),
        (
            "missing",
            "`first.weight` is one of the trained parameters of rank 0, not of rank 2",
        ),
        ("type", "`first.weight` is bfloat16 on rank 1, float32 on rank 2"),
        ("buffer", "`mean` is one of the buffers of rank 0, not of rank 2"),
    ],
)
def test_policies_that_differ_are_told_on_every_rank(
    seen: list[dict[str, Any]], case: str, said: str
) -> None:
    for rank in seen:
        assert rank["misfits"][case].startswith("the policy that learns and those that act differ")
        assert said in rank["misfits"][case]
