"""Pictures as the vision tower takes them."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812
from torch import Tensor


def fit(images: Tensor, size: int) -> Tensor:
    """Scale pictures into a square, keeping their proportions, with black borders.

    Args:
        images: uint8 [m, h, w, 3].
        size: Side of the square in pixels.

    Returns:
        uint8 [m, size, size, 3]; the input itself where it already fits.
    """
    height, width = images.shape[1:3]
    if height == width == size:
        return images
    scale = size / max(height, width)
    rows, columns = max(int(height * scale), 1), max(int(width * scale), 1)
    planes = images.permute(0, 3, 1, 2).float()
    scaled = F.interpolate(
        planes, (rows, columns), mode="bilinear", align_corners=False, antialias=True
    )
    top, left = (size - rows) // 2, (size - columns) // 2
    padded = F.pad(scaled, (left, size - columns - left, top, size - rows - top))
    return padded.round().clamp(0, 255).to(images.dtype).permute(0, 2, 3, 1)


def to_patches(images: Tensor, size: int, patch: int) -> Tensor:
    """Cut pictures into patches in the order of a patch convolution's weight.

    Args:
        images: uint8 [m, h, w, 3].
        size: Side of the model's picture in pixels.
        patch: Side of a patch in pixels.

    Returns:
        float32 [m, patches, 3 * patch * patch] in [-1, 1], patches row by row.
    """
    m, grid = images.shape[0], size // patch
    cut = fit(images, size).reshape(m, grid, patch, grid, patch, 3).permute(0, 1, 3, 5, 2, 4)
    # Moving bytes first is cheaper than moving floats.
    return cut.reshape(m, grid * grid, 3 * patch * patch).float().mul_(2 / 255).sub_(1)
