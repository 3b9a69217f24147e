"""Builder of loss inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from joyrlinf_core.algorithms.base import LossInputs


@pytest.fixture
def chunk_inputs() -> Callable[..., LossInputs]:
    """Build chunk-level inputs of one action and one dim per row, equally weighted."""

    def make(
        logprobs: Sequence[float], old: Sequence[float], advantages: Sequence[float], **other: Any
    ) -> LossInputs:
        m = len(logprobs)
        fields = {
            "logprobs": torch.tensor(logprobs).reshape(m, 1, 1),
            "old_logprobs": torch.tensor(old),
            "advantages": torch.tensor(advantages),
            "mask": torch.ones(m, dtype=torch.bool),
            "weights": torch.ones(m),
            "normaliser": float(m),
        }
        return LossInputs(**(fields | other))

    return make
