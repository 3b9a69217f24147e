from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from joyrlinf_core.errors import CheckpointError
from joyrlinf_core.policies.openpi.normalizer import Normalizer


def test_mean_std(build, stats):
    normalizer = build("tiny-pi0")._normalizer
    state = torch.randn(2, 5)
    mean, std = torch.tensor(stats.state.mean), torch.tensor(stats.state.std)
    scaled = normalizer.state(state)
    torch.testing.assert_close(scaled[:, :5], (state - mean) / (std + 1e-6))
    assert scaled.shape == (2, 7)
    assert not scaled[:, 5:].any()


def test_quantile(build, stats):
    normalizer = build("tiny-pi05")._normalizer
    actions = torch.randn(2, 4, 3)
    low, high = torch.tensor(stats.actions.q01), torch.tensor(stats.actions.q99)
    expected = 2 * (actions - low) / (high - low + 1e-6) - 1
    scaled = normalizer.actions(actions)
    torch.testing.assert_close(scaled[..., :3], expected)
    assert scaled.shape == (2, 4, 6)


@pytest.mark.parametrize("variant", ["tiny-pi0", "tiny-pi05"])
def test_actions_round_trip(build, variant):
    normalizer = build(variant)._normalizer
    actions = torch.randn(2, 4, 3)
    torch.testing.assert_close(normalizer.env_actions(normalizer.actions(actions)), actions)


def test_actions_unscaled_and_state_clipped(build):
    normalizer = build("tiny-pi0", normalize_actions=False, state_clip=0.5)._normalizer
    actions = torch.randn(2, 4, 3)
    assert torch.equal(normalizer.actions(actions)[..., :3], actions)
    assert normalizer.state(torch.full((1, 5), 100.0))[0, :5].tolist() == [0.5] * 5


def test_dimensions_beyond_the_statistics_pass_through(build, stats):
    settings = build("tiny-pi0").settings
    short = replace(stats.state, **dict.fromkeys(("mean", "std", "q01", "q99"), (1.0, 2.0)))
    scaled = Normalizer(settings, replace(stats, state=short)).state(torch.full((1, 5), 9.0))
    assert scaled[0, 2:5].tolist() == [9.0] * 3


def test_mismatches_are_named(build, stats):
    policy = build("tiny-pi0")
    with pytest.raises(CheckpointError, match="8 dims, the policy takes 7"):
        policy._normalizer.state(torch.zeros(1, 8))
    with pytest.raises(CheckpointError, match="2 dims, the policy was made for 3"):
        policy._normalizer.actions(torch.zeros(1, 4, 2))
    nan = replace(stats.state, q01=(float("nan"),) * 5, q99=(float("nan"),) * 5)
    with pytest.raises(CheckpointError, match="q01 and q99 of 'state'"):
        Normalizer(build("tiny-pi05").settings, replace(stats, state=nan))
