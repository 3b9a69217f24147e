"""Bytes per second of a weight sync: joyrl's buckets against one broadcast a parameter.

    python tests/benchmarks/weights.py --megabytes 200 --repeats 5 [--device cuda]

Two ranks on this machine, in turn, so that other load hits both. `layers` are a few matrices of a
transformer, `adapters` as many bytes in small ones, `bf16` a copy that acts in bf16. `stalls` are
the parts of a sync in which the thread that learns (stage) or acts (apply) can't go on; the loop
stalls both all the time. Over Gloo, and with `--device cuda` on two GPUs over NCCL.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import spawn

from joyrlinf_core.comm.weights.channel import WeightHeader
from joyrlinf_core.comm.weights.receiver import WeightReceiver
from joyrlinf_core.comm.weights.sender import WeightSender

LAYER = [(1024, 1024)] * 4 + [(1024, 4096), (4096, 1024), (1024,), (1024,)]
ADAPTER = [(32, 1024), (1024, 32), (32,), (1024,)]
CASES = {
    "layers": (LAYER, torch.float32),
    "adapters": (ADAPTER, torch.float32),
    "bf16": (LAYER, torch.bfloat16),
}


def policy_of(
    shapes: list[tuple[int, ...]], megabytes: int, dtype: torch.dtype, device: torch.device
) -> Any:
    """Repeat the shapes until they have this many bytes in float32."""
    parameters: list[nn.Parameter] = []
    left = megabytes * 10**6 // 4
    while left > 0:
        for shape in shapes:
            parameters.append(nn.Parameter(torch.randn(shape, device=device).to(dtype)))
            left -= parameters[-1].numel()
    module = nn.ParameterList(parameters)
    return SimpleNamespace(
        module=module, trainable_parameters=lambda: list(module.named_parameters())
    )


def whole_sync(end: WeightSender | WeightReceiver, version: int, device: torch.device) -> float:
    """Stage and send, or receive and apply; return the seconds of `stage` or `apply`."""
    if isinstance(end, WeightReceiver):
        end.receive()
    began = time.perf_counter()
    if isinstance(end, WeightSender):
        end.stage(WeightHeader(version))
    else:
        end.apply()
    finish(device)
    stalled = time.perf_counter() - began
    if isinstance(end, WeightSender):
        end.send()
    return stalled


def loop(parameters: list[torch.Tensor]) -> None:
    """Broadcast the parameters one by one."""
    for parameter in parameters:
        dist.broadcast(parameter, src=0)


def finish(device: torch.device) -> None:
    """Wait for what is queued on a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def meet() -> None:
    """Wait for the other rank."""
    dist.all_reduce(torch.zeros(1))


def timed(call: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    """Return the seconds until both ranks have called it, and what it returned here."""
    finish(device)
    meet()
    began = time.perf_counter()
    result = call()
    finish(device)
    meet()
    return time.perf_counter() - began, result


def place_of(rank: int, kind: str) -> torch.device:
    """Return the device of a rank; both share a GPU where there is one."""
    if kind == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def measure(rank: int, name: str, args: argparse.Namespace) -> None:
    """Sync one policy both ways, in turn; rank 0 prints."""
    shapes, acting = CASES[name]
    device = place_of(rank, args.device)
    policy = policy_of(shapes, args.megabytes, acting if rank else torch.float32, device)
    parameters = [parameter.data for _, parameter in policy.trainable_parameters()]
    # The loop knows nothing of types: what acts in bf16 is cast by who wants that.
    received = (
        parameters if rank == 0 else [torch.empty(p.shape, device=device) for p in parameters]
    )
    group = cast("dist.ProcessGroup", dist.new_group([0, 1]))
    end: WeightSender | WeightReceiver
    if rank == 0:
        end = WeightSender(policy, group, 0, device, sharded=False)
    else:
        end = WeightReceiver(policy, group, 0, device)
    runs = []
    for version in range(args.repeats + 1):
        looped, _ = timed(partial(loop, received), device)
        synced, stalled = timed(partial(whole_sync, end, version, device), device)
        stalls = torch.tensor([stalled if rank == place else 0.0 for place in range(2)])
        dist.all_reduce(stalls)
        runs.append((looped, synced, looped / synced, *stalls.tolist()))
    if rank == 1:
        for mine, theirs in zip(parameters, received, strict=True):
            assert torch.equal(mine, theirs.to(mine.dtype))
        return
    # The first run touches all buffers for the first time.
    looped, synced, ratio, stage, apply = map(statistics.median, zip(*runs[1:], strict=True))
    gigabytes = sum(parameter.nbytes for parameter in parameters) / 1e9
    print(
        f"{name:9}{len(parameters):8}{gigabytes * 1e3:7.0f}{gigabytes / looped:12.2f}"
        f"{gigabytes / synced:13.2f}{ratio:8.2f}{stage:12.3f}{apply:8.3f}{looped:8.3f}",
        flush=True,
    )


def rank_main(rank: int, store: str, args: argparse.Namespace) -> None:
    """Measure every case."""
    torch.set_num_threads(1)
    nccl = args.device == "cuda" and torch.cuda.device_count() > 1
    backend = "cpu:gloo,cuda:nccl" if nccl else "gloo"
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=2)
    if rank == 0:
        print("                         GB/s of float32            seconds of stalls")
        print(
            "case      tensors     MB        loop        joyrl   ratio       stage   apply    loop"
        )
    for name in args.cases:
        measure(rank, name, args)
    dist.destroy_process_group()


def main() -> None:
    """Start two ranks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        spawn(rank_main, args=(f"{directory}/store", args), nprocs=2)


if __name__ == "__main__":
    main()
