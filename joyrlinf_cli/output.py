"""Standard output that can't be written: a full disk, a reader that has gone, an ASCII terminal."""

from __future__ import annotations

import os
import sys

_READER_GONE = 141
"""Exit code where the reader of a pipe has gone, as of a program that SIGPIPE ends: 128 + 13."""


def set_up() -> None:
    """Let every text be written: what a stream's encoding lacks comes as an escape."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def flush(*, rest: str = "") -> None:
    """Write what is still in the buffer of standard output, and `rest`.

    Raises:
        EnvironmentNotReadyError: It can't be written.
        SystemExit: Its reader has gone, as in `joyrl config schema | head -1`: nothing to tell.
    """
    if sys.stdout is None:
        return
    try:
        print(end=rest, flush=True)
    except OSError as error:
        # The interpreter would try again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise SystemExit(_READER_GONE) from error
        from joyrlinf_core.errors import EnvironmentNotReadyError

        reason = error.strerror or str(error)
        raise EnvironmentNotReadyError(f"can't write the output: {reason}") from error


def explain(error: OSError) -> None:
    """Raise what `flush` raises if an error came from standard output.

    An unbuffered stream has nothing left to write, so a line end is tried.
    """
    if error.filename is None:
        flush(rest="\n")
