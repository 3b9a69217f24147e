"""What two Gloo ranks see, started once for all tests of this folder."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.multiprocessing.spawn import spawn

from joyrlinf_core.comm import collectives as module
from joyrlinf_core.comm.collectives import Collectives
from joyrlinf_core.comm.sharding import TrainingState, full_state, load_full_state, shard
from joyrlinf_core.policies.base import Sharding

WORLD = 2
CPU = torch.device("cpu")


def gradients(rank: int) -> list[nn.Parameter]:
    """Parameters of several sizes and types; each rank lacks the gradient of another one."""
    shapes = [(3, 4), (5,), (), (2, 2), (7,)]
    parameters = []
    for index, shape in enumerate(shapes):
        dtype = torch.bfloat16 if index == 3 else torch.float32
        parameter = nn.Parameter(torch.zeros(shape, dtype=dtype))
        if index not in (rank, 4):
            parameter.grad = torch.full(shape, 10.0**rank * (index + 1), dtype=dtype)
        parameters.append(parameter)
    return parameters


def summed(collectives: Collectives, bucket_bytes: int) -> list[Any]:
    module.BUCKET_BYTES = bucket_bytes
    parameters = gradients(collectives.rank)
    collectives.sum_gradients(parameters)
    return [None if p.grad is None else p.grad.tolist() for p in parameters]


def observe(collectives: Collectives) -> dict[str, Any]:
    """Call everything once; the same on every rank."""
    rank = collectives.rank
    tensors = [torch.full((2,), float(rank)), torch.tensor(rank)]
    collectives.broadcast_tensors(tensors, source=collectives.world_size - 1)
    return {
        "rank": rank,
        "is_main": collectives.is_main,
        "any_last": collectives.any(flag=rank == collectives.world_size - 1),
        "any_none": collectives.any(flag=False),
        "max": collectives.max(-1.0 - rank),
        "sum": collectives.sum([rank + 0.1, 2.0**40 + rank, 1.0]),
        "gathered": collectives.gather_json({"rank": rank, "text": "ä" * (10 * rank)}),
        "gathered_nothing": collectives.gather_json([]),
        "broadcast": [tensor.tolist() for tensor in tensors],
        "one_bucket": summed(collectives, 2**20),
        "buckets": summed(collectives, 40),
    }


class Learner:
    """A small network and its optimizer; every rank has the same data, so a mean is a sum."""

    def __init__(self, *, sharded: bool) -> None:
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
        self.policy: Any = SimpleNamespace(
            module=network, sharding=lambda: Sharding([network[0]], network, [])
        )
        self.sharded = sharded
        if sharded:
            shard(self.policy, CPU)
        vectors = [p for p in network.parameters() if p.ndim < 2]
        matrices = [p for p in network.parameters() if p.ndim == 2]
        groups = [{"params": vectors, "weight_decay": 0.0}, {"params": matrices}]
        self.optimizer = torch.optim.AdamW(groups, lr=0.1)
        self.scheduler: Any = SimpleNamespace(
            state_dict=lambda: {"step": 1}, load_state_dict=lambda _: None
        )

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.policy.module(torch.linspace(-1, 1, 12).reshape(3, 4)).pow(2).sum().backward()
        self.optimizer.step()

    def state(self) -> TrainingState:
        keep = torch.distributed.get_rank() == 0
        state = full_state(
            self.policy, self.optimizer, self.scheduler, sharded=self.sharded, keep=keep
        )
        return copy.deepcopy(state)

    def load(self, state: TrainingState) -> None:
        load_full_state(self.policy, self.optimizer, self.scheduler, state, sharded=self.sharded)


def resumed(first: bool, then: bool) -> list[float]:
    """Train a step, hand over, train a step; return all weights, on rank 0 alone."""
    before, after = Learner(sharded=first), Learner(sharded=then)
    before.step()
    # As from a checkpoint: every rank has what rank 0 wrote.
    states: list[Any] = [before.state()]
    torch.distributed.broadcast_object_list(states, src=0)
    after.load(states[0])
    after.step()
    return [x for tensor in after.state().model.values() for x in tensor.flatten().tolist()]


def rank_main(rank: int, directory: str) -> None:
    torch.set_num_threads(1)
    store = f"file://{directory}/store"
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=WORLD)
    try:
        seen = observe(Collectives())
        seen["resumed"] = [resumed(a, b) for a in (False, True) for b in (False, True)]
        Path(directory, f"{rank}.json").write_text(json.dumps(seen))
    finally:
        torch.distributed.destroy_process_group()


def start(directory: Path) -> list[dict[str, Any]]:
    """Return what each rank saw."""
    spawn(rank_main, args=(str(directory),), nprocs=WORLD)
    return [json.loads((directory / f"{rank}.json").read_text()) for rank in range(WORLD)]
