from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812

from joyrlinf_core.policies.openpi import activation


def test_equals_tanh_gelu():
    x = torch.randn(4, 5, 12) * 4
    gate, up = x.chunk(2, dim=-1)
    expected = F.gelu(gate, approximate="tanh") * up
    torch.testing.assert_close(activation.gated_gelu(x), expected, atol=1e-5, rtol=1e-6)


def test_gradient():
    x = torch.randn(3, 4, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(activation._GatedGelu.apply, (x,))


def test_other_types_take_the_plain_path():
    x = torch.randn(2, 8).bfloat16()
    assert activation.gated_gelu(x).dtype == torch.bfloat16
