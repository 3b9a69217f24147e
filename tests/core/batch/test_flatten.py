"""Flattening keeps rows together and copies no observation."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from joyrlinf_core.batch.flatten import flatten


def test_row_is_t_times_b_plus_column(rollout, advantages):
    flat = flatten(rollout, advantages, "chunk_level")
    t, b, _ = rollout.shape
    assert flat.num_rows == t * b
    for row in range(t):
        for column in range(b):
            n, here = row * b + column, 100 * row + column
            assert flat.inputs["where"][n] == here
            assert (flat.replay["chain"][n] == here).all()
            assert (flat.actions[n] == here).all()
            assert flat.versions[n] == here + 1
            assert flat.prev_values is not None
            assert flat.prev_values[n] == here
            assert flat.advantages[n] == (0 if column == 1 else here)
            assert flat.mask[n] == (column != 1)
            assert flat.column[n] == column
            assert flat.group[n] == 10 + column // 2


@pytest.mark.parametrize(
    ("level", "shape", "value"),
    [("chunk_level", (24,), 6.0), ("action_level", (24, 2), 3.0), ("token_level", (24, 2, 3), 1.0)],
)
def test_logprobs_are_reduced_to_their_level(rollout, advantages, level, shape, value):
    logprobs = flatten(rollout, advantages, level).prev_logprobs
    assert logprobs.shape == shape
    assert (logprobs == value).all()


def test_flat_tokens_are_accepted(rollout, advantages):
    tokens = dataclasses.replace(rollout, prev_logprobs=rollout.prev_logprobs.flatten(2))
    assert flatten(tokens, advantages, "action_level").prev_logprobs.shape == (24, 2)


def test_observations_are_not_copied(rollout, advantages):
    flat = flatten(rollout, advantages, "chunk_level")
    assert flat.inputs["image"].data_ptr() == rollout.inputs["image"].data_ptr()


def test_rows_are_picked_in_every_field(rollout, advantages):
    flat = flatten(rollout, advantages, "chunk_level")
    some = flat.rows(torch.tensor([7, 2]))
    assert some.num_rows == 2
    assert some.inputs["where"].tolist() == [101, 2]
    assert some.returns is None
    assert some.weights.tolist() == [0.0, 0.25]
    assert some.to("cpu").group.tolist() == [10, 11]
