"""Weights between policies on GPUs; not part of the CPU run."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import spawn

from joyrlinf_core.comm.sharding import shard
from joyrlinf_core.comm.weights.channel import WeightHeader
from joyrlinf_core.comm.weights.receiver import WeightReceiver
from joyrlinf_core.comm.weights.sender import WeightSender
from joyrlinf_core.policies.base import Sharding

SHAPES = [(4096, 4096), (2048, 4096), (10_000_001,), (8193, 1023), *[(257,), (33, 65)] * 50]
"""230 MB in float32: buckets that are full, and a tensor larger than a bucket in bf16."""

VERSIONS = 6


class Module(nn.Module):
    """The parameters, and a buffer that counts versions."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.zeros(shape, device=device) for shape in SHAPES)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64, device=device))


def new_policy(device: torch.device, *, acts: bool) -> Any:
    module = Module(device)
    for parameter in module.parameters():
        if acts and parameter.ndim == 2:
            parameter.data = parameter.data.bfloat16()
    return SimpleNamespace(
        module=module,
        trainable_parameters=lambda: list(module.named_parameters()),
        sharding=lambda: Sharding([], module, []),
    )


def weights_of(version: int, device: torch.device) -> list[torch.Tensor]:
    generator = torch.Generator(device).manual_seed(version)
    return [torch.randn(shape, device=device, generator=generator) for shape in SHAPES]


def is_at(policy: Any, version: int, device: torch.device) -> bool:
    pairs = zip(policy.module.weights, weights_of(version, device), strict=True)
    right = [torch.equal(mine, theirs.to(mine.dtype)) for mine, theirs in pairs]
    return all(right) and policy.module.count.item() == version


def update(policy: Any, version: int, device: torch.device) -> None:
    """Queue work and then new weights, as an optimizer step does after a backward pass."""
    busy = torch.randn(4096, 4096, device=device)
    for _ in range(20):
        busy = busy @ busy.clamp(-1e-2, 1e-2)
    with torch.no_grad():
        for parameter, value in zip(
            policy.module.weights, weights_of(version, device), strict=True
        ):
            parameter.copy_(value + busy[0, 0] * 0)
    policy.module.count.fill_(version)


def threads(rank: int, device: torch.device, backend: str) -> dict[str, Any]:
    """Rank 0 trains on while its thread sends; rank 1 swaps while its thread receives."""
    group = dist.new_group([0, 1], backend=backend)
    policy = new_policy(device, acts=rank == 1)
    if rank == 0:
        sender = WeightSender(policy, group, 0, device, sharded=False)
        thread = threading.Thread(target=lambda: [sender.send() for _ in range(VERSIONS + 1)])
        thread.start()
        for version in range(1, VERSIONS + 1):
            update(policy, version, device)
            sender.stage(WeightHeader(version, evaluate=version == 3))
            # At once, while the copies above may still be under way.
            update(policy, -version, device)
        sender.stage(WeightHeader(VERSIONS, stop=True))
        thread.join()
        return {"on_gpu": sender.outbox.channel.device.type}
    receiver = WeightReceiver(policy, group, 0, device)

    def receive() -> None:
        while not receiver.receive().stop:
            pass

    thread = threading.Thread(target=receive)
    thread.start()
    applied, right = [], []
    while receiver.wait_for(max(applied, default=0) + 1, 60):
        header = receiver.apply()
        applied.append(header.version)
        right.append(is_at(policy, header.version, device))
        receiver.release()
    thread.join()
    return {"applied": applied, "right": right, "policy": str(policy.module.weights[0].dtype)}


def beside(rank: int, world: int, device: torch.device) -> dict[str, Any]:
    """Every rank learns with a shard, and acts with a copy of its own."""
    group = dist.new_group(list(range(world)), backend="cpu:gloo,cuda:nccl")
    learns, acts = new_policy(device, acts=False), new_policy(device, acts=True)
    if world > 1:
        shard(learns, device, group)
    sender = WeightSender(learns, group, 0, device, sharded=world > 1)
    receiver = WeightReceiver(acts, group, 0, device, sender=sender if rank == 0 else None)
    right = []
    for version in (1, 2):
        values = weights_of(version, device)
        with torch.no_grad():
            for parameter, value in zip(learns.module.weights, values, strict=True):
                mine = parameter.to_local() if world > 1 else parameter
                mine.copy_(value.chunk(world)[rank] if world > 1 else value)
        learns.module.count.fill_(version)
        sender.stage(WeightHeader(version))
        sender.send()
        receiver.receive()
        receiver.apply()
        right.append(is_at(acts, version, device))
    return {"right": right, "on_gpu": receiver._channel.device.type}


def rank_main(rank: int, directory: str, world: int, case: str) -> None:
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    store = f"file://{directory}/store"
    dist.init_process_group("cpu:gloo,cuda:nccl", init_method=store, rank=rank, world_size=world)
    seen = beside(rank, world, device) if case == "beside" else threads(rank, device, case)
    Path(directory, f"{rank}.json").write_text(json.dumps(seen))
    dist.destroy_process_group()


def run(directory: Path, world: int, case: str) -> list[dict[str, Any]]:
    spawn(rank_main, args=(str(directory), world, case), nprocs=world)
    return [json.loads((directory / f"{rank}.json").read_text()) for rank in range(world)]


def check_threads(sent: dict[str, Any], got: dict[str, Any], where: str) -> None:
    assert sent["on_gpu"] == where
    assert got["right"] == [True] * len(got["applied"])
    assert got["applied"] == sorted(set(got["applied"]))
    assert {3, VERSIONS} <= set(got["applied"])
    assert got["policy"] == "torch.bfloat16"


@pytest.mark.gpu
def test_whole_versions_arrive_through_the_host(tmp_path: Path) -> None:
    check_threads(*run(tmp_path, 2, "gloo"), "cpu")


@pytest.mark.gpu
def test_a_gpu_copies_to_itself(tmp_path: Path) -> None:
    (seen,) = run(tmp_path, 1, "beside")
    assert seen == {"right": [True, True], "on_gpu": "cuda"}


@pytest.mark.multigpu
def test_whole_versions_arrive_from_gpu_to_gpu(tmp_path: Path) -> None:
    check_threads(*run(tmp_path, 2, "cpu:gloo,cuda:nccl"), "cuda")


@pytest.mark.multigpu
def test_shards_become_copies_on_every_gpu(tmp_path: Path) -> None:
    for seen in run(tmp_path, 2, "beside"):
        assert seen == {"right": [True, True], "on_gpu": "cuda"}
