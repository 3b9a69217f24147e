"""States and a manifest to save."""

from __future__ import annotations

import pytest
import torch

from joyrlinf_core.checkpoint import archive
from joyrlinf_core.checkpoint.manifest import CheckpointMeta


@pytest.fixture
def meta() -> CheckpointMeta:
    """A manifest of step 3."""
    return CheckpointMeta(
        step=3,
        config_hash="abc",
        world_size=2,
        torch_version=torch.__version__,
        seed=7,
        progress={"next_episode": 3, "seconds": 12.5},
        rng_states={"rank0/cpu": "00ff"},
    )


@pytest.fixture
def save(meta):
    """Save a small checkpoint; `value` tells it apart."""

    def write(step_dir, value: float = 1.0) -> None:
        model = {"layer.weight": torch.full((64, 64), value), "step": 4}
        optimizer = {
            "state": {0: {"exp_avg": torch.full((64, 64), value), "step": torch.tensor(4.0)}},
            "param_groups": [{"lr": 1e-4, "betas": (0.9, 0.95), "params": [0]}],
        }
        archive.save(step_dir, model, optimizer, {"last_epoch": 4, "lrs": [1e-4]}, meta)

    return write
