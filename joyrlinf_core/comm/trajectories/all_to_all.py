"""Comm mode v2: one collective of all ranks, with the sizes that v1 sends pair by pair."""

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
    """Do what `p2p.exchange` does; all ranks of the group call it together.

    Args:
        send: uint8 [sum(send_counts)], parts by rank of the group, where the group moves tensors.
        send_counts: Bytes for each rank of the group; 0 for this one.
        recv: uint8 [sum(recv_counts)], likewise.
        recv_counts: Bytes from each rank.
        group: The group.

    Raises:
        RunFailedError: The collective failed; names the ranks in it.
    """
    try:
        dist.all_to_all_single(recv, send, list(recv_counts), list(send_counts), group=group)
    except RuntimeError as error:
        ranks = ", ".join(map(str, dist.get_process_group_ranks(group)))
        raise RunFailedError(f"the all-to-all of ranks {ranks} failed: {error}") from error
