"""What rollout and actor ranks send each other costs, and what running them at once gains.

    python -m tests.benchmarks.gpu.pipeline [--quick] [--device cpu]

Two ranks on this machine: over NCCL where there are two GPUs, both on one GPU over Gloo, or on the
CPU. Three parts, each a table on standard output:

- `weights`: `WeightSender` to `WeightReceiver`, beside one broadcast and one message of the same
  bytes through the same backend. `share` is the bandwidth of the whole sync (stage, send, apply)
  over that of the bare broadcast.
- `trajectories`: `TrajectoryExchange` with comm mode v1 and v2, beside one message of the same
  bytes. Packing counts; the host is where batches start and end.
- `pipeline`: training jobs with a simulator that sleeps. r and a are the seconds of a rollout and
  an update of the whole batch, measured where they run in turn on two ranks (sync 1+1). At the same
  time, a step should take max(r, a). `gain` is how much faster async 1+1 is: measured of predicted,
  and their ratio. Predicted are (r + a) / max(r, a) over sync 1+1, and over sync on both ranks
  co-located (r2 + a2) / max(r, a), where r2 and a2 are the seconds of half the batch on each.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from joyrlinf_core.comm.trajectories import p2p
from joyrlinf_core.comm.trajectories.exchange import TrajectoryExchange
from joyrlinf_core.comm.weights.receiver import WeightReceiver
from joyrlinf_core.comm.weights.sender import WeightSender
from joyrlinf_core.config.schema import Config
from joyrlinf_core.observability.reader import read_history
from joyrlinf_core.observability.run_dir import RunDir
from tests.benchmarks import transport, weights
from tests.core.engine import harness

PARTS = ("weights", "trajectories", "pipeline")
SHAPES: list[tuple[int, ...]] = [*weights.LAYER]
WARM_UP = 2
"""Repeats, and training steps, that are not counted: they make buffers, and fill the pipeline."""

CHUNKS = 4
"""Chunk steps of a rollout."""


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    megabytes: tuple[int, ...]
    samples: tuple[int, ...]
    repeats: int
    steps: int
    envs: int
    variant: Literal["tiny-pi0", "small-pi0"]
    architecture: dict[str, int]


NARROW = {"width": 16, "depth": 1, "mlp": 32, "horizon": 4}
CPU_QUICK = Sizes((32,), (64, 320), 3, 6, 32, "tiny-pi0", NARROW)
CPU_FULL = Sizes((32, 256), (64, 320, 1280), 9, 20, 64, "tiny-pi0", {})
GPU_QUICK = Sizes((256,), (64, 320), 5, 12, 64, "small-pi0", {})
GPU_FULL = Sizes((256, 1024, 4096), (64, 320, 1280, 5120), 15, 30, 256, "small-pi0", {})


@dataclass(frozen=True)
class Machine:
    """Where the two ranks run.

    Attributes:
        kind: `cpu` or `cuda`.
        gpus: GPUs that are used: 0, 1 or 2.
    """

    kind: str
    gpus: int

    @classmethod
    def of(cls, wanted: str) -> Machine:
        """Return what is there; `auto` takes GPUs."""
        count = torch.cuda.device_count() if wanted != "cpu" else 0
        if wanted == "cuda" and not count:
            sys.exit("no CUDA device is there; --device cpu")
        return cls("cuda" if count else "cpu", min(2, count))

    def device(self, rank: int) -> torch.device:
        """Return a rank's device."""
        if not self.gpus:
            return torch.device("cpu")
        return torch.device("cuda", rank % self.gpus)

    @property
    def backends(self) -> dict[str, str]:
        """Backends that carry tensors between the ranks, by their short names."""
        nccl = {"nccl": "cpu:gloo,cuda:nccl"} if self.gpus == 2 else {}
        return nccl | {"gloo": "gloo"}

    def __str__(self) -> str:
        if not self.gpus:
            return "both ranks on the CPU"
        name = torch.cuda.get_device_name(0)
        return f"two of {name}" if self.gpus == 2 else f"both ranks on one {name}"


@contextmanager
def world(machine: Machine, rank: int, store: Path) -> Iterator[None]:
    """Be one of two ranks, as `worker.py` sets them up."""
    backend = "cpu:gloo,cuda:nccl" if machine.gpus else "gloo"
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=2)
    try:
        yield
        weights.meet()
    finally:
        dist.destroy_process_group()


def both_in_a_group(backend: str) -> dist.ProcessGroup:
    """Return a group of both ranks."""
    group = dist.new_group([0, 1], backend=backend)
    assert isinstance(group, dist.ProcessGroup)
    return group


def row(rank: int, *cells: object) -> None:
    """Print a row of a table, on one rank."""
    if rank == 0:
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


def heading(rank: int, title: str, *columns: str) -> None:
    """Print the head of a table, on one rank."""
    if rank == 0:
        print(f"\n{title}\n")
    row(rank, *columns)
    row(rank, *["---"] * len(columns))


def median_seconds(call: Callable[[], Any], device: torch.device, repeats: int) -> float:
    """Return the median seconds until both ranks are through a call."""
    runs = [weights.timed(call, device)[0] for _ in range(WARM_UP + repeats)]
    return statistics.median(runs[WARM_UP:])


