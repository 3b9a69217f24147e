"""Wall time of `joyrl validate FILE` beside that of importing what any such command needs.

`python tests/benchmarks/startup.py [FILE]` starts both in turn, so that a busy machine slows both,
prints the medians and their ratio, and ends with 1 if the ratio is above the limit. Byte code of
both lies in a folder of the benchmark, as an installed package has it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT = 3.0
IMPORTS = "import yaml, pydantic, typer, rich"
VALIDATE = "from joyrlinf_cli.main import main; main()"


def seconds(byte_code: str, code: str, *arguments: str) -> float:
    """Return the wall time of one interpreter."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": byte_code}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", default="presets/quickstart.yaml")
    parser.add_argument("--repetitions", type=int, default=15)
    arguments = parser.parse_args()
    imports, validate = [], []
    with tempfile.TemporaryDirectory() as byte_code:
        for _ in range(2 + arguments.repetitions):
            imports.append(seconds(byte_code, IMPORTS))
            validate.append(seconds(byte_code, VALIDATE, "validate", arguments.file))
    del imports[:2], validate[:2]  # wrote the byte code
    base, whole = statistics.median(imports), statistics.median(validate)
    print(f"{IMPORTS}: {base:.3f} s")
    print(f"joyrl validate {arguments.file}: {whole:.3f} s")
    print(f"ratio: {whole / base:.2f} (limit {LIMIT})")
    return int(whole / base > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
