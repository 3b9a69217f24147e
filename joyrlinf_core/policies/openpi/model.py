"""`OpenPiModel`: pictures and prompt -> keys and values; noisy actions -> velocity.

Letters: b rows, V cameras, L prompt tokens, n denoise points of one row, H horizon, A action width,
W width of the expert. Times run from 1 (noise) to 0 (data); the velocity is noise - action.

Calls, in order; the first three once per observation, the last two once per denoise step:

    cache = model.prefix(images, tokens, counts)        language model over pictures and prompt
    cache = model.with_state(cache, state)              Pi0: the state token; Pi0.5: nothing
    condition = model.condition(times)                  what the expert needs of all times
    features = model.features(cache, x, condition[i])   expert over the noisy actions x
    velocity = model.velocity(features)                 to step x; `noise`, `value` read them too

Action tokens never write into the cache, so one serves every denoise step. Pi0's state token sees
the prefix and itself, neither actions nor time: its keys and values are computed once as well and
stand behind the prefix, so that action tokens need no mask.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from transformers import SiglipVisionConfig, SiglipVisionModel

from joyrlinf_core.policies.openpi.architecture import Architecture
from joyrlinf_core.policies.openpi.gemma import Gemma, KeyValues, Modulation, Rotation, rotation
from joyrlinf_core.policies.openpi.pictures import to_patches

SHORTEST_PERIOD, LONGEST_PERIOD = 4e-3, 4.0


@dataclass(frozen=True)
class PrefixCache:
    """What action tokens attend to: keys and values of pictures, prompt and Pi0's state.

    Attributes:
        layers: Keys and values of each layer, s tokens.
        length: Valid tokens: int where every row has as many, else int64 [b].
        mask: bool [b, 1, 1, s], False at padding; None without padding.
        factors: Rotary factors of the H action tokens that follow.
    """

    layers: list[KeyValues]
    length: int | Tensor
    mask: Tensor | None
    factors: Rotation


class Head(nn.Module):
    """A small MLP in float32.

    Args:
        widths: Input width, hidden widths, output width.
        activation: Between its layers.
    """

    def __init__(self, widths: tuple[int, ...], activation: type[nn.Module]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), activation()]
        self.mlp = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        """Return [..., widths[-1]] of [..., widths[0]]."""
        return self.mlp(x)


class OpenPiModel(nn.Module):
    """Weights of Pi0 or Pi0.5.

    Args:
        architecture: Sizes.
        value_head: Add a value head on the expert's features.
        noise_head: Add a head for the noise level of `flow_noise`.
    """

    vision: Any
    """SigLIP tower of transformers: embeddings, encoder, post_layernorm."""

    def __init__(
        self, architecture: Architecture, *, value_head: bool = False, noise_head: bool = False
    ) -> None:
        super().__init__()
        self.architecture = a = architecture
        self.autocast_dtype: torch.dtype | None = None
        self.frozen_prefix = False
        self.vision = _vision_tower(a)
        self.mm = nn.Linear(a.vision_width, a.width)
        self.embed = nn.Embedding(a.vocab_size, a.width)
        pi05 = a.family == "pi05"
        stack = partial(
            Gemma, depth=a.depth, heads=a.heads, kv_heads=a.kv_heads, head_dim=a.head_dim
        )
        self.vlm = stack(width=a.width, mlp=a.mlp, prefix_only=True)
        self.expert = stack(width=a.expert_width, mlp=a.expert_mlp, adaptive=pi05)
        self.action_in_proj = nn.Linear(a.action_dim, a.expert_width)
        self.action_out_proj = nn.Linear(a.expert_width, a.action_dim)
        if pi05:
            self.time_mlp_in = nn.Linear(a.expert_width, a.expert_width)
            self.time_mlp_out = nn.Linear(a.expert_width, a.expert_width)
        else:
            self.state_proj = nn.Linear(a.state_dim, a.expert_width)
            self.action_time_mlp_in = nn.Linear(2 * a.expert_width, a.expert_width)
            self.action_time_mlp_out = nn.Linear(a.expert_width, a.expert_width)
        self.value_head = (
            Head((a.expert_width, *a.value_widths, 1), nn.ReLU) if value_head else None
        )
        self.noise_head = (
            Head((a.expert_width, *a.noise_widths, a.action_dim), nn.Tanh) if noise_head else None
        )

    def autocast(self, *, enabled: bool = True) -> AbstractContextManager[object]:
        """Return the context of the low-precision part, or, with `enabled` off, of an fp32 part."""
        if self.autocast_dtype is None:
            return nullcontext()
        device = self.action_in_proj.weight.device.type
        return torch.autocast(device, self.autocast_dtype, enabled=enabled)

    def prefix(self, images: Tensor, tokens: Tensor, counts: Tensor) -> PrefixCache:
        """Encode pictures and prompt; `with_state` comes next.

        Args:
            images: uint8 [b, V, h, w, 3]. A camera that is not there is left out, which equals
                masking it.
            tokens: int [b, L], padded on the right.
            counts: int [b], valid tokens of each prompt.
        """
        if self.frozen_prefix:
            with torch.no_grad():
                return self._prefix(images, tokens, counts)
        return self._prefix(images, tokens, counts)

    def _prefix(self, images: Tensor, tokens: Tensor, counts: Tensor) -> PrefixCache:
        b, cameras = images.shape[:2]
        shortest, longest = torch.stack(torch.aminmax(counts)).tolist()
        tokens = tokens[:, :longest].long()
        with self.autocast():
            pictures = self.mm(self._see(images.flatten(0, 1))).view(
                b, -1, self.embed.weight.shape[1]
            )
            text = self.embed(tokens).float() * self.embed.weight.shape[1] ** 0.5
            x = torch.cat((pictures.float(), text), dim=1)
            seen = cameras * self.architecture.tokens_per_image
            positions = torch.arange(x.shape[1], device=x.device)
            mask = None
            length: int | Tensor = seen + longest
            if shortest != longest:
                length = counts.long() + seen
                mask = (positions < length[:, None])[:, None, None, :]
            factors = rotation(positions, self.architecture.head_dim)
            layers = self.vlm.keys_values(x, factors, mask=mask)
        return PrefixCache(layers, length, mask, self._factors(length, device=x.device))

    def _see(self, images: Tensor) -> Tensor:
        """Return the vision features of uint8 [m, h, w, 3]: [m, tokens, vision width]."""
        a = self.architecture
        embeddings = self.vision.embeddings
        patches = to_patches(images, a.image_size, a.patch_size)
        # The patch convolution has no overlap: as a matrix product it is several times faster.
        weight = embeddings.patch_embedding.weight.flatten(1)
        x = F.linear(patches, weight, embeddings.patch_embedding.bias)
        x = x.float() + embeddings.position_embedding.weight
        hidden = self.vision.encoder(inputs_embeds=x).last_hidden_state
        return self.vision.post_layernorm(hidden)

    def with_state(self, cache: PrefixCache, state: Tensor) -> PrefixCache:
        """Return the cache with Pi0's state token behind it; Pi0.5's as it is.

        Args:
            cache: From `prefix`.
            state: float32 [b, state width], normalised and padded.
        """
        if self.architecture.family == "pi05":
            return cache
        with self.autocast(enabled=False):
            token = self.state_proj(state).unsqueeze(1)
        mask = cache.mask
        if mask is not None:
            mask = F.pad(mask, (0, 1), value=True)
        # The state takes the first position behind the prefix.
        first = Rotation(*(part[..., :1, :, :] for part in cache.factors))
        with self.autocast():
            layers = self.expert.keys_values(token, first, cache.layers, mask)
        length = cache.length + 1
        return PrefixCache(layers, length, mask, self._factors(length, device=token.device))

    def condition(self, times: Tensor) -> Tensor:
        """Return what the expert needs of the times float32 [m].

        Rows of it are chosen by index: Pi0 float32 [m, W] (time part of the action embedding),
        Pi0.5 float32 [m, norms, 3W].
        """
        width = self.action_in_proj.weight.shape[0]
        with self.autocast(enabled=False):
            embedding = embed_time(times, width)
            if self.architecture.family == "pi0":
                layer = self.action_time_mlp_in
                return F.linear(embedding, layer.weight[:, width:], layer.bias)
            hidden = F.silu(self.time_mlp_in(embedding))
            return self.expert.conditions(F.silu(self.time_mlp_out(hidden)))

    def features(self, cache: PrefixCache, x: Tensor, condition: Tensor) -> Tensor:
        """Run the expert at n denoise points of each row.

        The points of a row share its cache and do not see each other.

        Args:
            cache: From `with_state`.
            x: float32 [b, n, H, A], noisy actions.
            condition: Rows of `condition`, [b or 1, n, ...].

        Returns:
            float32 [b, n, H, W].
        """
        b, n, horizon, _ = x.shape
        width = self.action_in_proj.weight.shape[0]
        modulations = None
        with self.autocast(enabled=False):
            tokens = self.action_in_proj(x)
            if self.architecture.family == "pi0":
                weight = self.action_time_mlp_in.weight[:, :width]
                hidden = F.linear(tokens, weight) + condition.unsqueeze(2)
                tokens = self.action_time_mlp_out(F.silu(hidden))
            else:
                if n > 1:
                    condition = condition.repeat_interleave(horizon, dim=1)
                modulations = [Modulation(*part.chunk(3, dim=-1)) for part in condition.unbind(2)]
        factors = cache.factors
        if n > 1:
            factors = Rotation(*(torch.cat([part] * n, dim=-3) for part in factors))
        with self.autocast():
            out = self.expert(
                tokens.flatten(1, 2),
                factors,
                cache.layers,
                _points_mask(cache, n, horizon),
                modulations,
            )
        return out.float().view(b, n, horizon, width)

    def velocity(self, features: Tensor) -> Tensor:
        """Return the velocity float32 [..., A] of features [..., W]."""
        with self.autocast(enabled=False):
            return self.action_out_proj(features)

    def noise(self, features: Tensor) -> Tensor:
        """Return the noise head's output [..., A] for features [..., W]; needs a noise head."""
        assert self.noise_head is not None
        return self.noise_head(features)

    def value(self, features: Tensor) -> Tensor:
        """Return the value [...] of mean features [..., W]; needs a value head."""
        assert self.value_head is not None
        return self.value_head(features).squeeze(-1)

    def _factors(self, length: int | Tensor, *, device: torch.device) -> Rotation:
        """Return the rotary factors of H positions behind `length` tokens."""
        steps = torch.arange(self.architecture.horizon, device=device)
        positions = steps + (length if isinstance(length, int) else length[:, None])
        return rotation(positions, self.architecture.head_dim)


