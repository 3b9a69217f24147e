"""Warn when a run can't learn: no success, or no variance in any group, for many steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from joyrlinf_core.observability.events import Warned

if TYPE_CHECKING:
    from joyrlinf_core.observability.emitter import Emitter


class LearningWatch:
    """Counts dead steps and warns once each time a streak reaches the limit.

    Args:
        limit: Steps in a row before the warning; 0 never warns.
        emitter: Where warnings go.
    """

    def __init__(self, limit: int, emitter: Emitter) -> None:
        self._limit = limit
        self._emitter = emitter
        self._zero_success = 0
        self._no_variance = 0

    def observe(self, step: int, metrics: dict[str, float]) -> None:
        """Take the metrics of a finished step, the same on every rank."""
        if self._limit == 0:
            return
        zero = metrics.get("rollout/success_once") == 0
        self._zero_success = self._zero_success + 1 if zero else 0
        # GAE runs have no groups; for them the metric is absent.
        dead = metrics.get("rollout/groups_with_variance") == 0
        self._no_variance = self._no_variance + 1 if dead else 0
        if self._zero_success == self._limit:
            self._warn(
                "JR601",
                f"no episode was successful in the last {self._limit} steps (step {step})",
                "check with `joyrl eval` that the policy fits the env (prompt, camera, action "
                "scale); RL needs a start above zero",
            )
        if self._no_variance == self._limit:
            self._warn(
                "JR602",
                f"no group had any variance in returns in the last {self._limit} steps",
                "raise algorithm.group_size, or choose harder or easier tasks; when success is "
                "near one, the policy is done",
            )

    def _warn(self, code: str, message: str, fix: str) -> None:
        self._emitter.emit(Warned(code=code, message=message, fix=fix))
