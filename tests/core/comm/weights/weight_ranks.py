"""What three Gloo ranks see of weights on their way, started once for all tests of `weights`."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.multiprocessing.spawn import spawn

from joyrlinf_core.comm.sharding import shard
from joyrlinf_core.comm.weights import layout as weight_layout
from joyrlinf_core.comm.weights.channel import WeightHeader
from joyrlinf_core.comm.weights.receiver import WeightReceiver
from joyrlinf_core.comm.weights.sender import WeightSender
from joyrlinf_core.errors import RunFailedError
from joyrlinf_core.policies.base import Sharding

WORLD = 3
CPU = torch.device("cpu")
ACTORS = (0, 1)


class Network(nn.Module):
    """Rows that do not divide by two, a layer larger than a bucket, frozen weights, buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(3, 4).requires_grad_(False)
        self.first = nn.Linear(4, 5)
        self.large = nn.Linear(5, 33)
        self.last = nn.Linear(33, 1)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("cache", torch.zeros(2), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.large(self.first(self.frozen(x))).tanh())


def policy_of(network: nn.Module) -> Any:
    def trained() -> list[tuple[str, nn.Parameter]]:
        return [(name, p) for name, p in network.named_parameters() if p.requires_grad]

    units = [network.first, network.large]
    return SimpleNamespace(
        module=network,
        trainable_parameters=trained,
        sharding=lambda: Sharding(units, network, []),
    )


