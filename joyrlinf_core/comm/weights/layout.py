"""How weights lie in flat buckets, and the check that sender and receivers mean the same ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from joyrlinf_core.comm.collectives import Collectives
from joyrlinf_core.errors import RunFailedError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

    from joyrlinf_core.policies.base import Policy

BUCKET_BYTES = 64 * 2**20
"""Weights travel in flat buckets of about this size; a larger tensor has one of its own."""

ALIGNMENT = 16
"""Bytes; any type of tensor may start there."""

_NAMED_DIFFERENCES = 3


@dataclass(frozen=True)
class Spec:
    """A tensor that travels.

    Attributes:
        name: Its name in the policy's module.
        shape: Its shape, also where it is sharded.
        dtype: The type in which it travels.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Bytes on the wire."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def type_name(self) -> str:
        """The type without `torch.`."""
        return str(self.dtype).removeprefix("torch.")

    def described(self) -> list[Any]:
        """Return the JSON form."""
        return [self.name, list(self.shape), self.type_name]

    @classmethod
    def read(cls, described: Sequence[Any]) -> Spec:
        """Return what `described` described."""
        name, shape, dtype = described
        return cls(name, tuple(shape), getattr(torch, dtype))


@dataclass(frozen=True)
class Bucket:
    """Neighbouring tensors in one flat uint8 buffer.

    Attributes:
        start: Number of the first tensor.
        specs: The tensors.
        offsets: Where each starts, in bytes.
        nbytes: Size of the buffer.
    """

    start: int
    specs: tuple[Spec, ...]
    offsets: tuple[int, ...]
    nbytes: int

    @property
    def numbers(self) -> range:
        """Numbers of the tensors."""
        return range(self.start, self.start + len(self.specs))

    def bytes_of(self, position: int, flat: Tensor) -> Tensor:
        """Return the bytes of the tensor at a position of this bucket, as a view."""
        offset = self.offsets[position]
        return flat[offset : offset + self.specs[position].nbytes]

    def views(self, flat: Tensor) -> list[Tensor]:
        """Return the tensors in a buffer, uint8 [nbytes], as views of it."""
        return [
            self.bytes_of(position, flat).view(spec.dtype).view(spec.shape)
            for position, spec in enumerate(self.specs)
        ]


def in_buckets(specs: Sequence[Spec]) -> list[Bucket]:
    """Lay out tensors, in order, in buckets of at most `BUCKET_BYTES` or one tensor."""
    buckets: list[Bucket] = []
    start, used = 0, 0
    for number, spec in enumerate(specs):
        if number > start and used + spec.nbytes > BUCKET_BYTES:
            buckets.append(one_bucket(specs[start:number], start))
            start, used = number, 0
        used += aligned(spec.nbytes)
    return [*buckets, one_bucket(specs[start:], start)] if specs else []


def one_bucket(specs: Sequence[Spec], start: int = 0) -> Bucket:
    """Lay out tensors in one bucket."""
    ends = list(accumulate((aligned(spec.nbytes) for spec in specs), initial=0))
    return Bucket(start, tuple(specs), tuple(ends[:-1]), ends[-1])


