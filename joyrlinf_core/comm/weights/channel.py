"""What weights travel through: header, group, and buffers that suit it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from joyrlinf_core.errors import RunFailedError
from joyrlinf_core.observability.activity import waiting

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

    from joyrlinf_core.comm.weights.layout import Layout

_MAGIC = 0x4A525731
"""ASCII `JRW1`."""

_STOP, _EVALUATE = 1, 2


@dataclass(frozen=True)
class WeightHeader:
    """What comes before weights.

    Attributes:
        version: Updates that made them.
        stop: The run ends; no weights come with this, and none after it.
        evaluate: Receivers keep this version until they have evaluated it.
    """

    version: int
    stop: bool = False
    evaluate: bool = False


class Channel:
    """The group of the sender and the receivers, as one rank uses it. Making it is a collective.

    Attributes:
        device: Where flat buffers of parameters are: on the GPU where the group has NCCL, else on
            the host. Headers, and buffers of modules, are on the host.

    Args:
        group: The group.
        source_rank: Global rank of the sender.
        device: Device of the policy.
    """

    def __init__(self, group: ProcessGroup, source_rank: int, device: torch.device) -> None:
        backends = dist.get_backend_config(group)
        assert "gloo" in backends, f"headers of weights travel over Gloo, the group has {backends}"
        self._group = group
        self._source_rank = source_rank
        on_gpu = device.type == "cuda" and "cuda:nccl" in backends
        self.device = device if on_gpu else torch.device("cpu")
        self._stream = torch.cuda.Stream(device) if on_gpu else None
        self._pinned = device.type == "cuda" and not on_gpu
        # NCCL connects in its first call: better now, in step, than in a thread beside others.
        self.broadcast([self.empty(1).zero_()])

    def empty(self, nbytes: int) -> Tensor:
        """Return a flat buffer for parameters, uint8."""
        return torch.empty(nbytes, dtype=torch.uint8, device=self.device, pin_memory=self._pinned)

    def scratch(self, layout: Layout, device: torch.device) -> Tensor | None:
        """Return room for one bucket on the device, where flat buffers are on the host instead.

        Types are cast there, and what crosses the bus is one copy a bucket.
        """
        if self.device == device:
            return None
        largest = max((bucket.nbytes for bucket in layout.parameters), default=0)
        return torch.empty(largest, dtype=torch.uint8, device=device)

    @waiting("weights")
    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite tensors with those of the sender; returns when they are there."""
        with torch.cuda.stream(self._stream) if self._stream else nullcontext():
            for tensor in tensors:
                dist.broadcast(tensor, self._source_rank, self._group)
        if self._stream:
            self._stream.synchronize()

    def broadcast_header(
        self, header: WeightHeader | None, changed: Sequence[int], num_buffers: int
    ) -> tuple[WeightHeader, list[int]]:
        """Send or get a header.

        Args:
            header: What the sender sends; None on receivers.
            changed: Numbers of the buffers of modules that the sender sends.
            num_buffers: How many such buffers there are.

        Returns:
            Header and numbers of the buffers, the same on all ranks.
        """
        message = torch.zeros(3 + num_buffers, dtype=torch.int64)
        if header is not None:
            flags = _STOP * header.stop + _EVALUATE * header.evaluate
            message[:3] = torch.tensor([_MAGIC, header.version, flags])
            message[3:][list(changed)] = 1
        self.broadcast([message])
        magic, version, flags, *marks = message.tolist()
        if magic != _MAGIC:
            raise RunFailedError(
                f"rank {self._source_rank} was to send a header of weights, something else came",
                fix="give all ranks the same version of joyrl",
            )
        told = WeightHeader(version, bool(flags & _STOP), bool(flags & _EVALUATE))
        return told, [number for number, mark in enumerate(marks) if mark]
