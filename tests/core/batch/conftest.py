"""A small rollout with numbers that tell where they come from."""

from __future__ import annotations

import pytest
import torch

from joyrlinf_core.batch.rollout import RolloutBatch
from joyrlinf_core.batch.train import AdvantageResult


@pytest.fixture
def rollout() -> RolloutBatch:
    """T=4, B=6 (3 groups of 2), C=2, D=3; `inputs["where"]` holds 100 * t + column."""
    t, b, c, d = 4, 6, 2, 3
    where = 100 * torch.arange(t).unsqueeze(1) + torch.arange(b)
    no = torch.zeros(t, b, c, dtype=torch.bool)
    return RolloutBatch(
        inputs={"where": where, "image": torch.zeros(t, b, 2, 2, 3, dtype=torch.uint8)},
        replay={"chain": where.float().unsqueeze(-1).expand(t, b, 5)},
        actions=where.float().reshape(t, b, 1, 1).expand(t, b, c, d),
        rewards=torch.zeros(t, b, c),
        dones=no,
        terminations=no,
        prev_logprobs=torch.ones(t, b, c, d),
        played=torch.ones(t, b, dtype=torch.bool),
        episode=torch.zeros(t, b, dtype=torch.int64),
        group=torch.arange(b) // 2 + 10,
        task=torch.zeros(t, b, dtype=torch.int64),
        success=torch.zeros(t, b, dtype=torch.bool),
        versions=where + 1,
        prev_values=where.float(),
    )


@pytest.fixture
def advantages(rollout: RolloutBatch) -> AdvantageResult:
    """Chunk-level advantages equal to 100 * t + column; column 1 is masked."""
    t, b, _ = rollout.shape
    mask = torch.ones(t, b, dtype=torch.bool)
    mask[:, 1] = False
    values = rollout.inputs["where"].float() * mask
    return AdvantageResult(
        advantages=values,
        returns=None,
        mask=mask,
        weights=mask.float() / t,
        total_weight=float(b),
        valid_actions=torch.full((t, b), 8),
        metrics={},
    )