def embed_time(times: Tensor, width: int) -> Tensor:
    """Return sines, then cosines of the times [m] at log-spaced periods: float32 [m, width]."""
    share = torch.linspace(0.0, 1.0, width // 2, dtype=torch.float64, device=times.device)
    period = SHORTEST_PERIOD * (LONGEST_PERIOD / SHORTEST_PERIOD) ** share
    angle = times.double()[:, None] * (2 * torch.pi / period)
    return torch.cat((angle.sin(), angle.cos()), dim=-1).float()


def _points_mask(cache: PrefixCache, n: int, horizon: int) -> Tensor | None:
    """Return which keys action tokens see: the valid part of the cache and their own block."""
    if n == 1:
        return None if cache.mask is None else F.pad(cache.mask, (0, horizon), value=True)
    keys = cache.layers[0].keys
    block = torch.arange(n, device=keys.device).repeat_interleave(horizon)
    own = (block[:, None] == block[None, :])[None, None]
    size = keys.shape[2]
    if cache.mask is None:
        before = own.new_ones((1, 1, n * horizon, size))
    else:
        before = cache.mask.expand(-1, -1, n * horizon, -1)
    return torch.cat((before, own.expand(before.shape[0], -1, -1, -1)), dim=-1)


def _vision_tower(architecture: Architecture) -> nn.Module:
    """Return the SigLIP tower without its pooling head."""
    config = SiglipVisionConfig(
        hidden_size=architecture.vision_width,
        intermediate_size=architecture.vision_mlp,
        num_hidden_layers=architecture.vision_depth,
        num_attention_heads=architecture.vision_heads,
        image_size=architecture.image_size,
        patch_size=architecture.patch_size,
        hidden_act="gelu_pytorch_tanh",
        attention_dropout=0.0,
        layer_norm_eps=1e-6,
        vision_use_head=False,
    )
    model = SiglipVisionModel(config)
    # Older releases wrap the tower once more.
    return getattr(model, "vision_model", model)
