"""The layout table."""

from __future__ import annotations

import pytest
import torch

from joyrlinf_core.batch.layout import (
    LEGAL_PAIRS,
    check_pair,
    expand_to,
    reduce_logprobs,
    reduce_to,
    split_tokens,
)
from joyrlinf_core.errors import ConfigError


def test_only_a_coarser_logprob_is_illegal():
    for pair in LEGAL_PAIRS:
        check_pair(*pair)
    assert len(set(LEGAL_PAIRS)) == 5
    with pytest.raises(ConfigError, match="chunk_level is coarser") as caught:
        check_pair("action_level", "chunk_level")
    assert caught.value.fix == "set algorithm.logprob_type: action_level"


def test_flat_tokens_are_split_once():
    tokens = torch.arange(2.0 * 3 * 8).reshape(2, 3, 8)
    split = split_tokens(tokens, 4)
    assert split.shape == (2, 3, 4, 2)
    assert split[1, 2, 3].tolist() == [46.0, 47.0]
    assert split_tokens(split, 4) is split


def test_tokens_that_do_not_divide_are_refused():
    with pytest.raises(ConfigError, match=r"8 tokens a chunk.*num_action_chunks: 3"):
        split_tokens(torch.zeros(2, 3, 8), 3)


def test_reduce_sums_to_each_level():
    logprobs = torch.arange(6.0).reshape(1, 2, 3)
    assert reduce_logprobs(logprobs, "chunk_level").tolist() == [15.0]
    assert reduce_logprobs(logprobs, "action_level").tolist() == [[3.0, 12.0]]
    assert reduce_logprobs(logprobs, "token_level") is logprobs


def test_expand_and_reduce_between_levels():
    fine = torch.zeros(2, 3, 4)
    assert torch.equal(expand_to(torch.tensor([1.0, 2.0]), fine)[1], torch.full((3, 4), 2.0))
    assert expand_to(fine, fine).shape == fine.shape
    values = torch.arange(12.0).reshape(2, 2, 3)
    assert reduce_to(values, 2).tolist() == [[1.0, 4.0], [7.0, 10.0]]
    assert reduce_to(values, 1).tolist() == [2.5, 8.5]
    assert reduce_to(values, 3) is values
