"""Gemma transformer layers with an explicit key/value list, rotary positions and adaptive norms.

Letters: b rows, t tokens, s keys, h query heads, g key heads, d head width, w layer width.
The residual stream stays float32; under autocast the matrix products run in the lower type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from joyrlinf_core.policies.openpi.activation import gated_gelu

ROPE_THETA = 10000.0
NORM_EPS = 1e-6


class KeyValues(NamedTuple):
    """Keys (already rotated) and values of one layer, each [b, g, s, d]."""

    keys: Tensor
    values: Tensor


class Rotation(NamedTuple):
    """Rotary factors, each float32 [t, 1, d] or [b, t, 1, d]; `sine` carries the half's sign."""

    cosine: Tensor
    sine: Tensor


class Modulation(NamedTuple):
    """What an adaptive norm does, each float32 [b or 1, t or 1, w]; `scale` includes the 1."""

    scale: Tensor
    shift: Tensor
    gate: Tensor


def rotation(positions: Tensor, head_dim: int) -> Rotation:
    """Return the rotary factors of integer `positions` [t] or [b, t]."""
    half = torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float32) / head_dim
    angle = positions[..., None].to(torch.float32) * ROPE_THETA**-half
    cosine, sine = angle.cos(), angle.sin()
    return Rotation(
        torch.cat((cosine, cosine), dim=-1).unsqueeze(-2),
        torch.cat((-sine, sine), dim=-1).unsqueeze(-2),
    )


