"""Metrics merge like the numbers over all entries together."""

from __future__ import annotations

import json
import math

import pytest
import torch

from joyrlinf_core.batch.metrics import Metric, decode, encode, merge, values


def test_parts_of_unequal_size_merge_to_the_mean_over_all():
    parts = [{"a": Metric(1.0, 1)}, {"a": Metric(torch.tensor(2.0), torch.tensor(4))}]
    assert values(merge(parts)) == {"a": 0.6}


@pytest.mark.parametrize(("kind", "expected"), [("max", 3.0), ("min", -1.0), ("sum", 2.0)])
def test_kinds(kind, expected):
    parts = [{"a": Metric(3.0, 1, kind)}, {"a": Metric(-1.0, 2, kind)}]
    assert values(merge(parts)) == {"a": expected}
    tensors = [{"a": Metric(torch.tensor(x), 1, kind)} for x in (3.0, -1.0)]
    assert values(merge(tensors)) == {"a": expected}


def test_metric_without_entries_has_no_value_and_does_not_disturb():
    empty = {"a": Metric(0.0, 0), "m": Metric(-math.inf, 0, "max")}
    assert values(empty) == {}
    assert math.isnan(empty["a"].value())
    full = {"a": Metric(3.0, 2), "m": Metric(-5.0, 1, "max")}
    assert values(merge([empty, full, empty])) == {"a": 1.5, "m": -5.0}


def test_names_missing_on_a_rank_survive():
    assert values(merge([{}, {"a": Metric(1.0, 1)}, {"b": Metric(4.0, 2)}])) == {"a": 1.0, "b": 2.0}


def test_other_kinds_do_not_merge():
    with pytest.raises(ValueError, match="mean and sum"):
        Metric(1.0, 1).merge(Metric(1.0, 1, "sum"))


def test_travels_as_json():
    metrics = {"a": Metric(torch.tensor(1.5), torch.tensor(2)), "m": Metric(7.0, 1, "max")}
    received = decode(json.loads(json.dumps(encode(metrics))))
    assert values(received) == values(metrics)
