"""Stops the MPS daemon of a launcher that was killed: `python -m ... PLACE`, started by it.

Standard input is a pipe from the launcher. Its end without a word before means that the launcher is
gone; the workers, who notice that as well, go first.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

from joyrlinf_core.launcher.mps_daemon import MpsDaemon
from joyrlinf_core.launcher.signals import STOP_SIGNALS

DONE = b"done"
CLIENT_SECONDS = 5.0
_POLL_SECONDS = 0.1


def guard(place: Path) -> None:
    """Wait for the launcher's end; stop the daemon if the launcher did not."""
    if sys.stdin.buffer.read() == DONE:
        return
    daemon = MpsDaemon(place)
    deadline = time.monotonic() + CLIENT_SECONDS
    while daemon.clients() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    daemon.stop()


if __name__ == "__main__":
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # they are for the launcher
    guard(Path(sys.argv[1]))
