"""`filter_rewards`: leave out groups that are too easy or too hard to learn from."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from joyrlinf_core.algorithms.groups import Groups
    from joyrlinf_core.config.schema import AlgorithmConfig

_ROUNDING = 1e-6
"""Rewards are float32; a mean on a bound must not fall out by rounding."""


def kept_groups(groups: Groups, config: AlgorithmConfig) -> Tensor:
    """Return bool [P]: the group's mean score lies within the bounds, both included.

    Every group is kept when `filter_rewards` is off.
    """
    if not config.filter_rewards:
        return groups.size > 0
    lower, upper = config.rewards_lower_bound, config.rewards_upper_bound
    slack = _ROUNDING * max(1.0, abs(lower), abs(upper))
    return (groups.mean >= lower - slack) & (groups.mean <= upper + slack)
