from __future__ import annotations

from typing import Any

import pytest


def test_training_goes_on_alike_whoever_saved_and_whoever_loads(
    ranks: list[dict[str, Any]],
) -> None:
    plain, *others = ranks[0]["resumed"]
    assert len(plain) == 4 * 6 + 6 + 6 * 2 + 2
    for weights in others:
        assert weights == pytest.approx(plain, abs=1e-6)
