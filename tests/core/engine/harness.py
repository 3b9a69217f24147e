"""Runs jobs of a small config in this process or in Gloo processes, on the reach double."""

from __future__ import annotations

import copy
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from joyrlinf_core.config.schema import Config
from joyrlinf_core.engine.context import JobContext
from joyrlinf_core.engine.jobs import run_job
from joyrlinf_core.observability.emitter import Emitter
from joyrlinf_core.observability.events import EvalResult, Record, Step
from joyrlinf_core.observability.run_dir import RunDir
from joyrlinf_core.plan.build import build_plan
from joyrlinf_core.policies.base import FieldStats, NormStats

BASE: dict[str, Any] = {
    "runner": {"max_steps": 3, "seed": 7},
    "algorithm": {"group_size": 4, "update_epoch": 2},
    "env": {
        "train": {
            "type": "tests.doubles.reach:ReachEnv",
            "total_num_envs": 32,
            "max_episode_steps": 16,
            "num_workers": 0,
            "distance": 0.5,
            "close": 0.2,
        },
        "eval": {"num_episodes": 10},
    },
    "actor": {
        "micro_batch_size": 16,
        "gradient_accumulation_steps": 1,
        "optim": {"lr": 1e-3},
        "model": {
            "model_type": "openpi",
            "variant": "tiny-pi0",
            "architecture": {"width": 16, "depth": 1, "mlp": 32, "horizon": 4},
            "num_action_chunks": 4,
            "num_steps": 3,
            "normalize_actions": False,
        },
    },
}


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return `base` with dotted keys replaced."""
    tree = copy.deepcopy(base)
    for path, value in changes.items():
        *sections, key = path.split(".")
        node = tree
        for section in sections:
            node = node.setdefault(section, {})
        node[key] = value
    return tree


def make_config(**changes: Any) -> Config:
    """Return the base config; keyword names use `__` for the dots of a key."""
    tree = merged(BASE, {name.replace("__", "."): value for name, value in changes.items()})
    tree["env"]["eval"] = tree["env"]["train"] | tree["env"]["eval"]
    return Config.model_validate(tree)


def make_policy(directory: Path, config: Config, seed: int = 0) -> Path:
    """Write a random policy directory for the config's env."""
    plain = FieldStats(mean=(0.0,) * 4, std=(1.0,) * 4, q01=(-1.0,) * 4, q99=(1.0,) * 4)
    actions = FieldStats(mean=(0.0,) * 2, std=(1.0,) * 2, q01=(-1.0,) * 2, q99=(1.0,) * 2)
    policy = config.actor.model.create(config.env.train, NormStats(plain, actions), seed=seed)
    policy.save(directory)
    return directory


class Collected:
    """Sink that keeps events."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, record: Record) -> None:
        self.records.append(record)

    def close(self) -> None:
        pass

    @property
    def steps(self) -> list[Step]:
        return [r.event for r in self.records if isinstance(r.event, Step)]

    @property
    def evals(self) -> list[EvalResult]:
        return [r.event for r in self.records if isinstance(r.event, EvalResult)]


def run(
    config: Config,
    root: Path,
    *,
    job: str = "train",
    args: dict[str, str] | None = None,
    rank: int = 0,
    world_size: int = 1,
    device: str = "cpu",
    stop: Callable[[], bool] = lambda: False,
) -> tuple[str, Collected]:
    """Run a job on one rank; return how it ended and its events."""
    torch.set_num_threads(1)
    run_dir = RunDir(root)
    run_dir.root.mkdir(parents=True, exist_ok=True)
    sink = Collected()
    emitter = Emitter(run_dir, rank, [sink])
    context = JobContext(
        plan=build_plan(config, job, args),
        run_dir=run_dir,
        rank=rank,
        world_size=world_size,
        device=torch.device(device),
        emitter=emitter,
        stop_requested=stop,
        fail=_exit_with,
    )
    try:
        return run_job(context), sink
    finally:
        emitter.close()


def _exit_with(error: BaseException) -> None:
    traceback.print_exception(error)
    os._exit(1)


def stop_in_phase(monkeypatch: pytest.MonkeyPatch, *phases: str) -> None:
    """Ask for a stop once rank 0 has entered these phases, one after the other."""
    left, original = list(phases), JobContext

    def context(**fields: Any) -> JobContext:
        emitter = fields["emitter"]
        told = emitter.phase

        def phase(name: str, *args: int, **kwargs: int) -> None:
            if left and left[0] == name:
                left.pop(0)
            told(name, *args, **kwargs)

        emitter.phase = phase
        return replace(original(**fields), stop_requested=lambda: not left)

    monkeypatch.setattr(sys.modules[__name__], "JobContext", context)


def _rank_main(rank: int, world_size: int, config_json: str, root: str, store: str) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=world_size
    )
    try:
        config = Config.model_validate_json(config_json)
        run(config, Path(root), rank=rank, world_size=world_size)
    finally:
        torch.distributed.destroy_process_group()


def run_ranks(config: Config, root: Path, world_size: int) -> None:
    """Run a training job on Gloo processes."""
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.multiprocessing.spawn(
        _rank_main,
        args=(world_size, config.model_dump_json(), str(root), str(root) + ".store"),
        nprocs=world_size,
    )


def weights(root: Path, step: int) -> dict[str, torch.Tensor]:
    """Return the model state of a checkpoint."""
    path = RunDir(root).checkpoint(step) / "actor" / "model.pt"
    return torch.load(path, weights_only=True)


def largest_difference(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    """Return the largest absolute difference of two state dicts with the same names."""
    assert a.keys() == b.keys()
    return max(float((a[name].double() - b[name].double()).abs().max()) for name in a)
