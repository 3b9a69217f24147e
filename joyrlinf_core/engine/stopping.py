"""How a job ends early on request: every rank raises `JobStopped` at the same place."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from joyrlinf_core.comm.collectives import Collectives


class JobStopped(Exception):  # noqa: N818 - no error
    """All ranks agreed to end an evaluation, or the collection of demonstrations, unfinished."""


def end_together(collectives: Collectives, *, unfinished: bool) -> None:
    """Meet the other ranks after a loop that a stop request may have cut short.

    Ranks look for the request at different times, so one may have finished its share before.

    Args:
        collectives: All ranks of the job.
        unfinished: Whether this rank left its loop before its end.

    Raises:
        JobStopped: On all ranks, if any of them is unfinished.
    """
    if collectives.any(flag=unfinished):
        raise JobStopped
