"""`WeightReceiver`: takes weights in beside those that act, and hands over whole versions only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from joyrlinf_core.comm.weights.channel import Channel
from joyrlinf_core.comm.weights.layout import Layout, Manifest, agree, compare
from joyrlinf_core.comm.weights.versions import Slot, Versions

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from joyrlinf_core.comm.weights.channel import WeightHeader
    from joyrlinf_core.comm.weights.sender import WeightSender
    from joyrlinf_core.policies.base import Policy


class WeightReceiver:
    """Receives versions for a policy that acts. Making it is a collective with the source.

    `receive` may run in a thread of its own, that is the only one to use the group; the other
    methods are for the thread that uses the policy.

    Args:
        policy: The policy that acts.
        group: The source and the receivers.
        source_rank: Global rank of the source.
        device: Device that the policy is on when `apply` is called.
        version: The version that the policy has already; -1 for none.
        sender: On the source itself: what it sends is copied, not received.

    Raises:
        RunFailedError: Source and receivers do not have the same tensors.
    """

    def __init__(
        self,
        policy: Policy,
        group: ProcessGroup,
        source_rank: int,
        device: torch.device,
        *,
        version: int = -1,
        sender: WeightSender | None = None,
    ) -> None:
        self._policy = policy
        self._parameters = [parameter for _, parameter in policy.trainable_parameters()]
        self._local = sender.outbox if sender is not None else None
        if self._local is None:
            assert dist.get_rank() != source_rank, "the source receives from its own sender"
            layout = Layout.of(agree(policy, group, source_rank))
            self._channel = Channel(group, source_rank, device)
        else:
            layout, self._channel = self._local.layout, self._local.channel
            compare(source_rank, layout.manifest, {source_rank: Manifest.of(policy)})
        self._layout = layout
        slots = Slot.of(layout, self._channel), Slot.of(layout, self._channel)
        self._versions = Versions(slots, layout.buffers, version, source_rank)
        self._scratch = self._channel.scratch(layout, device)
        self._applied = torch.cuda.Event(blocking=True) if device.type == "cuda" else None

    @property
    def stopped(self) -> bool:
        """Whether the source has said that no more versions come."""
        return self._versions.stopped

    def receive(self) -> WeightHeader:
        """Wait for the next version and take it in beside those that act.

        The newest one replaces what the policy has not got yet, except versions to be evaluated:
        one of them stays until `release`, and a second one until the first is released.
        """
        try:
            header, changed = self._header()
            if header.stop:
                self._versions.stop()
            else:
                self._fill(self._versions.claim(), changed)
                self._versions.publish(header, changed)
        except Exception as error:
            self._versions.fail(error)
            raise
        return header

    @torch.no_grad()
    def apply(self) -> WeightHeader | None:
        """Copy the newest version that came in whole into the policy, in place.

        On a GPU the copies are queued in the current stream.

        Returns:
            Its header; None where the policy has the newest already.

        Raises:
            RunFailedError: Receiving has failed.
        """
        with self._versions.newest() as slot:
            if slot is None:
                return None
            self._copy(slot)
            return slot.header

    def release(self) -> None:
        """Let newer versions follow one that was to be evaluated, now that this is done."""
        self._versions.release()

    def wait_for(self, version: int, timeout: float) -> bool:
        """Wait until `apply` gives the policy this version, or a newer one.

        A version that is held for its evaluation keeps newer ones away: evaluate first.

        Args:
            version: The version.
            timeout: Seconds.

        Returns:
            False where it will not come because the source has said `stop`.

        Raises:
            RunFailedError: It did not come in time, or receiving has failed.
        """
        return self._versions.wait_for(version, timeout)

    def _header(self) -> tuple[WeightHeader, list[int]]:
        if self._local is None:
            return self._channel.broadcast_header(None, (), len(self._layout.buffers.specs))
        sent = self._local.slot
        assert sent.header is not None, "receive follows the sender's send"
        return sent.header, sorted(sent.changed)

    def _fill(self, slot: Slot, changed: list[int]) -> None:
        if self._applied is not None:
            self._applied.synchronize()
        bytes_of = self._layout.buffers.bytes_of
        buffers = [bytes_of(number, slot.buffers) for number in changed]
        if self._local is None:
            self._channel.broadcast(slot.parameters)
            self._channel.broadcast(buffers)
            return
        sent = self._local.slot
        for mine, theirs in zip(slot.parameters, sent.parameters, strict=True):
            mine.copy_(theirs)
        for number, mine in zip(changed, buffers, strict=True):
            mine.copy_(bytes_of(number, sent.buffers))

    def _copy(self, slot: Slot) -> None:
        if self._applied is not None:
            # The scratch buffer may still be read in the stream of the call before.
            torch.cuda.current_stream().wait_event(self._applied)
        for bucket, flat in zip(self._layout.parameters, slot.parameters, strict=True):
            if self._scratch is not None:
                flat = self._scratch[: bucket.nbytes].copy_(flat, non_blocking=True)
            for number, view in zip(bucket.numbers, bucket.views(flat), strict=True):
                self._parameters[number].copy_(view)
        if slot.changed:
            views = self._layout.buffers.views(slot.buffers)
            for number in slot.changed:
                name = self._layout.buffers.specs[number].name
                self._policy.module.get_buffer(name).copy_(views[number])
        if self._applied is not None:
            self._applied.record()
