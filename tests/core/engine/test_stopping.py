from __future__ import annotations

from typing import Any

import pytest

from joyrlinf_core.engine.stopping import JobStopped, end_together


class Two:
    """Two ranks, the other of which says `other`."""

    def __init__(self, *, other: bool) -> None:
        self._other = other

    def any(self, *, flag: bool) -> bool:
        return flag or self._other


@pytest.mark.parametrize(("own", "other"), [(True, False), (False, True), (True, True)])
def test_one_unfinished_rank_stops_all(own: bool, other: bool) -> None:
    ranks: Any = Two(other=other)
    with pytest.raises(JobStopped):
        end_together(ranks, unfinished=own)


def test_ranks_that_are_done_go_on() -> None:
    ranks: Any = Two(other=False)
    try:
        end_together(ranks, unfinished=False)
    except JobStopped:
        pytest.fail("nothing was cut short")
