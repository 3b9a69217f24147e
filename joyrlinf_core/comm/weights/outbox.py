"""One version of the weights on its way from the thread that trains to the thread that sends."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import torch

from joyrlinf_core.comm.weights.channel import Channel, WeightHeader
from joyrlinf_core.comm.weights.layout import Layout, agree
from joyrlinf_core.comm.weights.versions import Slot
from joyrlinf_core.errors import RunFailedError
from joyrlinf_core.observability.activity import waiting

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

    from joyrlinf_core.policies.base import Policy


class Outbox:
    """What the source of the weights has beside its policy. Making it is a collective.

    Attributes:
        channel: To the receivers.
        layout: What travels.
        slot: The version that is staged, or was sent last.

    Args:
        policy: The policy.
        group: The source and the receivers.
        source_rank: Global rank of the source, this one.
        device: Device of the policy.
    """

    def __init__(
        self, policy: Policy, group: ProcessGroup, source_rank: int, device: torch.device
    ) -> None:
        self._policy = policy
        self.layout = Layout.of(agree(policy, group, source_rank))
        self.channel = Channel(group, source_rank, device)
        self.slot = Slot.of(self.layout, self.channel)
        self._scratch = self.channel.scratch(self.layout, device)
        self._copied = torch.cuda.Event(blocking=True) if device.type == "cuda" else None
        self._condition = threading.Condition()
        self._staged = False
        self._nothing_sent = True
        self._failure: Exception | None = None

    def wait_until_empty(self) -> None:
        """Wait until the version before is sent."""
        with self._condition, waiting("the weights to be sent"):
            self._condition.wait_for(lambda: not self._staged or self._failure is not None)
            if self._failure is not None:
                raise RunFailedError(
                    f"weights could not be sent: {self._failure}",
                    fix="look at the logs of the rollout ranks",
                ) from self._failure

    def flat(self, index: int) -> Tensor:
        """Return where a bucket is to be filled, on the device of the policy; then `store` it."""
        if self._scratch is None:
            return self.slot.parameters[index]
        return self._scratch[: self.layout.parameters[index].nbytes]

    def store(self, index: int) -> None:
        """Move a bucket that was filled to where it is sent from."""
        if self._scratch is not None:
            self.slot.parameters[index].copy_(self.flat(index), non_blocking=True)

    def put(self, header: WeightHeader) -> None:
        """Let what was filled be sent, with the buffers that have changed since the last time."""
        self.slot.changed = set() if header.stop else self._take_buffers()
        if self._copied is not None:
            self._copied.record()
        with self._condition:
            self.slot.header = header
            self._staged = True
            self._condition.notify_all()

    def send(self) -> None:
        """Broadcast the version that is staged, waiting for one."""
        with self._condition:
            self._condition.wait_for(lambda: self._staged)
        try:
            self._broadcast()
        except Exception as error:
            with self._condition:
                self._failure = error
                self._condition.notify_all()
            raise
        with self._condition:
            self._staged = False
            self._condition.notify_all()

    def _broadcast(self) -> None:
        slot, buffers = self.slot, self.layout.buffers
        if self._copied is not None:
            self._copied.synchronize()
        changed = sorted(slot.changed)
        header, _ = self.channel.broadcast_header(slot.header, changed, len(buffers.specs))
        if not header.stop:
            self.channel.broadcast(slot.parameters)
            self.channel.broadcast(buffers.bytes_of(number, slot.buffers) for number in changed)

    def _take_buffers(self) -> set[int]:
        """Copy the buffers that differ from what was sent last; all of them the first time."""
        views = self.layout.buffers.views(self.slot.buffers)
        changed: set[int] = set()
        for number, (spec, view) in enumerate(zip(self.layout.buffers.specs, views, strict=True)):
            value = self._policy.module.get_buffer(spec.name).to(view)
            if self._nothing_sent or not torch.equal(value, view):
                view.copy_(value)
                changed.add(number)
        self._nothing_sent = False
        return changed
