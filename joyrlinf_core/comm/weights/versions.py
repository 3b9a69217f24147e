"""Two versions of the weights between two threads: one for the policy, one that comes in."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from joyrlinf_core.errors import RunFailedError
from joyrlinf_core.observability.activity import waiting

if TYPE_CHECKING:
    from torch import Tensor

    from joyrlinf_core.comm.weights.channel import Channel, WeightHeader
    from joyrlinf_core.comm.weights.layout import Bucket, Layout


@dataclass
class Slot:
    """Room for one version.

    Attributes:
        parameters: Flat buckets, uint8.
        buffers: Flat buffers of modules, uint8, on the host.
        header: Its header; None while it is not complete.
        changed: Numbers of the buffers that it holds; the others are as they were.
    """

    parameters: list[Tensor]
    buffers: Tensor
    header: WeightHeader | None = None
    changed: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, layout: Layout, channel: Channel) -> Slot:
        """Make room where the channel wants it."""
        return cls(
            [channel.empty(bucket.nbytes) for bucket in layout.parameters],
            torch.empty(layout.buffers.nbytes, dtype=torch.uint8),
        )


class Versions:
    """Takes in versions in one thread and hands out the newest whole one in another.

    A version to be evaluated stays until `release`, while newer ones wait behind it.

    Args:
        slots: Room for two versions.
        layout: Of the buffers of modules.
        version: The version that the policy has now; -1 for none.
        source_rank: Who sends, for messages.
    """

    def __init__(
        self, slots: tuple[Slot, Slot], layout: Bucket, version: int, source_rank: int
    ) -> None:
        self._condition = threading.Condition()
        self._ready, self._incoming = slots
        self._layout = layout
        self._source_rank = source_rank
        self._fresh = self._held = self._stopped = False
        self._available = self._received = version
        self._failure: Exception | None = None

    @property
    def stopped(self) -> bool:
        """Whether no more versions come."""
        return self._stopped

    def claim(self) -> Slot:
        """Return the slot to fill; waits while it holds a version that is yet to be evaluated."""
        with self._condition:
            self._condition.wait_for(lambda: not _to_evaluate(self._incoming))
            # A version that waited here is given up for a newer one; its buffers stay in place.
            self._incoming.header = None
            return self._incoming

    def publish(self, header: WeightHeader, changed: list[int]) -> None:
        """Say that the claimed slot is filled."""
        with self._condition:
            self._incoming.header = header
            self._incoming.changed.update(changed)
            self._received = header.version
            self._move_up()
            self._condition.notify_all()

    def stop(self) -> None:
        """Say that no more versions come, and wake those who wait for one."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()

    def fail(self, error: Exception) -> None:
        """Say why no more versions come, and wake those who wait for one."""
        with self._condition:
            self._failure = error
            self._condition.notify_all()

    @contextmanager
    def newest(self) -> Iterator[Slot | None]:
        """Lend the newest version, once; None where the policy has it already."""
        with self._condition:
            self._raise_failure()
            yield self._ready if self._fresh else None
            self._fresh = False

    def release(self) -> None:
        """Say that the version to evaluate was evaluated; without one, nothing happens."""
        with self._condition:
            self._held = False
            self._move_up()
            self._condition.notify_all()

    def wait_for(self, version: int, timeout: float) -> bool:
        """Wait until a version is there, or a newer one.

        Args:
            version: The version.
            timeout: Seconds.

        Returns:
            False where it will not come because the run ends.

        Raises:
            RunFailedError: It did not come in time, or receiving failed.
        """
        with self._condition:
            with waiting("weights"):
                self._condition.wait_for(lambda: self._available >= version or self._ended, timeout)
            self._raise_failure()
            if self._available >= version or self._stopped:
                return self._available >= version
            why = f"rank {self._source_rank} sent no newer weights in {timeout:g} s"
            if self._held and self._received >= version:
                why = f"{self._available} is held until it is evaluated, now for {timeout:g} s"
            raise RunFailedError(
                f"waits for version {version}, last received {self._received}: {why}",
                fix=f"look at what rank {self._source_rank} does: its log, and its phase in "
                "events.jsonl",
            )

    @property
    def _ended(self) -> bool:
        return self._stopped or self._failure is not None

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise RunFailedError(
                f"weights from rank {self._source_rank} stopped coming after version "
                f"{self._received}: {self._failure}",
                fix=f"look at the log of rank {self._source_rank}",
            ) from self._failure

    def _move_up(self) -> None:
        """Let a complete version take the place of the one before, unless that is held."""
        new, old = self._incoming, self._ready
        if new.header is None or self._held:
            return
        if self._fresh:
            # The policy skips the old version, but has to get the buffers that came with it.
            kept = old.changed - new.changed
            for number in kept:
                self._layout.bytes_of(number, new.buffers).copy_(
                    self._layout.bytes_of(number, old.buffers)
                )
            new.changed |= kept
        old.header, old.changed = None, set()
        self._ready, self._incoming = new, old
        self._available, self._fresh = new.header.version, True
        self._held = new.header.evaluate


def _to_evaluate(slot: Slot) -> bool:
    return slot.header is not None and slot.header.evaluate
