"""Collectives of the ranks of one role, as the engine uses them.

Every method works on one rank without a process group. Objects travel as JSON bytes, never as
pickles. Called on all ranks, in the same order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from joyrlinf_core.observability.activity import waiting

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

BUCKET_BYTES = 64 * 2**20
"""Gradients are summed in flat buckets of about this size: few calls, bounded extra memory."""


class Collectives:
    """A process group, or nothing on one rank. Tensors that are made from numbers stay on CPU.

    Attributes:
        group: The group, or None.
        rank: Place of this rank in the group.
        world_size: Ranks in the group.

    Args:
        group: The group; None takes all ranks.
        main: Rank, within the group, that reports metrics and writes files.
    """

    def __init__(self, group: ProcessGroup | None = None, *, main: int = 0) -> None:
        self.group = group
        self._main = main
        active = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank(group) if active else 0
        self.world_size = dist.get_world_size(group) if active else 1

    @property
    def is_main(self) -> bool:
        """Whether this rank reports metrics and writes files."""
        return self.rank == self._main

    def barrier(self) -> None:
        """Wait for every rank."""
        self.any(flag=False)

    @waiting("other ranks")
    def any(self, *, flag: bool) -> bool:
        """Return whether the flag is True on any rank; the same answer on all."""
        if self.world_size == 1:
            return flag
        value = torch.tensor([int(flag)])
        dist.all_reduce(value, op=dist.ReduceOp.MAX, group=self.group)
        return bool(value.item())

    @waiting("other ranks")
    def max(self, value: float) -> float:
        """Return the maximum of a number over ranks."""
        if self.world_size == 1:
            return value
        tensor = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=self.group)
        return float(tensor.item())

    @waiting("other ranks")
    def sum(self, values: Sequence[float]) -> list[float]:
        """Return the sums of numbers over ranks, in float64."""
        if self.world_size == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, group=self.group)
        return tensor.tolist()

    @waiting("other ranks")
    def gather_json(self, value: Any) -> list[Any]:
        """Return every rank's JSON-able value, in rank order, on every rank."""
        if self.world_size == 1:
            return [json.loads(json.dumps(value))]
        data = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world_size)]
        dist.all_gather(sizes, torch.tensor([data.numel()]), group=self.group)
        longest = max(int(size.item()) for size in sizes)
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: data.numel()] = data
        parts = [torch.empty_like(padded) for _ in range(self.world_size)]
        dist.all_gather(parts, padded, group=self.group)
        return [
            json.loads(part[: int(size.item())].numpy().tobytes())
            for part, size in zip(parts, sizes, strict=True)
        ]

    @waiting("other ranks")
    def broadcast_tensors(self, tensors: Iterable[Tensor], source: int = 0) -> None:
        """Overwrite tensors in place with those of `source`."""
        if self.world_size > 1:
            for tensor in tensors:
                dist.broadcast(tensor.data, group=self.group, group_src=source)

    @waiting("gradients of other ranks")
    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Add up gradients over ranks in place; a missing gradient counts as zero.

        Losses carry weights that add up to one over all ranks, so the sum is the gradient of the
        global loss. One call after the last micro-batch does what the DDP wrapper would do, and
        also works on a rank whose rows were all masked, where the wrapper would wait for ever.
        """
        bucket: list[Tensor] = []
        size = 0
        for parameter in parameters:
            # On one rank too: an optimizer treats zero and no gradient differently.
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            if self.world_size == 1:
                continue
            bucket.append(parameter.grad)
            size += parameter.grad.numel() * parameter.grad.element_size()
            if size >= BUCKET_BYTES:
                self._sum_flat(bucket)
                bucket, size = [], 0
        if bucket:
            self._sum_flat(bucket)

    def _sum_flat(self, gradients: list[Tensor]) -> None:
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        dist.all_reduce(flat, group=self.group)
        offset = 0
        for gradient in gradients:
            count = gradient.numel()
            gradient.copy_(flat[offset : offset + count].view_as(gradient))
            offset += count
