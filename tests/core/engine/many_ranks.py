"""Runs many jobs on Gloo processes that are started once: importing torch is what takes time."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import torch

from joyrlinf_core.config.schema import Config
from joyrlinf_core.observability.reader import History, read_history
from joyrlinf_core.observability.run_dir import RunDir
from tests.core.engine.harness import run

MOST = 4


class Case(NamedTuple):
    """A training run. The third part asks for a stop once so many steps are done."""

    config: Config
    world_size: int
    stop_after: int | None = None


def _asked_to_stop(root: Path, steps: int) -> bool:
    events = RunDir(root).events
    return events.exists() and len(read_history(events).steps) >= steps


def _play(case: dict[str, Any], root: Path, rank: int) -> str:
    config, world_size = Config.model_validate(case["config"]), case["world_size"]
    if world_size > 1:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{root}.store", rank=rank, world_size=world_size
        )
    stop_after = case["stop_after"]
    stop = (lambda: False) if stop_after is None else (lambda: _asked_to_stop(root, stop_after))
    try:
        return run(config, root, rank=rank, world_size=world_size, stop=stop)[0]
    finally:
        if world_size > 1:
            torch.distributed.destroy_process_group()


def _rank_main(rank: int, directory: str) -> None:
    cases = json.loads(Path(directory, "cases.json").read_text())
    for name, case in cases.items():
        if rank < case["world_size"]:
            status = _play(case, Path(directory, name), rank)
            Path(directory, f"{name}.status{rank}").write_text(status)


def run_cases(directory: Path, cases: dict[str, Case]) -> None:
    """Run the cases in turn; each leaves its run directory and a status file per rank."""
    told = {
        name: {
            "config": case.config.model_dump(mode="json"),
            "world_size": case.world_size,
            "stop_after": case.stop_after,
        }
        for name, case in cases.items()
    }
    (directory / "cases.json").write_text(json.dumps(told))
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.multiprocessing.spawn(_rank_main, args=(str(directory),), nprocs=MOST)


def history(directory: Path, name: str) -> History:
    """Return the events of a case."""
    return read_history(RunDir(directory / name).events)


def status(directory: Path, name: str, rank: int) -> str:
    """Return how a rank ended a case."""
    return (directory / f"{name}.status{rank}").read_text()
