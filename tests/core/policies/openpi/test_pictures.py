from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812

from joyrlinf_core.policies.openpi import pictures


def test_patches_equal_a_convolution():
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (3, 16, 16, 3), generator=generator, dtype=torch.uint8)
    weight = torch.randn((7, 3, 4, 4), generator=generator)
    pixels = images.permute(0, 3, 1, 2).float() / 255 * 2 - 1
    expected = F.conv2d(pixels, weight, stride=4).flatten(2).transpose(1, 2)
    patches = pictures.to_patches(images, 16, 4)
    torch.testing.assert_close(patches @ weight.flatten(1).T, expected, atol=1e-4, rtol=1e-5)


def test_fit_keeps_what_fits():
    images = torch.zeros((1, 8, 8, 3), dtype=torch.uint8)
    assert pictures.fit(images, 8) is images


def test_fit_keeps_proportions_and_pads_black():
    images = torch.full((1, 10, 20, 3), 200, dtype=torch.uint8)
    fitted = pictures.fit(images, 8)
    assert fitted.shape == (1, 8, 8, 3)
    assert fitted.dtype == torch.uint8
    assert (fitted[0, 2:6] == 200).all()
    assert not fitted[0, :2].any()
    assert not fitted[0, 6:].any()
    assert (pictures.to_patches(images, 8, 4).amin() == -1).all()
