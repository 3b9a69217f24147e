"""Minibatches: seeded, fresh each step, and the same on any number of ranks."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from joyrlinf_core.batch.flatten import flatten
from joyrlinf_core.batch.minibatch import (
    active_rows,
    micro_batches,
    minibatch_rows,
    shuffled_rows,
)
from joyrlinf_core.errors import ConfigError

T, G = 6, 4


def _group_rows(groups: list[int]) -> torch.Tensor:
    """Return the flat group number of T chunk steps of whole groups."""
    columns = torch.tensor(groups).repeat_interleave(G)
    return columns.expand(T, -1).flatten()


def _samples(groups: list[int], rows: torch.Tensor) -> list[tuple[int, int, int]]:
    """Return (group, t, member) of flat rows, whatever rank they lie on."""
    width = len(groups) * G
    return [(groups[int(n) % width // G], int(n) // width, int(n) % G) for n in rows]


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_one_and_two_ranks_make_the_same_global_minibatches(count):
    """T_eff * G = 24 divides by every count."""
    key = {"seed": 3, "step": 5, "update_epoch": 1}
    whole = minibatch_rows(_group_rows([0, 1, 2, 3]), count, **key)
    first = minibatch_rows(_group_rows([0, 1]), count, **key)
    second = minibatch_rows(_group_rows([2, 3]), count, **key)
    for m in range(count):
        parts = _samples([0, 1], first[m]) + _samples([2, 3], second[m])
        assert sorted(parts) == sorted(_samples([0, 1, 2, 3], whole[m]))


def test_every_row_is_used_once():
    rows = torch.cat(minibatch_rows(_group_rows([4, 9]), 3, seed=0, step=0, update_epoch=0))
    assert sorted(rows.tolist()) == list(range(2 * T * G))


def test_every_minibatch_has_an_equal_share_of_every_group():
    for rows in minibatch_rows(_group_rows([0, 1, 2]), 4, seed=0, step=0, update_epoch=0):
        assert torch.bincount(_group_rows([0, 1, 2])[rows]).tolist() == [6, 6, 6]


def test_order_is_a_function_of_seed_step_and_epoch():
    group = _group_rows([0, 1])
    base = {"seed": 0, "step": 0, "update_epoch": 0}
    order = shuffled_rows(group, **base)
    assert torch.equal(order, shuffled_rows(group, **base))
    for name in base:
        assert not torch.equal(order, shuffled_rows(group, **{**base, name: 1})), name
    torch.manual_seed(1)
    assert torch.equal(order, shuffled_rows(group, **base))


def test_groups_are_shuffled_differently():
    samples = _samples([0, 1], shuffled_rows(_group_rows([0, 1]), seed=0, step=0, update_epoch=0))
    order = {g: [(t, m) for group, t, m in samples if group == g] for g in (0, 1)}
    assert order[0] != order[1]


def test_rows_that_do_not_divide_are_refused_with_the_numbers():
    with pytest.raises(ConfigError, match=r"48 samples do not divide into 5 .* 48 % 5 = 3"):
        minibatch_rows(_group_rows([0, 1]), 5, seed=0, step=0, update_epoch=0)


def test_torn_group_is_refused():
    with pytest.raises(ConfigError, match="unequal numbers of rows"):
        shuffled_rows(_group_rows([0, 1])[:-1], seed=0, step=0, update_epoch=0)


def test_active_rows(rollout, advantages):
    """Column 1 is masked; row 0 (t = 0, column 0) has advantage zero."""
    flat = flatten(rollout, advantages, "chunk_level")
    rows = torch.tensor([7, 2, 0, 1, 5])
    assert active_rows(flat, rows, policy_only=True).tolist() == [2, 5]
    assert active_rows(flat, rows, policy_only=False).tolist() == [2, 0, 5]


def test_active_rows_at_action_level(rollout, advantages):
    flat = flatten(rollout, advantages, "chunk_level")
    weights = torch.zeros(24, 2)
    weights[3, 1] = weights[4] = 1
    fine = dataclasses.replace(flat, weights=weights, advantages=torch.eye(24)[:, [3, 4]])
    rows = torch.arange(24)
    assert active_rows(fine, rows, policy_only=False).tolist() == [3, 4]
    # Row 3 has its advantage where it has no weight.
    assert active_rows(fine, rows, policy_only=True).tolist() == [4]


def test_micro_batches():
    assert [len(m) for m in micro_batches(torch.arange(7), 3)] == [3, 3, 1]
    assert micro_batches(torch.arange(0), 3) == ()
