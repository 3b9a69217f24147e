"""`ServiceThread`: a thread beside the main one whose failure ends the process."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from joyrlinf_core.engine.context import JobContext


class ServiceThread(threading.Thread):
    """Runs a function; what it raises ends this worker with that error.

    Args:
        name: Name of the thread, as traces and stacks show it.
        function: What to run.
        context: This worker.
    """

    def __init__(self, name: str, function: Callable[[], None], context: JobContext) -> None:
        # A daemon: when the main thread fails, nothing may wait for one that waits for a peer.
        super().__init__(name=name, daemon=True)
        self._function = function
        self._context = context

    def run(self) -> None:
        """See `threading.Thread.run`."""
        if self._context.device.type == "cuda":
            torch.cuda.set_device(self._context.device)
        try:
            self._function()
        except BaseException as error:  # the main thread may be waiting for this one
            self._context.fail(error)