def message(rank: int, tensor: Tensor, group: dist.ProcessGroup) -> None:
    """Send a tensor uint8 [n] from rank 0 to rank 1, as v1 does."""
    empty = tensor[:0]
    if rank == 0:
        p2p.exchange(tensor, [0, len(tensor)], empty, [0, 0], group)
    else:
        p2p.exchange(empty, [0, 0], tensor, [len(tensor), 0], group)


def measure_weights(machine: Machine, rank: int, sizes: Sizes) -> None:
    """Print the table `weights`."""
    heading(
        rank,
        "Weights, float32",
        *("through", "MB", "stage ms", "apply ms", "whole sync ms", "GB/s"),
        *("bare broadcast GB/s", "bare message GB/s", "share"),
    )
    device = machine.device(rank)
    for name, backend in machine.backends.items():
        group = both_in_a_group(backend)
        for megabytes in sizes.megabytes:
            policy = weights.policy_of(SHAPES, megabytes, torch.float32, device)
            end = (
                WeightSender(policy, group, 0, device, sharded=False)
                if rank == 0
                else WeightReceiver(policy, group, 0, device)
            )
            runs = []
            for version in range(WARM_UP + sizes.repeats):
                sync = partial(weights.whole_sync, end, version, device)
                seconds, stalled = weights.timed(sync, device)
                stalls = torch.tensor([stalled if rank == place else 0.0 for place in range(2)])
                dist.all_reduce(stalls)
                runs.append((seconds, *stalls.tolist()))
            seconds, stage, apply = map(statistics.median, zip(*runs[WARM_UP:], strict=True))
            nbytes = sum(parameter.nbytes for _, parameter in policy.trainable_parameters())
            where = device if name == "nccl" else torch.device("cpu")
            flat = torch.zeros(nbytes, dtype=torch.uint8, device=where)
            broadcast = median_seconds(
                partial(dist.broadcast, flat, 0, group), device, sizes.repeats
            )
            sent = median_seconds(partial(message, rank, flat, group), device, sizes.repeats)
            row(
                rank,
                name,
                f"{nbytes / 1e6:.0f}",
                *(f"{1e3 * part:.2f}" for part in (stage, apply, seconds)),
                *(f"{nbytes / 1e9 / part:.2f}" for part in (seconds, broadcast, sent)),
                f"{broadcast / seconds:.2f}",
            )


def measure_trajectories(machine: Machine, rank: int, sizes: Sizes) -> None:
    """Print the table `trajectories`."""
    heading(
        rank,
        "Trajectories, two pictures of 224 px a sample",
        *("through", "samples", "MB", "v1 ms", "v2 ms", "v1 GB/s", "v2 GB/s"),
        *("bare message GB/s", "v1 / v2 time"),
    )
    device = machine.device(rank)
    for name, backend in machine.backends.items():
        groups = {mode: both_in_a_group(backend) for mode in ("v1", "v2")}
        exchanges = {
            mode: TrajectoryExchange(transport.plan_of(mode), rank, group, device)
            for mode, group in groups.items()
        }
        for samples in sizes.samples:
            batch = transport.make_batch(samples, pictures=2)
            nbytes = sum(tensor.nbytes for tensor in batch.values())
            runs: dict[str, list[float]] = {mode: [] for mode in exchanges}
            for _ in range(WARM_UP + sizes.repeats):
                for mode, exchange in exchanges.items():
                    hand_over = partial(_hand_over, rank, exchange, batch)
                    runs[mode].append(weights.timed(hand_over, device)[0])
            v1, v2 = (statistics.median(taken[WARM_UP:]) for taken in runs.values())
            where = device if name == "nccl" else torch.device("cpu")
            flat = torch.zeros(nbytes, dtype=torch.uint8, device=where)
            sent = median_seconds(partial(message, rank, flat, groups["v1"]), device, sizes.repeats)
            row(
                rank,
                name,
                samples,
                f"{nbytes / 1e6:.0f}",
                *(f"{1e3 * part:.2f}" for part in (v1, v2)),
                *(f"{nbytes / 1e9 / part:.2f}" for part in (v1, v2, sent)),
                f"{v1 / v2:.2f}",
            )


def _hand_over(rank: int, exchange: TrajectoryExchange, batch: dict[str, Tensor]) -> None:
    if rank == 0:
        exchange.send(batch, 0, 0, 0)
        return
    received = exchange.receive()
    assert received is not None
    assert received.tensors["versions"].equal(batch["versions"])
    received.release()


@dataclass(frozen=True)
class Taken:
    """Mean seconds of a training step, after the first ones.

    Attributes:
        step: All of it.
        rollout: Acting; where other ranks act, waiting for them and the hand-over.
        update: Learning.
    """

    step: float
    rollout: float
    update: float


