"""Whole weights from FSDP2 shards: a gather on one rank, bucket by bucket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard

from joyrlinf_core.comm.weights.layout import Bucket, Spec, in_buckets, one_bucket
from joyrlinf_core.observability.activity import waiting

if TYPE_CHECKING:
    from torch import Tensor

_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


class ShardGather:
    """Fills buckets from parameters of which every rank holds some rows.

    Parameters that are not sharded come from the source itself. Making it is a collective of the
    ranks that hold shards.

    Args:
        specs: What travels, with the types in which it does.
        parameters: The parameters, in the same order.
        source_rank: Global rank that gets the result, and whose types count.
    """

    def __init__(
        self, specs: Sequence[Spec], parameters: Sequence[Tensor], source_rank: int
    ) -> None:
        example = next(parameter for parameter in parameters if isinstance(parameter, DTensor))
        self._device = example.to_local().device
        self._group, self._world = example.device_mesh.get_group(), example.device_mesh.size()
        self._parameters = parameters
        self._source_rank = source_rank
        self.buckets = in_buckets(self._in_types_of_source(specs))
        self._sharded = [
            [number for number in bucket.numbers if isinstance(parameters[number], DTensor)]
            for bucket in self.buckets
        ]
        self._shards = [
            self._layout(bucket, numbers)
            for bucket, numbers in zip(self.buckets, self._sharded, strict=True)
        ]
        largest = max(shards.nbytes for shards in self._shards)
        self._own = torch.zeros(largest, dtype=torch.uint8, device=self._device)
        copies = self._world if dist.get_rank() == source_rank else 0
        self._all = torch.empty((copies, largest), dtype=torch.uint8, device=self._device)

    def fill(self, index: int, flat: Tensor | None) -> None:
        """Gather one bucket; a collective.

        Args:
            index: Of the bucket.
            flat: Where the source gets it, uint8; None on other ranks.
        """
        bucket, numbers, shards = self.buckets[index], self._sharded[index], self._shards[index]
        own, parts = self._own[: shards.nbytes], list(self._all[:, : shards.nbytes])
        for number, view in zip(numbers, shards.views(own), strict=True):
            parameter = self._parameters[number]
            assert isinstance(parameter, DTensor)
            local = parameter.to_local()
            view[: len(local)].copy_(local)
        if numbers:
            with waiting("other ranks"):
                dist.gather(own, parts or None, dst=self._source_rank, group=self._group)
        if flat is None:
            return
        whole = dict(zip(bucket.numbers, bucket.views(flat), strict=True))
        for place, part in enumerate(parts):
            for number, view in zip(numbers, shards.views(part), strict=True):
                rows = whole[number][place * len(view) :][: len(view)]
                rows.copy_(view[: len(rows)])
        for number in whole.keys() - set(numbers):
            whole[number].copy_(self._parameters[number])

    def _layout(self, bucket: Bucket, numbers: Sequence[int]) -> Bucket:
        """Lay out what one rank holds of a bucket; the last ranks may have fewer rows, or none."""
        shards: list[Spec] = []
        for number in numbers:
            spec, parameter = bucket.specs[number - bucket.start], self._parameters[number]
            assert isinstance(parameter, DTensor)
            assert parameter.placements == (Shard(0),), f"`{spec.name}` is not sharded by rows"
            rows, *rest = spec.shape
            shards.append(Spec(spec.name, (-(-rows // self._world), *rest), spec.dtype))
        return one_bucket(shards)

    def _in_types_of_source(self, specs: Sequence[Spec]) -> list[Spec]:
        """Return the tensors with the types that the source has agreed on with its receivers."""
        codes = torch.tensor([_DTYPES.index(spec.dtype) for spec in specs], device=self._device)
        with waiting("other ranks"):
            dist.broadcast(codes, self._source_rank, self._group)
        return [
            Spec(spec.name, spec.shape, _DTYPES[code])
            for spec, code in zip(specs, codes.tolist(), strict=True)
        ]
