from __future__ import annotations

from typing import Any

import pytest
import torch

from joyrlinf_core.comm.trajectories.exchange import TrajectoryExchange
from tests.core.comm.trajectories import exchange_ranks
from tests.core.comm.trajectories.exchange_ranks import (
    CPU,
    MAPS,
    MODES,
    WORLD,
    memory,
    plan_of,
    same,
    whole,
)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of four ranks saw."""
    return exchange_ranks.start(tmp_path_factory.mktemp("exchange"))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MAPS)
def test_every_actor_gets_its_columns_of_all_sources(
    seen: list[dict[str, Any]], name: str, mode: str
) -> None:
    rollout, actor, _ = MAPS[name]
    shards = plan_of(*MAPS[name]).shards
    for rank in {*rollout, *actor}:
        told = seen[rank]["lockstep"][f"{name}, {mode}"]
        assert told["same"] == [True] * 3
        sources = [shard.source for shard in shards if shard.destination == rank]
        if sources:
            # Sources say that versions from index - rank to index + rank acted.
            stamps = [[i, i - max(sources), i + max(sources)] for i in (5, 6, 7)]
            assert told["stamps"] == stamps


@pytest.mark.parametrize("name", MAPS)
def test_both_modes_deliver_the_same_bytes_in_the_same_order(
    seen: list[dict[str, Any]], name: str
) -> None:
    moved = 0
    for told in seen:
        first, second = (told["lockstep"][f"{name}, {mode}"] for mode in MODES)
        for counts, digest in first.get("received", []):
            moved += sum(counts)
            if sum(counts):
                assert [counts, digest] in second["received"]
        with_bytes = [
            [entry for entry in one.get("received", []) if sum(entry[0])] for one in (first, second)
        ]
        assert with_bytes[0] == with_bytes[1]
        assert first.get("sent") == second.get("sent")
    assert bool(moved) == (name != "colocated")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MAPS)
def test_what_stays_in_a_process_is_not_sent(
    seen: list[dict[str, Any]], name: str, mode: str
) -> None:
    shards = plan_of(*MAPS[name]).shards
    for rank in {shard.source for shard in shards}:
        leaves = any(s.source == rank and not s.in_process for s in shards)
        assert bool(seen[rank]["lockstep"][f"{name}, {mode}"]["sent"]) == leaves


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MAPS)
def test_an_actor_of_one_source_gets_views(
    seen: list[dict[str, Any]], name: str, mode: str
) -> None:
    shards = plan_of(*MAPS[name]).shards
    for rank in {shard.destination for shard in shards}:
        told = seen[rank]["lockstep"][f"{name}, {mode}"]
        mine = [shard for shard in shards if shard.destination == rank]
        own = len(mine) == 1 and mine[0].in_process
        assert told["own"] == [own] * 3
        assert told["merged"] == [own or len(mine) > 1] * 3


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("disaggregated 2+2", {2: 2, 3: 3}),
        ("three to one", {3: 2}),  # what two sources send after the first has ended is no batch
        ("one to two", {0: 2, 1: 2}),
        ("split", {2: 2, 3: 2}),
    ],
)
def test_batches_come_until_sources_end_and_stay_as_they_are(
    seen: list[dict[str, Any]], name: str, numbers: dict[int, int], mode: str
) -> None:
    for rank in MAPS[name][0]:
        assert seen[rank]["stream"][f"{name}, {mode}"] == {"ended": True}
    for rank, number in numbers.items():
        told = seen[rank]["stream"][f"{name}, {mode}"]
        assert told == {"indices": [*range(number)], "same": [True] * number}


def test_memory_is_used_again_after_a_release_only(seen: list[dict[str, Any]]) -> None:
    assert seen[1]["reuse"] == [True] * 4


@pytest.mark.parametrize("mode", MODES)
def test_messages_may_go_in_pieces(seen: list[dict[str, Any]], mode: str) -> None:
    assert [told["pieces"][mode] for told in seen] == [[True, True]] * WORLD


def test_primitives_move_any_counts(seen: list[dict[str, Any]]) -> None:
    assert [told["counts"] for told in seen] == [[True] * 60] * WORLD


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("damaged", "crc32"),
        ("foreign", "KRLTRAJ"),
        ("version", "version 2, this rank reads 1"),
    ],
)
def test_a_damaged_message_names_its_source_and_batch(
    seen: list[dict[str, Any]], case: str, why: str
) -> None:
    text = seen[1][case]
    assert "rank 1 can't use batch 4 of rank 0" in text
    assert why in text


@pytest.mark.parametrize("mode", MODES)
def test_sources_must_agree_on_fields_and_number(seen: list[dict[str, Any]], mode: str) -> None:
    fields, index = seen[2]["unlike"][mode]
    assert "the first batch of rank 1: its fields prev_values differ from those of rank 0" in fields
    assert "the first batch of rank 1: it is number 9, of rank 0 came 8" in index


def test_a_peer_that_left_is_named(seen: list[dict[str, Any]]) -> None:
    assert "nothing comes through from rank 0" in seen[1]["left"]["v1"]
    assert "the all-to-all of ranks 0, 1 failed" in seen[1]["left"]["v2"]


def test_one_process_needs_no_group() -> None:
    exchange = TrajectoryExchange(plan_of((0,), (0,), 2), 0, None, CPU)
    batch = whole(2, 0)
    got = exchange.exchange(batch, 3, 1, 2)
    assert got is not None
    assert (got.index, got.oldest, got.newest) == (3, 1, 2)
    assert same(got.tensors, batch)
    assert memory(got.tensors) == memory(batch)
    got.release()
    assert got.tensors == {}
    assert torch.equal(batch["group"], whole(2, 0)["group"])
