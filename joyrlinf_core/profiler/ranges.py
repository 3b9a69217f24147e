"""`annotate`: named ranges in traces; costs nothing when no trace is recorded."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

_recording = False
_NO_RANGE = nullcontext()


def set_recording(*, on: bool) -> None:
    """Switch named ranges of this process on or off."""
    global _recording
    _recording = on


def annotate(name: str) -> AbstractContextManager[object]:
    """Return a context manager that marks its block with `name` in the trace being recorded."""
    if not _recording:
        return _NO_RANGE
    from torch.profiler import record_function

    return record_function(name)
