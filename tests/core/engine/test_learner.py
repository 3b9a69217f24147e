from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from joyrlinf_core.algorithms.base import LossOutput
from joyrlinf_core.batch.metrics import Metric, merge
from joyrlinf_core.engine.learner import Learner
from joyrlinf_core.observability.timers import PhaseTimer

NORMALISER = 8.0


class Rank:
    """A rank with `own` rows that count, whose partners have `others`."""

    def __init__(self, own: int, others: list[int]) -> None:
        self._own, self._others = own, others

    def sum(self, values: list[float]) -> list[float]:
        assert values == [float(self._own > 0)]
        return [values[0] + sum(count > 0 for count in self._others)]

    def max(self, value: float) -> float:
        return max(value, *(-(-count // 2) for count in self._others))

    def any(self, *, flag: bool) -> bool:
        return flag

    def sum_gradients(self, parameters: list[Any]) -> None:
        pass


def step(own: int, others: list[int], *, sharded: bool) -> dict[str, Metric]:
    """Step on 8 rows, `own` of them with a weight; each adds 1 / NORMALISER to the loss."""
    parameter = torch.nn.Parameter(torch.ones(()))
    double: Any = object.__new__(Learner)
    double._objective = SimpleNamespace(active_rows=lambda flat, rows: rows[flat.weights != 0])
    double._algorithm = SimpleNamespace(on_nonfinite="stop")
    double._collectives = Rank(own, others)
    double._parameters = [parameter]
    double._optimizer = torch.optim.SGD([parameter], lr=0.1)
    double._timer = PhaseTimer()
    double._gradient_scale = 1.0
    double._config = SimpleNamespace(
        actor=SimpleNamespace(micro_batch_size=2, optim=SimpleNamespace(clip_grad=1.0))
    )
    double.sharded = sharded

    def loss_of(_flat: Any, micro_batch: Any, normaliser: float, _step: int) -> LossOutput:
        loss = parameter * len(micro_batch.rows) * (not micro_batch.padding) / normaliser
        return LossOutput(loss=loss, parts={"policy_loss": loss.detach()})

    double._loss_of = loss_of
    weights = (torch.arange(8) < own).float()
    flat: Any = SimpleNamespace(weights=weights, advantages=torch.ones(8))
    return double._optimizer_step(flat, torch.arange(8), NORMALISER, 0, check_ratio=False)


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("counts", [[4, 4], [5, 1], [8, 0], [3, 0, 5]])
def test_the_reported_loss_is_the_step_s_loss_however_rows_are_spread(
    counts: list[int], sharded: bool
) -> None:
    parts = [
        step(own, counts[:rank] + counts[rank + 1 :], sharded=sharded)
        for rank, own in enumerate(counts)
    ]
    merged = merge(parts)
    assert merged["policy_loss"].value() == pytest.approx(sum(counts) / NORMALISER)
    assert merged["samples"].value() == sum(counts)


def test_a_step_that_nobody_has_rows_for_is_skipped() -> None:
    assert set(step(0, [0], sharded=False)) == {"steps_skipped"}
