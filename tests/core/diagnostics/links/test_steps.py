from itertools import combinations

import pytest

from joyrlinf_core.diagnostics.links.request import Request, parse_sizes
from joyrlinf_core.diagnostics.links.steps import (
    LinkGroup,
    bus_factor,
    make_steps,
    pairs,
    rank_text,
    size_text,
    without_repeats,
)
from joyrlinf_core.errors import UsageError

WORLD = LinkGroup("world", "gloo", False, (0, 1, 2), 0)
ACTOR = LinkGroup("actor", "nccl", True, (1, 2), 1)


@pytest.mark.parametrize(
    ("operation", "two", "four"),
    [("all_reduce", 1.0, 1.5), ("all_to_all", 0.5, 0.75), ("broadcast", 1, 1), ("p2p", 1, 1)],
)
def test_bus_factors_are_those_of_nccl_tests(operation, two, four):
    assert (bus_factor(operation, 2), bus_factor(operation, 4)) == (two, four)


def crossings_of_a_ring_all_reduce(ranks, parts):
    """Count the parts that one rank sends to the next: reduce-scatter, then all-gather."""
    assert parts == ranks, "one part a rank"
    return sum(1 for _ in range(2) for _ in range(ranks - 1))


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_all_reduce_factor_is_what_a_ring_sends(ranks):
    sent = crossings_of_a_ring_all_reduce(ranks, ranks) / ranks
    assert bus_factor("all_reduce", ranks) == pytest.approx(sent)


def test_neighbours_are_a_ring():
    assert pairs((4, 7), every=False) == [(4, 7)]
    assert pairs((0, 1, 2, 5), every=False) == [(0, 1), (1, 2), (2, 5), (0, 5)]
    assert pairs((0, 1, 2, 5), every=True) == list(combinations((0, 1, 2, 5), 2))


def test_steps_of_two_groups():
    steps = make_steps([WORLD, ACTOR], [1024, 4 * 2**20], per_pair=False)
    assert [step.index for step in steps] == list(range(1, len(steps) + 1))
    texts = [step.text for step in steps]
    assert texts[0] == "connect of world (gloo)"
    assert texts[1:3] == ["p2p 0-1 1 KiB of world (gloo)", "p2p 0-1 4 MiB of world (gloo)"]
    assert texts[-1] == "all_reduce 4 MiB of actor (nccl)"
    assert len(steps) == (1 + 3 * 2 + 3 * 2) + (1 + 1 * 2 + 3 * 2)
    assert {step.ranks for step in steps if step.group == 1} == {(1, 2)}


def test_a_repeated_group_is_checked_at_the_smallest_size_only():
    again = LinkGroup("trajectories", "gloo", False, (0, 1, 2), 0)
    other = LinkGroup("trajectories", "nccl", True, (0, 1, 2), 0)
    marked = without_repeats([WORLD, again, other])
    assert [group.same_as for group in marked] == ["", "world", ""]
    steps = make_steps(marked, [8, 16], per_pair=True)
    sizes = {step.nbytes for step in steps if step.group == 1}
    assert sizes == {0, 8}


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(4, "4 B"), (1020, "1020 B"), (1024, "1 KiB"), (2**26, "64 MiB"), (2**20 - 4, "1 MiB"),
     (2**30, "1 GiB"), (1536, "1.5 KiB"), (2**26 - 4, "64 MiB")],
)  # fmt: skip
def test_size_text(nbytes, text):
    assert size_text(nbytes) == text


def test_rank_text():
    assert rank_text((3,)) == "rank 3"
    assert rank_text((0, 1, 2, 5)) == "ranks 0-2,5"


def test_sizes_are_read_with_units():
    assert parse_sizes("64M, 1k,1GiB,8") == (8, 1024, 64 * 2**20, 2**30)
    assert parse_sizes("1K,1024") == (1024,)


@pytest.mark.parametrize("text", ["", "1K,,2K", "3", "1T", "-1", "1.5M", "100G", "K"])
def test_sizes_that_make_no_sense_are_refused(text):
    with pytest.raises(UsageError, match="--sizes"):
        parse_sizes(text)


def test_a_request_survives_the_plan():
    request = Request((8, 1024), per_pair=True, timeout=2.5, plan_groups=True)
    assert Request.from_args(request.to_args()) == request
    assert Request.from_args(Request().to_args()) == Request()
    assert max(Request().sizes_on(gpu=False)) == 64 * 2**20
    assert max(Request().sizes_on(gpu=True)) == 2**30
