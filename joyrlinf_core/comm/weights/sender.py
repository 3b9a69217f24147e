"""`WeightSender`: brings weights of the policy that learns on their way to copies that act.

Trained parameters and changed persistent buffers travel; everything else is the same on all ranks
from the start. They are copied aside first, so that training goes on while they are sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from joyrlinf_core.comm.weights.layout import Manifest
from joyrlinf_core.comm.weights.outbox import Outbox
from joyrlinf_core.comm.weights.shards import ShardGather

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from joyrlinf_core.comm.weights.channel import WeightHeader
    from joyrlinf_core.policies.base import Policy


class WeightSender:
    """Sends versions of a policy from one actor, the source.

    On the source, making it is a collective with the receivers.

    Attributes:
        outbox: What is staged on the source; None on other actors.

    Args:
        policy: The policy that learns; sharded already, if it will be.
        group: The source and the receivers; used on the source alone.
        source_rank: Global rank of the source.
        device: Device of the policy.
        sharded: Whether every actor holds a part of the weights.

    Raises:
        RunFailedError: Source and receivers do not have the same tensors.
    """

    def __init__(
        self,
        policy: Policy,
        group: ProcessGroup | None,
        source_rank: int,
        device: torch.device,
        *,
        sharded: bool,
    ) -> None:
        # Kept: after a forward pass FSDP2 may show whole weights in the place of its shards.
        self._parameters = [parameter for _, parameter in policy.trainable_parameters()]
        self._specs = Manifest.of(policy).parameters
        self._source_rank = source_rank
        self._sharded = sharded
        self._gather: ShardGather | None = None
        self.outbox: Outbox | None = None
        if dist.get_rank() == source_rank:
            assert group is not None, "the source is in the group of the weights"
            self.outbox = Outbox(policy, group, source_rank, device)
            self._specs = self.outbox.layout.manifest.parameters

    def stage(self, header: WeightHeader) -> None:
        """Copy the weights of now aside, once those of before are sent; for the main thread.

        Where weights are sharded, a collective of the actors. A header that says `stop` takes no
        weights along and is for the source alone. On actors that have nothing to do, nothing
        happens.
        """
        if self.outbox is not None:
            self.outbox.wait_until_empty()
        if not header.stop:
            with torch.no_grad():
                self._copy()
        if self.outbox is not None:
            self.outbox.put(header)

    def send(self) -> None:
        """Broadcast what is staged, waiting for it; on actors but the source nothing happens.

        May run in a thread of its own, that is the only one to use the group.
        """
        if self.outbox is not None:
            self.outbox.send()

    def _copy(self) -> None:
        outbox = self.outbox
        if self._sharded:
            if self._gather is None:
                # Not before: a rank that also receives has yet to agree on types with the source.
                self._gather = ShardGather(self._specs, self._parameters, self._source_rank)
            for index in range(len(self._gather.buckets)):
                self._gather.fill(index, outbox.flat(index) if outbox else None)
                if outbox is not None:
                    outbox.store(index)
        elif outbox is not None:
            for index, bucket in enumerate(outbox.layout.parameters):
                views = bucket.views(outbox.flat(index))
                for number, view in zip(bucket.numbers, views, strict=True):
                    view.copy_(self._parameters[number])
                outbox.store(index)