def rotate(x: Tensor, factors: Rotation) -> Tensor:
    """Apply rotary positions to [b, t, heads, d]; halves, not pairs, are rotated together."""
    wide = x.float()
    swapped = wide.roll(x.shape[-1] // 2, dims=-1)
    return torch.addcmul(wide * factors.cosine, swapped, factors.sine).to(x.dtype)


def attend(query: Tensor, past: KeyValues, mask: Tensor | None) -> Tensor:
    """Attend with grouped query heads.

    Query heads that share a key head become further query rows, so that neither keys are copied
    per head nor a mask is needed for it.

    Args:
        query: [b, t, h, d].
        past: Keys and values, each [b, g, s, d].
        mask: bool [b or 1, 1, t or 1, s], True where a query may look; None: everywhere.

    Returns:
        [b, t, h * d].
    """
    b, t, h, d = query.shape
    kv_heads = past.keys.shape[1]
    group = h // kv_heads
    rows = query.view(b, t, kv_heads, group, d).transpose(1, 2).reshape(b, kv_heads, t * group, d)
    if mask is not None and mask.shape[2] != 1:
        mask = mask.repeat_interleave(group, dim=2)
    out = F.scaled_dot_product_attention(rows, past.keys, past.values, attn_mask=mask)
    return out.view(b, kv_heads, t, group, d).transpose(1, 2).reshape(b, t, h * d)


class RmsNorm(nn.Module):
    """Root-mean-square norm with the weight stored as its distance from one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return float32 of x's shape."""
        return F.rms_norm(x.float(), x.shape[-1:], 1.0 + self.weight.float(), NORM_EPS)


class AdaptiveRmsNorm(nn.Module):
    """Root-mean-square norm whose scale, shift and gate come from a condition."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, 3 * width)

    def condition(self, condition: Tensor) -> Tensor:
        """Return scale (with the 1 added), shift and gate, side by side: [m, w] -> [m, 3w]."""
        scale, shift_gate = self.dense(condition).split(
            (condition.shape[-1], 2 * condition.shape[-1]), dim=-1
        )
        return torch.cat((1.0 + scale, shift_gate), dim=-1)

    def forward(self, x: Tensor, modulation: Modulation) -> Tensor:
        """Return float32 of x's shape."""
        normed = F.rms_norm(x.float(), x.shape[-1:], None, NORM_EPS)
        return torch.addcmul(modulation.shift, normed, modulation.scale)


class GemmaLayer(nn.Module):
    """One layer: attention over `past` and itself, then a gated MLP.

    Query, key and value weights lie in one matrix, as do gate and up. `keys_only` splits the query
    part off: of the language model's last layer only keys and values are ever read, so everything
    else there never gets a gradient.
    """

    def __init__(
        self,
        *,
        width: int,
        mlp: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        adaptive: bool,
        keys_only: bool = False,
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.adaptive, self.keys_only = adaptive, keys_only
        norm = AdaptiveRmsNorm if adaptive else RmsNorm
        self.input_layernorm = norm(width)
        if keys_only:
            self.q_proj = nn.Linear(width, heads * head_dim, bias=False)
            self.kv_proj = nn.Linear(width, 2 * kv_heads * head_dim, bias=False)
        else:
            self.qkv_proj = nn.Linear(width, (heads + 2 * kv_heads) * head_dim, bias=False)
        self.o_proj = nn.Linear(heads * head_dim, width, bias=False)
        self.post_attention_layernorm = norm(width)
        self.gate_up_proj = nn.Linear(width, 2 * mlp, bias=False)
        self.down_proj = nn.Linear(mlp, width, bias=False)

    def unused(self) -> list[nn.Parameter]:
        """Return the parameters that no output depends on."""
        if not self.keys_only:
            return []
        modules = (self.q_proj, self.o_proj, self.gate_up_proj, self.down_proj)
        used = [parameter for module in modules for parameter in module.parameters()]
        return used + list(self.post_attention_layernorm.parameters())

    def forward(
        self,
        x: Tensor,
        factors: Rotation,
        past: KeyValues | None = None,
        mask: Tensor | None = None,
        modulations: tuple[Modulation, Modulation] | None = None,
        *,
        only_keys: bool = False,
    ) -> tuple[Tensor, KeyValues]:
        """Run the layer.

        Args:
            x: float32 [b, t, w].
            factors: Rotary factors of the t tokens.
            past: Keys and values in front of the tokens' own.
            mask: As in `attend`, over past and own keys.
            modulations: Of the two norms, for an adaptive layer.
            only_keys: Stop once the keys and values are there; x comes back unchanged.

        Returns:
            Output [b, t, w], and keys and values of past and own tokens.
        """
        first, second = modulations or (None, None)
        normed = self._norm(self.input_layernorm, x, first)
        query, own = self._project(normed, factors, only_keys=only_keys)
        if past is not None:
            own = KeyValues(
                torch.cat((past.keys, own.keys), dim=2), torch.cat((past.values, own.values), dim=2)
            )
        if query is None:
            return x, own
        x = _residual(x, self.o_proj(attend(query, own, mask)), first)
        normed = self._norm(self.post_attention_layernorm, x, second)
        hidden = gated_gelu(self.gate_up_proj(normed))
        return _residual(x, self.down_proj(hidden), second), own

    def _norm(self, norm: nn.Module, x: Tensor, modulation: Modulation | None) -> Tensor:
        return norm(x) if modulation is None else norm(x, modulation)

    def _project(
        self, x: Tensor, factors: Rotation, *, only_keys: bool
    ) -> tuple[Tensor | None, KeyValues]:
        """Return rotated queries [b, t, h, d] (None when not wanted), keys and values."""
        query_heads = 0 if only_keys else self.heads
        if self.keys_only:
            projected = self.kv_proj(x)
        elif only_keys:
            projected = F.linear(x, self.qkv_proj.weight[self.heads * self.head_dim :])
        else:
            projected = self.qkv_proj(x)
        heads = projected.unflatten(-1, (-1, self.head_dim))
        rotated = rotate(heads[..., : query_heads + self.kv_heads, :], factors)
        keys = rotated[..., query_heads:, :].transpose(1, 2)
        values = heads[..., query_heads + self.kv_heads :, :].transpose(1, 2)
        query = None if only_keys else rotated[..., :query_heads, :]
        return query, KeyValues(keys, values)


class Gemma(nn.Module):
    """A stack of layers with its final norm.

    Args:
        width: w.
        depth: Number of layers.
        mlp: Hidden width of the MLPs.
        heads: h.
        kv_heads: g.
        head_dim: d.
        adaptive: Norms take a condition.
        prefix_only: The stack is only asked for keys and values.
    """

    layers: Any
    """`nn.ModuleList` of `GemmaLayer`, which type checkers take for plain modules."""

    def __init__(
        self,
        *,
        width: int,
        depth: int,
        mlp: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        adaptive: bool = False,
        prefix_only: bool = False,
    ) -> None:
        super().__init__()
        self.gradient_checkpointing = False
        self.layers = nn.ModuleList(
            GemmaLayer(
                width=width,
                mlp=mlp,
                heads=heads,
                kv_heads=kv_heads,
                head_dim=head_dim,
                adaptive=adaptive,
                keys_only=prefix_only and index == depth - 1,
            )
            for index in range(depth)
        )
        self.norm = AdaptiveRmsNorm(width) if adaptive else RmsNorm(width)

    def keys_values(
        self,
        x: Tensor,
        factors: Rotation,
        past: Sequence[KeyValues] | None = None,
        mask: Tensor | None = None,
    ) -> list[KeyValues]:
        """Return each layer's keys and values of `past` and the tokens x [b, t, w].

        Whatever of the last layer is not needed for that is not computed.
        """
        collected = []
        last = len(self.layers) - 1
        for index, layer in enumerate(self.layers):
            before = None if past is None else past[index]
            x, own = self._run(layer, x, factors, before, mask, None, only_keys=index == last)
            collected.append(own)
        return collected

    def forward(
        self,
        x: Tensor,
        factors: Rotation,
        past: Sequence[KeyValues],
        mask: Tensor | None,
        modulations: Sequence[Modulation] | None,
    ) -> Tensor:
        """Return the normed output of tokens x.

        Args:
            x: float32 [b, t, w].
            factors: Rotary factors of the t tokens.
            past: Per layer, keys and values in front of the tokens.
            mask: As in `attend`.
            modulations: Two per layer and one for the final norm, whose gate is not used; None for
                a stack without a condition.

        Returns:
            float32 [b, t, w].
        """
        for index, layer in enumerate(self.layers):
            pair = modulations and (modulations[2 * index], modulations[2 * index + 1])
            x, _ = self._run(layer, x, factors, past[index], mask, pair)
        return self.norm(x) if modulations is None else self.norm(x, modulations[-1])

    def conditions(self, condition: Tensor) -> Tensor:
        """Return the modulations of every norm for a condition [m, w]: [m, 2 * depth + 1, 3w]."""
        norms: list[Any] = [self.norm]
        for layer in reversed(self.layers):
            norms[:0] = (layer.input_layernorm, layer.post_attention_layernorm)
        return torch.stack([norm.condition(condition) for norm in norms], dim=1)

    def _run(
        self, layer: nn.Module, *arguments: object, only_keys: bool = False
    ) -> tuple[Tensor, KeyValues]:
        if self.gradient_checkpointing and torch.is_grad_enabled():
            return checkpoint(layer, *arguments, only_keys=only_keys, use_reentrant=False)
        return layer(*arguments, only_keys=only_keys)


def _residual(x: Tensor, branch: Tensor, modulation: Modulation | None) -> Tensor:
    return x + branch if modulation is None else x + modulation.gate * branch
