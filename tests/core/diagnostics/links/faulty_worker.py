"""The worker of `nccl-test` with a fault: `FAULT=sleep:2:all_reduce` in the environment.

What (`sleep`, `kill`, `inside`, `corrupt`), on which rank, and in the first step whose text begins
so. `inside` sleeps in the operation, `sleep` before the step, `corrupt` changes a number that
arrived.
"""

import os
import signal
import sys
import time
from pathlib import Path

from joyrlinf_core.diagnostics.links.worker import LinkTest
from joyrlinf_core.observability.run_dir import RunDir
from joyrlinf_core.worker import run_worker

WHAT, RANK, STEP = os.environ["FAULT"].split(":")


class FaultyTest(LinkTest):
    def _measure(self, step):
        if self._is_here(step):
            if WHAT == "sleep":
                time.sleep(600)
            if WHAT == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
        return super()._measure(step)

    def _operation(self, step):
        operation = super()._operation(step)
        if operation is not None and self._is_here(step):
            if WHAT == "inside":
                operation.call = lambda: time.sleep(600)
            if WHAT == "corrupt":
                call = operation.call

                def corrupted():
                    call()
                    operation._received[5] += 1

                operation.call = corrupted
        return operation

    def _is_here(self, step):
        return self._context.rank == int(RANK) and step.text.startswith(STEP)


if __name__ == "__main__":
    run_dir = RunDir(Path(sys.argv[1]))
    sys.exit(run_worker(run_dir, lambda: lambda context: FaultyTest(context).run()))
