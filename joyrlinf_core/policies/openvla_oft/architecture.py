"""Sizes of OpenVLA-OFT. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Tower(NamedTuple):
    """A vision transformer; its last block is never read."""

    width: int
    depth: int
    mlp: int
    prefix: int
    """Tokens beside the patches."""
    scaled: bool
    """Whether blocks scale their branches (two vectors a block)."""


@dataclass(frozen=True)
class Architecture:
    """Every size that a weight's shape depends on; the defaults are the published ones.

    Attributes:
        patches: Tokens of one picture of 224 x 224.
        patch_size: Side of a vision patch in pixels.
        towers: DINOv2 large with registers, SigLIP So400m; both see every picture.
        vocab_size: Rows of the token embedding, 64 of them padding.
        width: Width of the language model (Llama 2 7B).
        depth: Its layers.
        mlp: Hidden width of its MLPs.
        value_widths: Hidden widths of the value head.
    """

    patches: int = 256
    patch_size: int = 14
    towers: tuple[Tower, ...] = (
        Tower(width=1024, depth=24, mlp=4096, prefix=5, scaled=True),
        Tower(width=1152, depth=27, mlp=4304, prefix=0, scaled=False),
    )
    vocab_size: int = 32_064
    width: int = 4096
    depth: int = 32
    mlp: int = 11_008
    value_widths: tuple[int, ...] = (512, 128)

    @property
    def features(self) -> int:
        """Width of a picture's features: both towers side by side."""
        return sum(tower.width for tower in self.towers)