def config_of(
    machine: Machine, sizes: Sizes, policy: Path, chunk_seconds: float, **changes: Any
) -> Config:
    """Return a config of the pipeline; the batch is the same for all placements."""
    actors = 2 if "env,rollout,actor" in changes["cluster__component_placement"] else 1
    return harness.make_config(
        runner__max_steps=WARM_UP + sizes.steps,
        algorithm__update_epoch=2,
        env__train__type="tests.benchmarks.gpu.sleeping:SleepingEnv",
        env__train__chunk_seconds=chunk_seconds,
        env__train__ignore_terminations=True,
        env__train__total_num_envs=sizes.envs,
        env__train__max_episode_steps=4 * CHUNKS,
        actor__micro_batch_size=sizes.envs,
        actor__gradient_accumulation_steps=CHUNKS // actors,
        actor__model__model_path=str(policy),
        actor__model__variant=sizes.variant,
        actor__model__architecture=sizes.architecture,
        cluster__device=machine.kind,
        # Two ranks on one GPU: their groups then do without NCCL.
        launcher__mps=machine.gpus == 1,
        **changes,
    )


def play(machine: Machine, rank: int, root: Path, config: Config) -> Taken:
    """Run a training job; return what it took, the same on both ranks."""
    with world(machine, rank, Path(f"{root}.store")):
        harness.run(config, root, rank=rank, world_size=2, device=str(machine.device(rank)))
    steps = list(read_history(RunDir(root).events).steps.values())[WARM_UP:]

    def mean(*prefixes: str) -> float:
        timings = [(name, part) for step in steps for name, part in step.timings.items()]
        return sum(part for name, part in timings if name.startswith(prefixes)) / len(steps)

    whole = sum(step.seconds for step in steps) / len(steps)
    return Taken(whole, mean("rollout/", "hand_over"), mean("update/"))


def measure_pipeline(machine: Machine, rank: int, sizes: Sizes, directory: Path) -> None:
    """Print the table `pipeline`."""
    heading(
        rank,
        f"Seconds of a training step of {sizes.envs * CHUNKS} samples, and what async gains",
        *("simulator s/rollout", "r", "a", "sync 1+1", "sync, both co-located", "async 1+1"),
        *("gain over sync 1+1", "gain over co-located"),
    )
    policy = directory / f"policy{rank}"
    apart = {"env,rollout": "0", "actor": "1"}
    together = {"env,rollout,actor": "0-1"}
    config = config_of(machine, sizes, policy, 0.0, cluster__component_placement=apart)
    harness.make_policy(policy, config)

    def taken(name: str, placement: dict[str, str], seconds: float, **changes: Any) -> Taken:
        changes["cluster__component_placement"] = placement
        config = config_of(machine, sizes, policy, seconds / CHUNKS, **changes)
        return play(machine, rank, directory / name, config)

    turns = taken("sync", apart, 0.0)
    work = turns.rollout + turns.update
    for number, simulator in enumerate((0.0, work / 2, work)):
        if simulator:
            turns = taken(f"sync{number}", apart, simulator)
        both = taken(f"both{number}", together, simulator) if machine.gpus != 1 else None
        at_once = taken(
            f"async{number}",
            apart,
            simulator,
            algorithm__pipeline_mode="async",
            algorithm__max_staleness=2,
        )
        longer = max(turns.rollout, turns.update)
        cells = [f"{part:.3f}" for part in (simulator, turns.rollout, turns.update, turns.step)]
        cells += [f"{both.step:.3f}" if both else "-", f"{at_once.step:.3f}"]
        for sync in (turns, both):
            if sync is None:
                cells.append("-")
                continue
            predicted = (sync.rollout + sync.update) / longer
            measured = sync.step / at_once.step
            cells.append(f"{measured:.2f} of {predicted:.2f}: {measured / predicted:.2f}")
        row(rank, *cells)


def rank_main(rank: int, directory: str, machine: Machine, sizes: Sizes, parts: list[str]) -> None:
    """Measure every part on one of the ranks."""
    try:
        _measure(rank, directory, machine, sizes, parts)
    except Exception:
        traceback.print_exc()  # `spawn` shows one rank's error, which may follow from the other's
        raise


def _measure(rank: int, directory: str, machine: Machine, sizes: Sizes, parts: list[str]) -> None:
    torch.set_num_threads(1)
    if machine.gpus:
        torch.cuda.set_device(machine.device(rank))
    links = {"weights": measure_weights, "trajectories": measure_trajectories}
    for part in [part for part in links if part in parts]:
        with world(machine, rank, Path(directory, f"{part}.store")):
            links[part](machine, rank, sizes)
    if "pipeline" in parts:
        measure_pipeline(machine, rank, sizes, Path(directory))


def main() -> None:
    """Start two ranks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer repeats")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    args = parser.parse_args()
    machine = Machine.of(args.device)
    cpu, gpu = (CPU_QUICK, GPU_QUICK) if args.quick else (CPU_FULL, GPU_FULL)
    os.environ["OMP_NUM_THREADS"] = "1"
    load = os.getloadavg()[0]
    print(f"{machine}; {os.cpu_count()} cores, load {load:.1f}, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as directory:
        sizes = gpu if machine.gpus else cpu
        spawn(rank_main, args=(directory, machine, sizes, args.parts), nprocs=2)


if __name__ == "__main__":
    main()
