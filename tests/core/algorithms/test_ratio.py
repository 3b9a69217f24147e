"""Ratios and interpolated proximal log-probs."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from joyrlinf_core.algorithms.base import LossInputs
from joyrlinf_core.algorithms.ratio import current_logprobs, interpolated_proximal, log_ratio
from joyrlinf_core.config.schema import AlgorithmConfig
from joyrlinf_core.errors import RunFailedError


def test_golden_interpolation():
    proximal = interpolated_proximal(
        torch.tensor([0.1, -0.1], requires_grad=True),
        torch.tensor([-0.2, 0.3]),
        torch.tensor([3, 4]),
        5,
    )
    torch.testing.assert_close(proximal, torch.tensor([-0.05, 0.3]))
    assert not proximal.requires_grad


@pytest.mark.parametrize("version", [5, 6, 9])
def test_a_sample_that_is_not_older_is_its_own_proximal(version):
    old = torch.tensor([-0.2])
    assert torch.equal(
        interpolated_proximal(torch.tensor([0.1]), old, torch.tensor([version]), 5), old
    )


def test_interpolation_expands_over_actions():
    logprobs, old = torch.ones(2, 3), torch.zeros(2, 3)
    got = interpolated_proximal(logprobs, old, torch.tensor([3, 4]), 5)
    assert torch.equal(got, torch.tensor([[0.5] * 3, [0.0] * 3]))


def test_masked_garbage_does_not_leak():
    logprobs = torch.tensor([1.0, float("nan"), float("inf")], requires_grad=True)
    change = log_ratio(logprobs, torch.zeros(3), torch.tensor([True, False, False]), 20.0)
    assert change.tolist() == [1.0, 0.0, 0.0]
    change.exp().sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad[1:].tolist() == [0.0, 0.0]


def test_log_ratio_is_bounded():
    wide = torch.tensor([50.0, -50.0])
    mask = torch.ones(2, dtype=torch.bool)
    assert log_ratio(wide, torch.zeros(2), mask, 20.0).tolist() == [20.0, -20.0]
    assert log_ratio(wide, torch.zeros(2), mask, None).tolist() == [50.0, -50.0]


def _inputs() -> LossInputs:
    one = torch.ones(2)
    return LossInputs(torch.zeros(2, 3, 4), torch.zeros(2), one, one.bool(), one, 1.0)


def test_half_precision_is_refused_by_name():
    bad = dataclasses.replace(_inputs(), old_logprobs=torch.zeros(2, dtype=torch.bfloat16))
    with pytest.raises(RunFailedError, match=r"old_logprobs in torch\.bfloat16"):
        current_logprobs(bad, AlgorithmConfig())


def test_other_level_than_stored_is_refused():
    with pytest.raises(RunFailedError, match=r"shape \(2,\).*action_level gives \(2, 3\)"):
        current_logprobs(_inputs(), AlgorithmConfig(logprob_type="action_level"))
