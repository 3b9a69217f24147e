"""`nccl-test` on one of two nodes, both on this machine: `node.py NODE PORT TIMEOUT`.

Prints message and ranks of the failure as one JSON list, and ends with the exit code.
"""

import json
import sys
from pathlib import Path

from joyrlinf_core.diagnostics.links.request import Request
from joyrlinf_core.diagnostics.nccl_test import nccl_test, world_plan
from joyrlinf_core.launcher.nodes.settings import NodeOptions

if __name__ == "__main__":
    node, port, timeout = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    request = Request(sizes=(1024,), timeout=timeout)
    report = nccl_test(
        world_plan(1, request, "cpu", nodes=2),
        request,
        on_step=lambda _text: None,
        say=lambda text: print(text, file=sys.stderr),
        nodes=NodeOptions(2, node, "127.0.0.1", port, 60.0),
        worker=[str(Path(__file__).parent / "faulty_worker.py")],
    )
    failure = report.failure
    print(json.dumps([failure.message, failure.ranks] if failure else None))
    sys.exit(report.exit_code)
