"""`ScalarChannel`: small JSON values from one rank to another, beside the path of batches."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from joyrlinf_core.observability.activity import waiting

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class ScalarChannel:
    """One way from `source` to `destination`, in order. Used by one thread on either side.

    Args:
        group: A group of CPU tensors that holds both ranks; None takes all ranks.
        source: Global rank that sends.
        destination: Global rank that receives.
    """

    def __init__(self, group: ProcessGroup | None, *, source: int, destination: int) -> None:
        self._group = group
        self._source = source
        self._destination = destination

    @waiting("other ranks")
    def send(self, value: Any) -> None:
        """Send a JSON-able value."""
        data = bytearray(json.dumps(value).encode())
        dist.send(torch.tensor([len(data)]), dst=self._destination, group=self._group)
        dist.send(torch.frombuffer(data, dtype=torch.uint8), self._destination, self._group)

    @waiting("other ranks")
    def receive(self) -> Any:
        """Wait for the next value."""
        size = torch.zeros(1, dtype=torch.int64)
        dist.recv(size, src=self._source, group=self._group)
        data = torch.empty(int(size), dtype=torch.uint8)
        dist.recv(data, src=self._source, group=self._group)
        return json.loads(data.numpy().tobytes())
