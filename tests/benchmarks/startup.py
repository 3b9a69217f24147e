"""Wall time of `joyrl validate FILE` beside that of importing what any such command needs.

`python tests/benchmarks/startup.py [FILE]` starts both in turn, so that a busy machine slows both,
prints the medians and their ratio, and ends with 1 if the ratio is above the limit.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT = 3.0
IMPORTS = "import yaml, pydantic, typer, rich"
VALIDATE = "from joyrlinf_cli.main import main; main()"


def seconds(code: str, *arguments: str) -> float:
    """Return the wall time of one interpreter."""
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", default="presets/quickstart.yaml")
    parser.add_argument("--repetitions", type=int, default=15)
    arguments = parser.parse_args()
    for _ in range(2):  # write byte code, fill the page cache
        seconds(IMPORTS)
        seconds(VALIDATE, "validate", arguments.file)
    imports, validate = [], []
    for _ in range(arguments.repetitions):
        imports.append(seconds(IMPORTS))
        validate.append(seconds(VALIDATE, "validate", arguments.file))
    base, whole = statistics.median(imports), statistics.median(validate)
    print(f"{IMPORTS}: {base:.3f} s")
    print(f"joyrl validate {arguments.file}: {whole:.3f} s")
    print(f"ratio: {whole / base:.2f} (limit {LIMIT})")
    return int(whole / base > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
