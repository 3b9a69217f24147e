"""Chunk samples per second from a rollout rank to an actor: flat buffers against pickled samples.

    python tests/benchmarks/transport.py --repeats 9

Two Gloo ranks, one thread each. The receiver compares every byte with what it expects. Sides:

- `v1`, `v2`: `TrajectoryExchange` in either comm mode; packing counts, pictures are uint8.
- `uint8 objects`: `send_object_list` of one dict per sample with the same tensors.
- `float objects`: the same with pictures as float32, already converted.

All sides take turns in one run. Printed are the medians and the medians of the ratios of one turn;
the script ends with 1 if a ratio misses its limit.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from joyrlinf_core.comm.trajectories.exchange import TrajectoryExchange
from joyrlinf_core.config.loader import load_config
from joyrlinf_core.plan.build import build_plan
from joyrlinf_core.plan.run_plan import RunPlan

COLUMNS = 64
SAMPLES = (64, 320)
PICTURES = (1, 2)
LIMITS = {"float objects": 15.0, "uint8 objects": 4.0}
CPU = torch.device("cpu")

Sample = dict[str, Tensor]
Side = Callable[[], None]


def plan_of(comm_mode: str) -> RunPlan:
    """Return a plan in which rank 0 hands 64 columns to rank 1."""
    sets = [
        "cluster.component_placement={'env,rollout': 0, actor: 1}",
        f"env.train.total_num_envs={COLUMNS}",
        f"algorithm.comm_mode={comm_mode}",
    ]
    return build_plan(load_config("quickstart", sets).config, None)


def make_batch(samples: int, pictures: int) -> dict[str, Tensor]:
    """Return what a flow-matching policy records, [T, B, ...]; the same on every rank."""
    generator = torch.Generator().manual_seed(samples + pictures)
    shape = (samples // COLUMNS, COLUMNS)

    def normal(*axes: int) -> Tensor:
        return torch.randn(*shape, *axes, generator=generator)

    frames = (*shape, pictures, 224, 224, 3)
    return {
        "inputs/images": torch.randint(256, frames, generator=generator, dtype=torch.uint8),
        "inputs/state": normal(32),
        "replay/chains": normal(5, 10, 32),
        "actions": normal(10, 7),
        "prev_logprobs": normal(10, 7),
        "rewards": normal(10),
        "dones": normal(10) > 0,
        "versions": torch.full(shape, 7),
    }


def as_samples(batch: dict[str, Tensor], *, floats: bool) -> list[Sample]:
    """Return one dict per chunk sample, with tensors of its own."""
    t, b = batch["versions"].shape
    samples = [{n: v[i, j].clone() for n, v in batch.items()} for i in range(t) for j in range(b)]
    if floats:
        for sample in samples:
            sample["inputs/images"] = sample["inputs/images"].float().div_(255)
    return samples


def check(got: Sample, expected: Sample) -> None:
    """Compare tensors byte by byte, in words as far as they divide."""
    assert got.keys() == expected.keys()
    for name, tensor in got.items():
        assert tensor.dtype == expected[name].dtype
        assert tensor.shape == expected[name].shape
        a, b = (x.reshape(-1).view(torch.uint8) for x in (tensor, expected[name]))
        word = torch.uint8 if len(a) % 8 else torch.int64
        assert torch.equal(a.view(word), b.view(word)), name


def flat_side(rank: int, exchange: TrajectoryExchange, batch: dict[str, Tensor]) -> Side:
    """Return one turn of a comm mode."""

    def turn() -> None:
        if rank == 0:
            exchange.send(batch, 0, 7, 7)
        else:
            received = exchange.receive()
            assert received is not None
            check(received.tensors, batch)
            received.release()

    return turn


def object_side(rank: int, samples: list[Sample]) -> Side:
    """Return one turn of pickled samples."""

    def turn() -> None:
        if rank == 0:
            dist.send_object_list(samples, dst=1)
        else:
            received: list[Sample] = [{}] * len(samples)
            dist.recv_object_list(received, src=0)
            for got, expected in zip(received, samples, strict=True):
                check(got, expected)

    return turn


def timed(turn: Side) -> float:
    """Return seconds on this rank, from a common start on."""
    dist.barrier()
    started = time.perf_counter()
    turn()
    return time.perf_counter() - started


def rank_main(rank: int, directory: str, repeats: int) -> None:
    torch.set_num_threads(1)
    store = f"file://{directory}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    flat = {}
    for mode in ("v1", "v2"):
        flat[mode] = TrajectoryExchange(plan_of(mode), rank, dist.new_group([0, 1]), CPU)
    reached = True
    for samples in SAMPLES:
        for pictures in PICTURES:
            batch = make_batch(samples, pictures)
            sides = {mode: flat_side(rank, exchange, batch) for mode, exchange in flat.items()}
            sides["uint8 objects"] = object_side(rank, as_samples(batch, floats=False))
            sides["float objects"] = object_side(rank, as_samples(batch, floats=True))
            seconds: dict[str, list[float]] = {name: [] for name in sides}
            for number in range(-1, repeats):
                for name in list(sides) if number % 2 else list(sides)[::-1]:
                    took = timed(sides[name])
                    if number >= 0:  # the first turn makes buffers
                        seconds[name].append(took)
            if rank == 1:
                nbytes = sum(tensor.nbytes for tensor in batch.values())
                reached &= report(samples, pictures, nbytes, seconds)
    dist.destroy_process_group()
    if rank == 1:
        Path(directory, "reached").write_text(str(int(reached)))


def report(samples: int, pictures: int, nbytes: int, seconds: dict[str, list[float]]) -> bool:
    """Print rows of one size; return whether every ratio reaches its limit."""
    reached = True
    for name, times in seconds.items():
        rate = samples / statistics.median(times)
        cells = [f"{samples}", f"{pictures}", name, f"{nbytes / 1e6:.0f}", f"{rate:,.0f}"]
        for other, limit in LIMITS.items():
            if name in LIMITS:
                cells.append("")
                continue
            ratios = sorted(b / a for a, b in zip(times, seconds[other], strict=True))
            median = statistics.median(ratios)
            reached &= median >= limit
            cells.append(f"{median:.1f} ({ratios[0]:.1f}-{ratios[-1]:.1f})")
        print(f"| {' | '.join(cells)} |", flush=True)
    return reached


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}")
    print("| samples | pictures | side | MB as uint8 | samples/s | to float objects | to uint8 |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as directory:
        spawn(rank_main, args=(directory, arguments.repeats), nprocs=2)
        reached = Path(directory, "reached").read_text() == "1"
    print("every ratio reaches", LIMITS) if reached else print("missed:", LIMITS)
    return int(not reached)


if __name__ == "__main__":
    sys.exit(main())
