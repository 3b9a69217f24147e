"""Sizes of a Pi0 or Pi0.5 model, and the named variants. No torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field

from joyrlinf_core.config.schema.base import MAX_COUNT, Section

Family = Literal["pi0", "pi05"]
Variant = Literal["tiny-pi0", "tiny-pi05", "small-pi0", "small-pi05", "pi0", "pi05"]


@dataclass(frozen=True)
class Architecture:
    """Every size that a weight's shape depends on; the defaults are Pi0's published ones.

    Attributes:
        family: `pi0` puts the state before the actions as one token and fuses time by an MLP;
            `pi05` has no state token and adapts every norm of the expert to the time.
        image_size: Side of a square picture in pixels.
        patch_size: Side of a vision patch in pixels.
        vision_width: Width of the vision tower.
        vision_depth: Layers of the vision tower.
        vision_heads: Attention heads of the vision tower.
        vision_mlp: Hidden width of its MLPs.
        vocab_size: Rows of the token embedding.
        width: Width of the language model.
        depth: Layers of the language model and of the action expert.
        mlp: Hidden width of the language model's MLPs.
        expert_width: Width of the action expert.
        expert_mlp: Hidden width of the expert's MLPs.
        heads: Query heads of both.
        kv_heads: Key and value heads of both.
        head_dim: Width of one head.
        action_dim: A: width of an action; env actions are padded with zeros.
        state_dim: Width of the state; env states are padded with zeros.
        horizon: H: actions per prediction.
        max_token_len: Longest prompt in tokens.
        value_widths: Hidden widths of the value head.
        noise_widths: Hidden widths of the noise head (`flow_noise`).
    """

    family: Family = "pi0"
    image_size: int = 224
    patch_size: int = 14
    vision_width: int = 1152
    vision_depth: int = 27
    vision_heads: int = 16
    vision_mlp: int = 4304
    vocab_size: int = 257152
    width: int = 2048
    depth: int = 18
    mlp: int = 16384
    expert_width: int = 1024
    expert_mlp: int = 4096
    heads: int = 8
    kv_heads: int = 1
    head_dim: int = 256
    action_dim: int = 32
    state_dim: int = 32
    horizon: int = 50
    max_token_len: int = 48
    value_widths: tuple[int, ...] = (512, 256, 128)
    noise_widths: tuple[int, ...] = (128, 64)

    @property
    def tokens_per_image(self) -> int:
        """Prefix tokens of one camera."""
        return (self.image_size // self.patch_size) ** 2

    def problems(self) -> list[str]:
        """Return what makes these sizes impossible; empty when they fit together."""
        found = []
        if self.image_size % self.patch_size:
            found.append(
                f"image_size {self.image_size} is not a multiple of patch_size {self.patch_size}"
            )
        if self.vision_width % self.vision_heads:
            found.append(
                f"vision_width {self.vision_width} is not a multiple of "
                f"vision_heads {self.vision_heads}"
            )
        if self.heads % self.kv_heads:
            found.append(f"heads {self.heads} is not a multiple of kv_heads {self.kv_heads}")
        found += [
            f"{name} {getattr(self, name)} is odd"
            for name in ("head_dim", "expert_width")
            if getattr(self, name) % 2
        ]
        return found


class ArchitectureOverrides(Section):
    """Sizes that replace those of the variant; None keeps the variant's."""

    image_size: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Side of the square picture that the model sees, in pixels. Tiny and small variants otherwise
    take the env's."""

    patch_size: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Side of a vision patch in pixels."""

    vision_width: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Width of the vision tower."""

    vision_depth: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Layers of the vision tower."""

    vision_heads: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Attention heads of the vision tower."""

    vision_mlp: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Hidden width of the vision tower's MLPs."""

    width: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Width of the language model."""

    depth: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Layers of the language model and of the action expert."""

    mlp: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Hidden width of the language model's MLPs."""

    expert_width: int | None = Field(default=None, ge=2, le=MAX_COUNT)
    """Width of the action expert."""

    expert_mlp: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Hidden width of the action expert's MLPs."""

    heads: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Query heads."""

    kv_heads: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Key and value heads."""

    head_dim: int | None = Field(default=None, ge=2, le=MAX_COUNT)
    """Width of one head."""

    action_dim: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """A: width of an action inside the model. Tiny and small variants otherwise take the env's."""

    state_dim: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Width of the state inside the model. Tiny and small variants otherwise take the env's."""

    horizon: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """H: actions per prediction."""

    max_token_len: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Longest prompt in tokens."""

    def apply(self, base: Architecture) -> Architecture:
        """Return `base` with the sizes that are set here."""
        return replace(base, **self.model_dump(exclude_none=True))


_TINY = Architecture(
    image_size=64,
    patch_size=16,
    vision_width=64,
    vision_depth=2,
    vision_heads=4,
    vision_mlp=128,
    width=64,
    depth=2,
    mlp=128,
    expert_width=64,
    expert_mlp=128,
    heads=4,
    head_dim=16,
    action_dim=16,
    state_dim=16,
    horizon=10,
    max_token_len=48,
    value_widths=(128, 64),
    noise_widths=(64, 32),
)
_SMALL = replace(
    _TINY,
    image_size=112,
    vision_width=256,
    vision_depth=6,
    vision_heads=8,
    vision_mlp=1024,
    width=256,
    depth=6,
    mlp=1024,
    expert_width=256,
    expert_mlp=1024,
    heads=8,
    head_dim=32,
    value_widths=(256, 128),
)

VARIANTS: dict[Variant, Architecture] = {
    "tiny-pi0": _TINY,
    "tiny-pi05": replace(_TINY, family="pi05", max_token_len=200),
    "small-pi0": _SMALL,
    "small-pi05": replace(_SMALL, family="pi05", max_token_len=200),
    "pi0": Architecture(),
    "pi05": Architecture(
        family="pi05", horizon=10, max_token_len=200, value_widths=(1024, 512, 256)
    ),
}
FITTED: frozenset[Variant] = frozenset({"tiny-pi0", "tiny-pi05", "small-pi0", "small-pi05"})
"""Variants without published weights: picture, state and action sizes follow the env."""
