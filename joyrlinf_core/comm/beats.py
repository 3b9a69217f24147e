"""Short texts from every rank to every other through the store of the process group.

They pass where collectives hang, so they can tell which rank it is that others wait for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d


class Beats:
    """The last text of each rank.

    Args:
        rank: Global rank of this process.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        # A connection of its own: calls that wait block the store for all threads.
        # It has no public name, and type checkers do not know that it can be cloned.
        store: Any = distributed_c10d._get_default_store()  # noqa: SLF001
        self._store = dist.PrefixStore(  # pyright: ignore[reportPrivateImportUsage]
            "beats", store.clone()
        )
        self._heard: dict[int, bytes] = {}

    def tell(self, text: str) -> None:
        """Replace the text of this rank."""
        self._store.set(str(self._rank), text)

    def hear(self, ranks: Iterable[int]) -> dict[int, str]:
        """Return the texts, by rank, that are new since the last call."""
        new: dict[int, str] = {}
        for rank in ranks:
            if not self._store.check([str(rank)]):
                continue
            value = self._store.get(str(rank))
            if value != self._heard.get(rank):
                self._heard[rank] = value
                new[rank] = value.decode()
        return new
