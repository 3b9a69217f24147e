"""FSDP2 sharding, and full state dicts from replicated or sharded weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from joyrlinf_core.policies.base import Policy


class Schedule(Protocol):
    """A learning-rate schedule with a state."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""
        ...

    def load_state_dict(self, state: Any) -> None:
        """Continue from a state."""
        ...


@dataclass(frozen=True)
class TrainingState:
    """What a checkpoint holds of the learner, with full (unsharded) tensors.

    Attributes:
        model: State dict of the policy's module.
        optimizer: State dict of the optimizer, keyed by parameter names when it comes from shards.
        scheduler: State dict of the schedule.
    """

    model: dict[str, Any]
    optimizer: dict[str, Any]
    scheduler: dict[str, Any]


def shard(policy: Policy, device: torch.device, group: ProcessGroup | None = None) -> None:
    """Shard a policy in place: its units one by one, then the rest.

    Args:
        policy: The policy, the same on every rank.
        device: Device of this rank.
        group: The ranks; None takes all.
    """
    mesh = DeviceMesh.from_group(group or _world(), device.type)
    sharding = policy.sharding()
    for module in (*sharding.units, sharding.root):
        fully_shard(module, mesh=mesh)
    for module, name in sharding.forward_methods:
        register_fsdp_forward_method(module, name)


def full_state(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    scheduler: Schedule,
    *,
    sharded: bool,
    keep: bool,
) -> TrainingState:
    """Return the whole state; on sharded weights a collective, whose result `keep` ranks get."""
    if not sharded:
        return TrainingState(
            policy.module.state_dict(), optimizer.state_dict(), scheduler.state_dict()
        )
    # Not with `full_state_dict`: with `cpu_offload` torch fills rank 0 of the world alone, which
    # may be no actor, and without it every device holds everything.
    return TrainingState(
        _whole(get_model_state_dict(policy.module), keep=keep),
        _whole(get_optimizer_state_dict(policy.module, optimizer), keep=keep),
        scheduler.state_dict(),
    )


def load_full_state(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    scheduler: Schedule,
    state: TrainingState,
    *,
    sharded: bool,
) -> None:
    """Load what `full_state` returned, from shards or not; every rank passes the same state."""
    if sharded:
        options = StateDictOptions(full_state_dict=True)
        set_model_state_dict(policy.module, state.model, options=options)
        named = _keyed_by_name(policy, optimizer, state.optimizer)
        set_optimizer_state_dict(policy.module, optimizer, named, options=options)
    else:
        policy.module.load_state_dict(state.model)
        optimizer.load_state_dict(state.optimizer)
    scheduler.load_state_dict(state.scheduler)


def _world() -> ProcessGroup:
    group = dist.group.WORLD
    assert group is not None, "sharding needs a process group"
    return group


def _whole(state: Any, *, keep: bool) -> Any:
    """Gather the shards in nested dicts and lists, one tensor at a time; to CPU, or drop them."""
    if isinstance(state, dict):
        return {name: _whole(value, keep=keep) for name, value in state.items()}
    if isinstance(state, list):
        return [_whole(value, keep=keep) for value in state]
    if isinstance(state, DTensor):
        state = state.full_tensor()
    if isinstance(state, torch.Tensor):
        return state.cpu() if keep else torch.empty(0)
    return state


def _keyed_by_name(
    policy: Policy, optimizer: torch.optim.Optimizer, state: dict[str, Any]
) -> dict[str, Any]:
    """Key an optimizer state by names, as shards need it; replicated weights key it by number."""
    name_of = {id(parameter): name for name, parameter in policy.module.named_parameters()}
    names = [name_of[id(p)] for group in optimizer.param_groups for p in group["params"]]
    keys = [key for group in state["param_groups"] for key in group["params"]]
    renamed = dict(zip(keys, names, strict=True))
    return {
        "state": {renamed[key]: value for key, value in state["state"].items()},
        "param_groups": [
            group | {"params": [renamed[key] for key in group["params"]]}
            for group in state["param_groups"]
        ],
    }
