"""The worker of a run whose ranks can be told to fail."""

from __future__ import annotations

import sys
from pathlib import Path

from joyrlinf_core import worker
from joyrlinf_core.observability.run_dir import RunDir
from tests.doubles import faulty


def main(run_dir: Path) -> int:
    """Run one rank; return its exit code."""

    def load_job() -> worker.Job:
        faulty.install()
        return worker._load_job()

    return worker.run_worker(RunDir(run_dir), load_job)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
