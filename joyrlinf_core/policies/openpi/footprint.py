"""What a Pi0 or Pi0.5 stores and costs, computed from its sizes alone. No torch.

Letters: S tokens of pictures and prompt, n action tokens, w width. FLOPs count
a multiply-add as two. Working memory is that of bf16 products with a float32 residual stream, as
`gemma.py` computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from joyrlinf_core.config.schema.footprint import Footprint, TensorSpec
from joyrlinf_core.policies.openpi.architecture import FITTED, Architecture
from joyrlinf_core.policies.tokenizer import ByteTokenizer, estimate_tokens, estimate_vocab_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from joyrlinf_core.config.schema.env import EnvConfig
    from joyrlinf_core.policies.openpi.config import OpenPiConfig
    from joyrlinf_core.policies.openpi.settings import Settings

_STATE_BINS = 256
_TEMPLATE = "Task: , State: ;\nAction: "
_DIGITS = 2
"""Digits of a state number in the prompt, in the mean."""


@dataclass(frozen=True)
class Weights:
    """Weights by part.

    Attributes:
        vision: Vision tower.
        projector: From vision to language model.
        embed: Token embedding.
        vlm: Language model.
        expert: Action expert.
        interface: State, time and action projections.
        heads: Value and noise head.
        unused: Of `vlm`, weights of the last layer that no output depends on.
        unit: Largest unit that is sharded by itself.
    """

    vision: int
    projector: int
    embed: int
    vlm: int
    expert: int
    interface: int
    heads: int
    unused: int
    unit: int

    @property
    def total(self) -> int:
        """All of them."""
        return (
            self.vision
            + self.projector
            + self.embed
            + self.vlm
            + self.expert
            + self.interface
            + self.heads
        )

    def trainable(self, *, expert_only: bool) -> int:
        """Return the weights that get a gradient."""
        head = self.expert + self.interface + self.heads
        return head if expert_only else self.total - self.unused


def count_weights(a: Architecture, *, value_head: bool, noise_head: bool) -> Weights:
    """Count the weights of `OpenPiModel`."""
    pi05 = a.family == "pi05"
    vision_layer = _vision_layer(a)
    stem = 3 * a.patch_size**2 * a.vision_width + a.vision_width
    ends = stem + a.tokens_per_image * a.vision_width + 2 * a.vision_width
    vlm_layer = _matrices(a, a.width, a.mlp) + 2 * a.width
    expert_matrices = _matrices(a, a.expert_width, a.expert_mlp)
    norm = (a.expert_width + 1) * 3 * a.expert_width if pi05 else a.expert_width
    expert_layer = expert_matrices + (0 if pi05 else 2 * norm)
    w = a.expert_width
    interface = _linear(a.action_dim, w) + _linear(w, a.action_dim)
    if pi05:
        interface += 2 * _linear(w, w)
    else:
        interface += _linear(a.state_dim, w) + _linear(2 * w, w) + _linear(w, w)
    heads = _mlp(w, *a.value_widths, 1) if value_head else 0
    heads += _mlp(w, *a.noise_widths, a.action_dim) if noise_head else 0
    projector = _linear(a.vision_width, a.width)
    root = ends + projector + a.vocab_size * a.width + a.width + interface + heads
    root += 0 if pi05 else norm
    keys = 2 * a.kv_heads * a.head_dim * a.width
    return Weights(
        vision=a.vision_depth * vision_layer + ends,
        projector=projector,
        embed=a.vocab_size * a.width,
        vlm=a.depth * vlm_layer + a.width,
        expert=a.depth * expert_matrices + (2 * a.depth + 1) * norm,
        interface=interface,
        heads=heads,
        # Its keys and values, with the norm before them, are all that is read; so is no final norm.
        unused=vlm_layer - keys,
        unit=max(vision_layer, vlm_layer, expert_layer, norm, root),
    )


@dataclass(frozen=True)
class Work:
    """FLOPs of one row.

    Attributes:
        vision: Tower and projector, all cameras.
        prefix: Language model over S tokens.
        step: Action expert over one denoise point.
    """

    vision: float
    prefix: float
    step: float


def count_work(a: Architecture, *, cameras: int, text: int) -> Work:
    """Count the FLOPs of one row.

    Args:
        a: Sizes.
        cameras: Pictures.
        text: Prompt tokens.
    """
    size = a.tokens_per_image
    tokens = cameras * size + text
    past = tokens + (0 if a.family == "pi05" else 1)
    wide = a.heads * a.head_dim
    layer = 2 * size * (4 * a.vision_width**2 + 2 * a.vision_width * a.vision_mlp)
    layer += 4 * size**2 * a.vision_width
    ends = 2 * size * a.vision_width * (3 * a.patch_size**2 + a.width)
    prefix = 2 * tokens * _matrices(a, a.width, a.mlp) + 4 * tokens**2 * wide
    keys = 2 * tokens * 2 * a.kv_heads * a.head_dim * a.width
    n = a.horizon
    step = 2 * n * _matrices(a, a.expert_width, a.expert_mlp) + 4 * n * (past + n) * wide
    return Work(
        vision=float(cameras * (a.vision_depth * layer + ends)),
        prefix=float((a.depth - 1) * prefix + keys),
        step=float(a.depth * step + 4 * n * a.action_dim * a.expert_width),
    )


def footprint(
    config: OpenPiConfig, settings: Settings, env: EnvConfig, *, gradient_checkpointing: bool
) -> Footprint:
    """Return what a policy with these settings stores and costs in `env`."""
    a = settings.architecture
    weights = count_weights(
        a, value_head=config.add_value_head, noise_head=config.noise_method == "flow_noise"
    )
    cameras = env.image_shape[0]
    text = min(prompt_tokens(settings, env), a.max_token_len)
    tokens = cameras * a.tokens_per_image + text
    work = count_work(a, cameras=cameras, text=text)
    points = config.num_steps if config.joint_logprob else 1
    passes = 4 if gradient_checkpointing else 3
    front = work.vision + work.prefix
    update = passes * points * work.step
    update += front if config.train_expert_only else passes * front
    kept = _kept_by_expert(a, tokens, points, checkpointing=gradient_checkpointing)
    if not config.train_expert_only:
        kept += _kept_by_prefix(a, cameras, tokens, checkpointing=gradient_checkpointing)
    chunk = (config.num_action_chunks, settings.action_dim)
    replay = {
        "x": TensorSpec((points, a.horizon, a.action_dim), "float32"),
        "x_next": TensorSpec((points, *chunk), "float32"),
    }
    if not config.joint_logprob:
        replay["step"] = TensorSpec((), "int64")
    return Footprint(
        parameters=weights.total,
        trainable=weights.trainable(expert_only=config.train_expert_only),
        sharding_unit=weights.unit,
        inputs={
            "images": TensorSpec(env.image_shape, "uint8"),
            "state": TensorSpec((env.state_dim,), "float32"),
            "tokens": TensorSpec((a.max_token_len,), "int32"),
            "token_count": TensorSpec((), "int32"),
        },
        replay=replay,
        predict_flops=front + config.num_steps * work.step,
        update_flops=update,
        predict_bytes=_cache_bytes(a, tokens) + tokens * _layer_peak(a),
        activation_bytes=kept,
    )


def prompt_tokens(settings: Settings, env: EnvConfig) -> int:
    """Return about how many tokens the env's longest prompt has, its start token included."""
    if settings.tokenizer == "bytes":
        count = max(len(prompt.encode("utf-8")) for prompt in env.task_prompts)
    else:
        count = max(estimate_tokens(prompt) for prompt in env.task_prompts)
    if not settings.discrete_state_input:
        return count + 2
    numbers = settings.architecture.state_dim if settings.pad_discrete_state else env.state_dim
    if settings.tokenizer == "bytes":
        return 1 + count + len(_TEMPLATE) + numbers * (_DIGITS + 1)
    # Tiny tokenizers hold each number as one token, PaliGemma's splits digits.
    each = _DIGITS if settings.architecture.vocab_size > Architecture().vocab_size // 2 else 1
    return 1 + count + estimate_tokens(_TEMPLATE) + numbers * each