def aligned(nbytes: int) -> int:
    """Round up, so that a tensor of any type may follow."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Manifest:
    """What of a policy travels.

    Attributes:
        parameters: Trained parameters, in the order of the policy.
        buffers: Persistent buffers.
    """

    parameters: tuple[Spec, ...]
    buffers: tuple[Spec, ...]

    @classmethod
    def of(cls, policy: Policy) -> Manifest:
        """Describe a policy, with its own types; where it is sharded, on all actors alike."""
        # FSDP2 shards whole weights again when asked for the state, and other ranks have to follow.
        kept = policy.module.state_dict().keys()
        buffers = [(name, b) for name, b in policy.module.named_buffers() if name in kept]
        return cls(_specs(policy.trainable_parameters()), _specs(buffers))

    def described(self) -> list[list[Any]]:
        """Return the JSON form."""
        return [[spec.described() for spec in part] for part in (self.parameters, self.buffers)]

    @classmethod
    def read(cls, described: Sequence[Sequence[Any]]) -> Manifest:
        """Return what `described` described."""
        parameters, buffers = (tuple(map(Spec.read, part)) for part in described)
        return cls(parameters, buffers)


@dataclass(frozen=True)
class Layout:
    """Where everything lies that travels.

    Attributes:
        manifest: The tensors, with the types in which they travel.
        parameters: Buckets of parameters.
        buffers: Buffers of modules, in one bucket.
    """

    manifest: Manifest
    parameters: list[Bucket]
    buffers: Bucket

    @classmethod
    def of(cls, manifest: Manifest) -> Layout:
        """Lay out what travels."""
        return cls(manifest, in_buckets(manifest.parameters), one_bucket(manifest.buffers))


def agree(policy: Policy, group: ProcessGroup, source_rank: int) -> Manifest:
    """Compare the policies of all ranks of a group; a collective.

    Args:
        policy: This rank's.
        group: Sender and receivers.
        source_rank: Global rank of the sender.

    Returns:
        The tensors with the types in which they travel, those of the receivers.

    Raises:
        RunFailedError: The tensors are not the same; on every rank.
    """
    told = Collectives(group).gather_json(Manifest.of(policy).described())
    ranks = dist.get_process_group_ranks(group)
    receivers = dict(zip(ranks, map(Manifest.read, told), strict=True))
    sent = receivers.pop(source_rank)
    compare(source_rank, sent, receivers)
    return next(iter(receivers.values()), sent)


def compare(source_rank: int, sent: Manifest, receivers: Mapping[int, Manifest]) -> None:
    """Raise `RunFailedError` where receivers lack tensors that are sent, or have others.

    Args:
        source_rank: Global rank of the sender.
        sent: Its tensors; they may have other types.
        receivers: Those of the receivers by global rank; one broadcast serves all of them, so that
            their types are the same.
    """
    found = [
        text
        for rank, own in receivers.items()
        for text in _differences(source_rank, sent, rank, own, lambda spec: spec.shape)
    ]
    first = next(iter(receivers), source_rank)
    found = found or [
        text
        for rank, own in receivers.items()
        for text in _differences(first, receivers[first], rank, own, lambda spec: spec.type_name)
    ]
    if found:
        named, rest = found[:_NAMED_DIFFERENCES], len(found) - _NAMED_DIFFERENCES
        more = [f"and {rest} more"] if rest > 0 else []
        raise RunFailedError(
            f"the policy that learns and those that act differ: {'; '.join([*named, *more])}",
            fix="give all ranks the same version of joyrl, config and model files",
        )


def _differences(
    a: int, of_a: Manifest, b: int, of_b: Manifest, key: Callable[[Spec], object]
) -> Iterator[str]:
    """Say in what the policies of ranks a and b differ; of tensors of both, by a key."""
    for kind, first, second in (
        ("trained parameters", of_a.parameters, of_b.parameters),
        ("buffers", of_a.buffers, of_b.buffers),
    ):
        here = {spec.name: spec for spec in first}
        there = {spec.name: spec for spec in second}
        for name in here | there:
            if name not in there:
                yield f"`{name}` is one of the {kind} of rank {a}, not of rank {b}"
            elif name not in here:
                yield f"`{name}` is one of the {kind} of rank {b}, not of rank {a}"
            elif key(here[name]) != key(there[name]):
                yield f"`{name}` is {key(here[name])} on rank {a}, {key(there[name])} on rank {b}"
        if here.keys() == there.keys() and list(here) != list(there):
            yield f"the {kind} of ranks {a} and {b} are in another order"


def _specs(named: Iterable[tuple[str, Tensor]]) -> tuple[Spec, ...]:
    return tuple(Spec(name, tuple(tensor.shape), tensor.dtype) for name, tensor in named)
