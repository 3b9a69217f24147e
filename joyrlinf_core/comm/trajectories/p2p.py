"""Comm mode v1: one message per pair of ranks that has something to send."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch.distributed as dist

from joyrlinf_core.errors import RunFailedError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup


def exchange(
    send: Tensor,
    send_counts: Sequence[int],
    recv: Tensor,
    recv_counts: Sequence[int],
    group: ProcessGroup,
) -> None:
    """Send parts of a buffer to other ranks and fill a buffer with what they send.

    Every pair has its place in one order, by source and destination, that all ranks follow. A rank
    with nothing to send or receive need not call this. On NCCL, all ranks of the group must have
    met in a collective before.

    Args:
        send: uint8 [sum(send_counts)], parts by rank of the group, where the group moves tensors.
        send_counts: Bytes for each rank of the group; 0 for this one.
        recv: uint8 [sum(recv_counts)], likewise.
        recv_counts: Bytes from each rank.
        group: The group.

    Raises:
        RunFailedError: A message did not come through; names the other rank.
    """
    own = dist.get_rank(group)
    pairs = [(own, peer, part) for peer, part in enumerate(send.split(list(send_counts)))]
    pairs += [(peer, own, part) for peer, part in enumerate(recv.split(list(recv_counts)))]
    pairs = sorted((pair for pair in pairs if len(pair[2])), key=lambda pair: pair[:2])
    if not pairs:
        return
    operations = [
        dist.P2POp(dist.isend, part, group=group, group_peer=destination)
        if source == own
        else dist.P2POp(dist.irecv, part, group=group, group_peer=source)
        for source, destination, part in pairs
    ]
    ranks = dist.get_process_group_ranks(group)
    told = [
        f"to rank {ranks[destination]}" if source == own else f"from rank {ranks[source]}"
        for source, destination, _ in pairs
    ]
    try:
        works = dist.batch_isend_irecv(operations)
    except RuntimeError as error:
        raise RunFailedError(f"nothing comes through {', '.join(told)}: {error}") from error
    if len(works) != len(pairs):  # NCCL: one for all of them
        told = [", ".join(told)] * len(works)
    for work, where in zip(works, told, strict=True):
        try:
            work.wait()
        except RuntimeError as error:
            raise RunFailedError(f"nothing comes through {where}: {error}") from error
