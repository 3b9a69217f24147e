from __future__ import annotations

import pytest

from joyrlinf_core.config.schema import OptimConfig
from joyrlinf_core.engine.optim import lr_factor


def test_warmup_then_constant() -> None:
    factor = lr_factor(OptimConfig(lr_warmup_steps=4), total_steps=10)
    assert [factor(step) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_cosine_ends_at_the_floor() -> None:
    config = OptimConfig(lr_warmup_steps=2, lr_schedule="cosine", min_lr_ratio=0.1)
    factor = lr_factor(config, total_steps=10)
    assert factor(2) == pytest.approx(1.0)
    assert factor(6) == pytest.approx(0.55)
    assert factor(10) == pytest.approx(0.1)
    assert factor(99) == pytest.approx(0.1)
