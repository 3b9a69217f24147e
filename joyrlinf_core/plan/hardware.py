"""Cards: memory and peak rates, for `joyrl estimate`."""

from __future__ import annotations

import os
from dataclasses import dataclass

GIB = 2**30


@dataclass(frozen=True)
class Card:
    """What one rank runs on.

    Attributes:
        name: Name on the command line.
        memory: Bytes that the driver shows.
        bf16_flops: Peak dense bf16 FLOP/s of the matrix units, fp32 accumulation, no sparsity.
        fp32_flops: Peak float32 FLOP/s without TF32, as torch computes by default.
        bandwidth: Memory bytes per second.
        source: Where the rates come from.
    """

    name: str
    memory: int
    bf16_flops: float
    fp32_flops: float
    bandwidth: float
    source: str

    @property
    def usable(self) -> int:
        """Bytes that a plan may fill: nine tenths.

        The rest is for the CUDA context, NCCL, and fragmentation of the allocator.
        """
        return self.memory * 9 // 10


def _card(
    name: str, gib: float, bf16: float, fp32: float, terabytes: float, source: str
) -> tuple[str, Card]:
    card = Card(name, int(gib * GIB), bf16 * 1e12, fp32 * 1e12, terabytes * 1e12, source)
    return name, card


CARDS: dict[str, Card] = dict(
    (
        # Vendors state bf16 rates with 2:4 sparsity; half of that is the dense rate.
        _card("b200", 179.0, 2250, 75, 7.7, "NVIDIA HGX B200 data sheet"),
        _card("h200", 140.4, 989, 67, 4.8, "NVIDIA H200 SXM data sheet"),
        _card("h100", 79.6, 989, 67, 3.35, "NVIDIA H100 SXM data sheet"),
        _card("a100-80", 80.0, 312, 19.5, 2.039, "NVIDIA A100 80GB SXM data sheet"),
        _card("a100-40", 40.0, 312, 19.5, 1.555, "NVIDIA A100 40GB SXM data sheet"),
        _card("l40s", 45.0, 362, 91.6, 0.864, "NVIDIA L40S data sheet"),
        _card("rtx5090", 31.8, 209.5, 104.8, 1.792, "NVIDIA RTX Blackwell white paper"),
        _card("rtx4090", 24.0, 165.2, 82.6, 1.008, "NVIDIA Ada white paper"),
        _card("rtx3090", 24.0, 71.0, 35.6, 0.936, "NVIDIA GA102 white paper"),
    )
)
"""GPUs by name."""

CPU = "cpu"
FLOPS_PER_CORE = 1e11
"""3 GHz x 32: two AVX2 units, each a multiply-add on 8 numbers per cycle. Same for bf16."""
BYTES_PER_CORE = 1e10


def cpu_card(ranks: int, threads: int | None) -> Card:
    """Return this machine's share of one of its ranks.

    Args:
        ranks: Ranks on the machine.
        threads: Threads of a rank; None: its share of the cores.
    """
    cores = threads or max(1, (os.cpu_count() or 1) // ranks)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // ranks
    flops = cores * FLOPS_PER_CORE
    source = f"this machine's memory / {ranks} ranks; {cores} cores x 3 GHz x 32 FLOP"
    return Card(CPU, memory, flops, flops, cores * BYTES_PER_CORE, source)
