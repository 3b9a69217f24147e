"""Generator states survive as text."""

from __future__ import annotations

import json

import torch

from joyrlinf_core.checkpoint import rng


def test_restored_generator_draws_the_same():
    torch.manual_seed(5)
    torch.rand(3)
    states = json.loads(json.dumps(rng.capture()))
    expected = torch.rand(4)
    torch.rand(9)
    rng.restore(states)
    assert torch.equal(torch.rand(4), expected)
