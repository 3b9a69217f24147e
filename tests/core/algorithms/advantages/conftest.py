"""Contexts of advantage estimators."""

from __future__ import annotations

import pytest

from joyrlinf_core.algorithms.base import AdvantageContext
from joyrlinf_core.config.schema import AlgorithmConfig


@pytest.fixture
def context():
    """Build a context from keys of the `algorithm` section."""

    def make(*, auto_reset: bool = False, num_tasks: int = 1, sum_over_actors=None, **config):
        extra = {} if sum_over_actors is None else {"sum_over_actors": sum_over_actors}
        return AdvantageContext(
            AlgorithmConfig(**config), auto_reset=auto_reset, num_tasks=num_tasks, **extra
        )

    return make