def new_policy(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return policy_of(Network())


def acting_policy(seed: int = 1) -> Any:
    """As a rollout rank has it: other weights, and matrices in bf16."""
    policy = new_policy(seed)
    for parameter in policy.module.parameters():
        if parameter.ndim == 2:
            parameter.data = parameter.data.bfloat16()
    return policy


def train(policy: Any, seed: int) -> None:
    """Change trained weights as an update would, and look at the policy as an evaluation would."""
    torch.manual_seed(seed)
    # FSDP2 shows whole weights in the place of shards after a forward pass; only now these are.
    policy.module.state_dict()
    parameters = [parameter for _, parameter in policy.trainable_parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    policy.module(torch.randn(7, 3)).pow(2).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        policy.module(torch.randn(2, 3))


def whole(policy: Any) -> dict[str, torch.Tensor]:
    """Return copies of all trained weights; a collective where they are sharded."""
    found = {}
    for name, parameter in policy.module.named_parameters():
        if parameter.requires_grad:
            value = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
            found[name] = value.detach().clone()
    return found


class Oracle:
    """Weights of versions as one plain broadcast a tensor brings them."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def send(self, policy: Any, *, source: bool) -> dict[str, torch.Tensor]:
        weights = whole(policy)
        if source:
            for weight in weights.values():
                dist.broadcast(weight, 0, self._group)
        return weights

    def receive(self, policy: Any) -> dict[str, torch.Tensor]:
        found = {}
        for name, parameter in policy.trainable_parameters():
            weight = torch.empty(parameter.shape)
            dist.broadcast(weight, 0, self._group)
            found[name] = weight.to(parameter.dtype)
        return found


def same_bits(policy: Any, expected: dict[str, torch.Tensor]) -> bool:
    for name, parameter in policy.trainable_parameters():
        mine, theirs = parameter.detach().contiguous(), expected[name].contiguous()
        if not torch.equal(mine.view(torch.uint8), theirs.view(torch.uint8)):
            return False
    return len(expected) == 6


class CountedBytes:
    """Counts what is broadcast while it is open."""

    def __enter__(self) -> CountedBytes:
        self.nbytes, self.calls, self._real = 0, 0, dist.broadcast

        def broadcast(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            self.nbytes += tensor.numel() * tensor.element_size()
            self.calls += 1
            return self._real(tensor, *args, **kwargs)

        dist.broadcast = broadcast
        return self

    def __exit__(self, *_: object) -> None:
        dist.broadcast = self._real


def lockstep(rank: int, group: Any, oracle: Oracle, actors: Any) -> dict[str, Any]:
    """Three versions, sent and applied in one thread; actors are the group of sharded ones."""
    acting = range(2, 3) if actors else range(1, 3)
    seen: dict[str, Any] = {"same": [], "applied": [], "frozen": True, "bytes": [], "calls": []}
    if rank in acting:
        policy = acting_policy()
        before = policy.module.frozen.weight.detach().clone()
        receiver = WeightReceiver(policy, group, 0, CPU)
        for _ in range(3):
            expected = oracle.receive(policy)
            receiver.receive()
            seen["applied"].append(receiver.apply().version)
            seen["same"].append(same_bits(policy, expected))
        seen["again"] = receiver.apply()
        seen["frozen"] = torch.equal(policy.module.frozen.weight, before)
        return seen
    policy = new_policy()
    if actors:
        shard(policy, CPU, actors)
    sender = WeightSender(policy, group if rank == 0 else None, 0, CPU, sharded=bool(actors))
    for version in range(1, 4):
        train(policy, version)
        oracle.send(policy, source=rank == 0)
        sender.stage(WeightHeader(version))
        # The copy that is sent is of before.
        train(policy, 100 + version)
        with CountedBytes() as counted:
            sender.send()
        seen["bytes"].append(counted.nbytes)
        seen["calls"].append(counted.calls)
    return seen


def beside_the_sender(rank: int, group: Any, oracle: Oracle, actors: Any) -> dict[str, Any]:
    """Sharded actors of which the source and another one act with whole copies of their own."""
    sender = None
    learns = new_policy()
    if rank in ACTORS:
        shard(learns, CPU, actors)
        sender = WeightSender(learns, group, 0, CPU, sharded=True)
    acts = acting_policy()
    receiver = WeightReceiver(acts, group, 0, CPU, sender=sender if rank == 0 else None)
    same = []
    for version in range(1, 3):
        expected = {}
        if sender is not None:
            train(learns, version)
            expected = oracle.send(learns, source=rank == 0)
        if rank != 0:
            expected = oracle.receive(acts)
        if sender is not None:
            sender.stage(WeightHeader(version))
            sender.send()
        receiver.receive()
        receiver.apply()
        types = {name: p.dtype for name, p in acts.trainable_parameters()}
        same.append(same_bits(acts, {n: w.to(types[n]) for n, w in expected.items()}))
    return {"same": same}


def buffers(rank: int, group: Any) -> dict[str, Any]:
    """Version 2 changes a buffer, version 3 another; receivers skip version 2."""
    if rank == 0:
        policy = new_policy()
        module = policy.module
        sender = WeightSender(policy, group, 0, CPU, sharded=False)
        calls = []
        for version in range(1, 5):
            if version == 2:
                module.count += 7
            if version == 3:
                module.mean = torch.tensor([1.0, 2.0, 3.0])
                module.cache += 1
            sender.stage(WeightHeader(version))
            with CountedBytes() as counted:
                sender.send()
            calls.append(counted.calls)
        return {"calls": calls}
    policy = acting_policy()
    module = policy.module
    module.mean += 5
    receiver = WeightReceiver(policy, group, 0, CPU)
    receiver.receive()
    receiver.apply()
    first = [module.count.item(), module.mean.tolist()]
    receiver.receive()
    receiver.receive()
    receiver.apply()
    then = [module.count.item(), module.mean.tolist(), module.cache.tolist()]
    receiver.receive()
    receiver.apply()
    return {"first": first, "then": then, "last": [module.count.item(), module.mean.tolist()]}


def threads(rank: int, group: Any, oracle: Oracle, control: Any) -> dict[str, Any]:
    """Sender and receivers with threads of their own, as in an asynchronous run."""

    def meet() -> None:
        dist.barrier(control)

    if rank == 0:
        return _sending_thread(group, oracle, meet)
    return _receiving_thread(group, oracle, meet)


def _sending_thread(group: Any, oracle: Oracle, meet: Any) -> dict[str, Any]:
    policy = new_policy()
    sender = WeightSender(policy, group, 0, CPU, sharded=False)
    headers = [WeightHeader(version, evaluate=version == 4) for version in range(1, 7)]
    headers += [WeightHeader(10, evaluate=True), WeightHeader(11), WeightHeader(11, stop=True)]
    thread = threading.Thread(target=lambda: [sender.send() for _ in headers])
    thread.start()
    for header in headers:
        if header.version in (4, 5, 10, 11):
            meet()
        if header.version in (3, 4, 6):
            train(policy, header.version)
            oracle.send(policy, source=True)
        sender.stage(header)
    thread.join()
    return {}


def _receiving_thread(group: Any, oracle: Oracle, meet: Any) -> dict[str, Any]:
    policy = acting_policy()
    receiver = WeightReceiver(policy, group, 0, CPU, version=0)
    seen: dict[str, Any] = {"from_the_start": receiver.wait_for(0, 0.0)}

    def receive() -> None:
        while not receiver.receive().stop:
            pass

    thread = threading.Thread(target=receive)
    thread.start()
    at_3 = oracle.receive(policy)
    receiver.wait_for(3, 30)
    seen["newest"] = [receiver.apply().version, receiver.apply(), same_bits(policy, at_3)]
    meet()  # 4 may come
    at_4 = oracle.receive(policy)
    receiver.wait_for(4, 30)
    meet()  # 5 and 6 may come
    at_6 = oracle.receive(policy)
    _until(lambda: receiver._versions._received == 6)
    seen["held"] = [receiver.apply().version, receiver.apply(), same_bits(policy, at_4)]
    seen["waits_behind"] = _error(lambda: receiver.wait_for(6, 0.05))
    receiver.release()
    seen["released"] = [receiver.apply().version, same_bits(policy, at_6)]
    meet()  # 10 may come
    receiver.wait_for(10, 30)
    seen["evaluated_late"] = receiver.apply().evaluate
    receiver.release()
    meet()  # 11 may come
    receiver.wait_for(11, 30)
    seen["not_in_time"] = _error(lambda: receiver.wait_for(12, 0.05))
    meet()  # the end may come
    seen["stopped"] = [receiver.wait_for(99, 30), receiver.stopped]
    seen["last"] = receiver.apply().version
    thread.join()
    return seen


def _until(condition: Any) -> None:
    while not condition():
        threading.Event().wait(0.002)


def _error(call: Any) -> str:
    try:
        call()
    except RunFailedError as error:
        return error.message
    return "no error"


def cut(rank: int, group: Any, oracle: Oracle) -> dict[str, Any]:
    """The second version breaks off after its first bucket, on all ranks."""
    real = dist.broadcast

    def breaking() -> None:
        calls = iter(range(100))

        def broadcast(*args: Any, **kwargs: Any) -> Any:
            if next(calls) == 2:
                raise RuntimeError("connection reset")
            return real(*args, **kwargs)

        dist.broadcast = broadcast

    if rank == 0:
        policy = new_policy()
        sender = WeightSender(policy, group, 0, CPU, sharded=False)
        oracle.send(policy, source=True)
        sender.stage(WeightHeader(1))
        sender.send()
        train(policy, 1)
        sender.stage(WeightHeader(2))
        breaking()
        try:
            sender.send()
        except RuntimeError as error:
            raised = str(error)
        finally:
            dist.broadcast = real
        return {"raised": raised, "next": _error(lambda: sender.stage(WeightHeader(3)))}
    policy = acting_policy()
    receiver = WeightReceiver(policy, group, 0, CPU)
    expected = oracle.receive(policy)
    receiver.receive()
    receiver.apply()
    breaking()
    try:
        receiver.receive()
    except RuntimeError as error:
        raised = str(error)
    finally:
        dist.broadcast = real
    return {
        "raised": raised,
        "next": _error(receiver.apply),
        "waiting": _error(lambda: receiver.wait_for(2, 30)),
        "whole": same_bits(policy, expected),
    }


def misfits(rank: int, group: Any) -> dict[str, str]:
    """What every rank says when the policies differ."""

    def told(policy: Any) -> str:
        if rank == 0:
            return _error(lambda: WeightSender(new_policy(), group, 0, CPU, sharded=False))
        return _error(lambda: WeightReceiver(policy, group, 0, CPU))

    shaped, frozen, typed, buffered = (acting_policy() for _ in range(4))
    if rank == 2:
        shaped.module.large = nn.Linear(5, 34, dtype=torch.bfloat16)
        frozen.module.first.requires_grad_(False)
        typed.module.float()
        del buffered.module.mean
    return {
        "shape": told(shaped),
        "missing": told(frozen),
        "type": told(typed),
        "buffer": told(buffered),
    }


def rank_main(rank: int, directory: str) -> None:
    torch.set_num_threads(1)
    weight_layout.BUCKET_BYTES = 256
    dist.init_process_group(
        "gloo", init_method=f"file://{directory}/store", rank=rank, world_size=WORLD
    )
    try:
        every, control, broken = (dist.new_group([0, 1, 2]) for _ in range(3))
        ends, actors = dist.new_group([0, 2]), dist.new_group([0, 1])
        oracle, oracle_ends = Oracle(dist.new_group([0, 1, 2])), Oracle(dist.new_group([0, 2]))
        seen = {
            "plain": lockstep(rank, every, oracle, None),
            "sharded": lockstep(rank, ends, oracle_ends, actors),
            "beside": beside_the_sender(rank, every, oracle, actors),
            "buffers": buffers(rank, every),
            "threads": threads(rank, every, oracle, control),
            "misfits": misfits(rank, every),
            "cut": cut(rank, broken, oracle),
        }
        Path(directory, f"{rank}.json").write_text(json.dumps(seen))
    finally:
        dist.destroy_process_group()


def start(directory: Path) -> list[dict[str, Any]]:
    """Return what each rank saw."""
    spawn(rank_main, args=(str(directory),), nprocs=WORLD)
    return [json.loads((directory / f"{rank}.json").read_text()) for rank in range(WORLD)]
