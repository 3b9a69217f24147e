"""What a GR00T N1.5 stores and costs, computed from its sizes alone. No torch.

Letters: P backbone tokens (pictures and prompt, padded), n tokens of the action head. FLOPs count a
multiply-add as two.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from joyrlinf_core.config.schema.footprint import Footprint, TensorSpec
from joyrlinf_core.policies.gr00t.architecture import Architecture

if TYPE_CHECKING:
    from joyrlinf_core.config.schema.env import EnvConfig
    from joyrlinf_core.policies.gr00t.config import Gr00tConfig


@dataclass(frozen=True)
class Weights:
    """Weights by part.

    Attributes:
        vision: Vision tower and projector.
        embed: Token embedding.
        language: Layers of the language model and its final norm.
        mixer: Norm and self-attention blocks between backbone and action head.
        head: Diffusion transformer, encoders, decoder, learned tokens.
        extra: Value and noise head.
        unit: Largest unit that is sharded by itself.
    """

    vision: int
    embed: int
    language: int
    mixer: int
    head: int
    extra: int
    unit: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.vision + self.embed + self.language + self.mixer + self.head + self.extra


def count_weights(a: Architecture, *, value_inputs: int = 0, noise_head: bool = False) -> Weights:
    """Count the weights.

    Args:
        a: Sizes.
        value_inputs: Width that the value head reads; 0 has none.
        noise_head: Whether there is a noise head.
    """
    w = a.vision_width
    layer = 4 * _linear(w, w) + _linear(w, a.vision_mlp) + _linear(a.vision_mlp, w) + 4 * w
    stem = (3 * a.patch_size**2 + 1) * w + a.tokens_per_image * w + 2 * w
    projector = _linear(w, a.width)
    language_layer = _language_matrices(a) + 2 * a.width + 2 * a.head_dim
    mixer_layer = _block(a.width, a.width) + 4 * a.width
    cross, own = (
        _block(a.head_width, context) + _linear(a.head_width, 2 * a.head_width)
        for context in (a.width, a.head_width)
    )
    encoders = _encoders(a)
    ends = (
        _linear(a.time_features, a.head_width)
        + _linear(a.head_width, a.head_width)
        + _linear(a.head_width, 2 * a.head_width)
        + _linear(a.head_width, a.head_output)
        + (a.future_tokens + a.max_positions) * a.head_width
    )
    extra = _mlp(value_inputs, *a.value_widths, 1) if value_inputs else 0
    extra += _mlp(a.head_output, *a.noise_widths, a.action_dim) if noise_head else 0
    embed = a.vocab_size * a.width
    return Weights(
        vision=a.vision_depth * layer + stem + projector,
        embed=embed,
        language=a.depth * language_layer + a.width,
        mixer=a.mixer_depth * mixer_layer + 2 * a.width,
        head=a.head_depth // 2 * (cross + own) + encoders + ends,
        extra=extra,
        unit=max(
            layer,
            language_layer,
            mixer_layer,
            cross,
            stem + projector + embed + a.width + 2 * a.width + encoders + ends + extra,
        ),
    )


@dataclass(frozen=True)
class Work:
    """FLOPs of one row.

    Attributes:
        vision: Tower and projector, all cameras.
        language: Language model over P tokens.
        context: Self-attention blocks, and keys and values of the layers that read their output.
        step: Diffusion transformer over one denoise point.
    """

    vision: float
    language: float
    context: float
    step: float


def count_work(a: Architecture, *, cameras: int, tokens: int) -> Work:
    """Count the FLOPs of one row with `tokens` backbone tokens."""
    size, w = a.tokens_per_image, a.vision_width
    layer = 2 * size * (4 * w**2 + 2 * w * a.vision_mlp) + 4 * size**2 * w
    ends = 2 * size * w * (3 * a.patch_size**2 + a.width)
    # Causal: half of the square.
    attention = 2 * tokens**2 * a.heads * a.head_dim
    language = a.depth * (2 * tokens * _language_matrices(a) + attention)
    mixer = a.mixer_depth * (2 * tokens * 12 * a.width**2 + 4 * tokens**2 * a.width)
    half = a.head_depth // 2
    keys = half * 2 * tokens * 2 * a.width * a.head_width
    n = 1 + a.future_tokens + a.horizon
    square = a.head_width**2
    cross = 2 * n * 10 * square + 4 * n * tokens * a.head_width
    own = 2 * n * 12 * square + 4 * n**2 * a.head_width
    coders = (a.action_dim + 3 * a.head_width) * a.head_width * a.horizon
    coders += a.head_width * a.head_output * n
    return Work(
        vision=float(cameras * (a.vision_depth * layer + ends)),
        language=float(language),
        context=float(mixer + keys),
        step=float(half * (cross + own) + 2 * coders),
    )


def footprint(config: Gr00tConfig, env: EnvConfig, *, gradient_checkpointing: bool) -> Footprint:
    """Return what a policy of this config stores and costs in `env`."""
    a = Architecture()
    value_inputs = a.width if config.use_vlm_value else a.width + a.head_width
    weights = count_weights(
        a,
        value_inputs=value_inputs if config.add_value_head else 0,
        noise_head=config.has_entropy,
    )
    cameras, tokens = env.image_shape[0], config.padding_value
    work = count_work(a, cameras=cameras, tokens=tokens)
    points = config.denoising_steps if config.joint_logprob else 1
    passes = 4 if gradient_checkpointing else 3
    trainable = weights.mixer + weights.head + weights.extra
    trainable += weights.language + weights.embed if config.tune_llm else 0
    trainable += weights.vision if config.tune_visual else 0
    # A gradient that reaches the vision tower passes through the language model.
    vision = passes if config.tune_visual else 1
    language = passes if config.tune_visual or config.tune_llm else 1
    update = vision * work.vision + language * work.language
    update += passes * (work.context + points * work.step)
    replay = {
        "x": TensorSpec((points, a.horizon, a.action_dim), "float32"),
        "x_next": TensorSpec((points, config.num_action_chunks, _env_dim(config, env)), "float32"),
    }
    if not config.joint_logprob:
        replay["step"] = TensorSpec((), "int64")
    return Footprint(
        parameters=weights.total,
        trainable=trainable,
        sharding_unit=weights.unit,
        inputs={
            "images": TensorSpec(env.image_shape, "uint8"),
            "state": TensorSpec((env.state_dim,), "float32"),
            "tokens": TensorSpec((tokens,), "int32"),
            "token_count": TensorSpec((), "int32"),
        },
        replay=replay,
        predict_flops=work.vision
        + work.language
        + work.context
        + config.denoising_steps * work.step,
        update_flops=update,
        predict_bytes=_context_bytes(a, tokens) + tokens * (10 * a.width + 6 * a.mlp),
        activation_bytes=_kept(config, a, cameras, points, checkpointing=gradient_checkpointing),
    )


def _env_dim(config: Gr00tConfig, env: EnvConfig) -> int:
    return config.action_dim or env.action_dim


def _linear(before: int, after: int) -> int:
    return (before + 1) * after


def _mlp(*widths: int) -> int:
    return sum(_linear(before, after) for before, after in pairwise(widths))


def _block(width: int, context: int) -> int:
    """Return the weights of attention to a context and an MLP of four times the width."""
    attention = 2 * _linear(width, width) + 2 * _linear(context, width)
    return attention + _linear(width, 4 * width) + _linear(4 * width, width)


def _language_matrices(a: Architecture) -> int:
    return a.width * (2 * a.heads + 2 * a.kv_heads) * a.head_dim + 3 * a.width * a.mlp


def _encoders(a: Architecture) -> int:
    """Return the weights that exist once an embodiment: state, action in, action out."""
    w = a.head_width
    state = _linear(a.state_dim, a.hidden) + _linear(a.hidden, w)
    action = _linear(a.action_dim, w) + _linear(2 * w, w) + _linear(w, w)
    decoder = _linear(a.head_output, a.hidden) + _linear(a.hidden, a.action_dim)
    return a.embodiments * (state + action + decoder)


def _context_bytes(a: Architecture, tokens: int) -> int:
    """Return the bytes of the keys and values that the action head reads, in bf16."""
    return a.head_depth // 2 * tokens * 2 * a.head_width * 2


def _kept(
    config: Gr00tConfig, a: Architecture, cameras: int, points: int, *, checkpointing: bool
) -> int:
    """Return what the update keeps of one row: bf16 inputs of products, float32 residuals."""
    tokens = config.padding_value
    n = points * (1 + a.future_tokens + a.horizon)
    mixer = tokens * _kept_by_token(a.width, 4 * a.width)
    head = n * _kept_by_token(a.head_width, 4 * a.head_width)
    language = tokens * (12 * a.width + 8 * a.heads * a.head_dim + 6 * a.mlp)
    seen = cameras * a.tokens_per_image
    vision = seen * (24 * a.vision_width + 4 * a.vision_mlp)
    parts = [
        (a.mixer_depth, tokens * 4 * a.width, mixer),
        (a.head_depth, n * 4 * a.head_width, head),
    ]
    if config.tune_llm or config.tune_visual:
        parts.append((a.depth, tokens * 4 * a.width, language))
    if config.tune_visual:
        parts.append((a.vision_depth, seen * 4 * a.vision_width, vision))
    context = _context_bytes(a, tokens)
    if checkpointing:
        inputs = sum(depth * size for depth, size, _ in parts)
        return context + inputs + max(peak for _, _, peak in parts)
    return context + sum(depth * layer for depth, _, layer in parts)


def _kept_by_token(width: int, mlp: int) -> int:
    """Return what a block keeps of one token."""
    return 24 * width + 4 * mlp