def vocab_size(config: OpenPiConfig, settings: Settings, prompts: Sequence[str]) -> int:
    """Return the rows of a new policy's embedding, an estimate where its tokenizer is not there."""
    if config.variant not in FITTED:
        return settings.architecture.vocab_size
    if settings.tokenizer == "bytes":
        return ByteTokenizer.vocab_size
    if not settings.discrete_state_input:
        return estimate_vocab_size(prompts)
    scaffolds = [f"Task: {prompt}, State: ;\nAction: " for prompt in prompts]
    return estimate_vocab_size(scaffolds, symbols=_STATE_BINS)


def _linear(before: int, after: int) -> int:
    return (before + 1) * after


def _mlp(*widths: int) -> int:
    return sum(_linear(before, after) for before, after in pairwise(widths))


def _vision_layer(a: Architecture) -> int:
    w = a.vision_width
    return 4 * _linear(w, w) + _linear(w, a.vision_mlp) + _linear(a.vision_mlp, w) + 4 * w


def _matrices(a: Architecture, width: int, mlp: int) -> int:
    """Return the weights of a Gemma layer without its norms."""
    return width * (2 * a.heads + 2 * a.kv_heads) * a.head_dim + 3 * width * mlp


def _cache_bytes(a: Architecture, tokens: int) -> int:
    """Return the bytes of all layers' keys and values in bf16."""
    return a.depth * tokens * 4 * a.kv_heads * a.head_dim


def _layer_peak(a: Architecture) -> int:
    """Return what one token needs at the widest place of a language model layer.

    Fitted to peaks on a GPU at two sizes (`tests/gpu/test_memory_estimate.py`): about five buffers
    of the MLP's width in bf16, and nine or ten of the residual stream's in float32.
    """
    return 38 * a.width + 10 * a.mlp


def _kept_by_layer(a: Architecture, width: int, mlp: int, *, adaptive: bool) -> int:
    """Return what a layer keeps of one token: float32 residuals, bf16 inputs of its products."""
    residual = 2 * 4 * width + 2 * 2 * width
    modulated = 2 * (4 + 2) * width if adaptive else 0
    return residual + modulated + 2 * 2 * a.heads * a.head_dim + 6 * mlp


def _kept_by_expert(a: Architecture, tokens: int, points: int, *, checkpointing: bool) -> int:
    own = points * a.horizon
    layer = own * _kept_by_layer(a, a.expert_width, a.expert_mlp, adaptive=a.family == "pi05")
    # Keys and values of prefix and own tokens are joined in each layer, and kept so.
    layer += (tokens + own) * 4 * a.kv_heads * a.head_dim
    if checkpointing:
        return a.depth * own * 4 * a.expert_width + layer
    return a.depth * layer


def _kept_by_prefix(a: Architecture, cameras: int, tokens: int, *, checkpointing: bool) -> int:
    layer = tokens * _kept_by_layer(a, a.width, a.mlp, adaptive=False)
    layer += tokens * 4 * a.kv_heads * a.head_dim
    language = a.depth * tokens * 4 * a.width + layer if checkpointing else a.depth * layer
    # The vision tower is never recomputed.
    seen = cameras * a.tokens_per_image
    vision = seen * a.vision_depth * (24 * a.vision_width + 4 * a.vision_mlp)
    return language + vision
