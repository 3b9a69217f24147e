"""Sizes of GR00T N1.5. No torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Architecture:
    """Every size that a weight's shape depends on; the defaults are the published ones.

    Attributes:
        tokens_per_image: Backbone tokens of one picture of 224 x 224.
        patch_size: Side of a vision patch in pixels.
        vision_width: Width of the vision tower (SigLIP 2 So400m).
        vision_depth: Its layers.
        vision_mlp: Hidden width of its MLPs.
        vocab_size: Rows of the token embedding.
        width: Width of the language model (Qwen3 1.7B).
        depth: Layers of it that are kept.
        mlp: Hidden width of its MLPs.
        heads: Its query heads.
        kv_heads: Its key and value heads.
        head_dim: Width of one of its heads.
        mixer_depth: Self-attention blocks between backbone and action head.
        head_width: Width of the diffusion transformer.
        head_depth: Its layers; even ones attend to the backbone, odd ones to themselves.
        head_output: Width of its output.
        hidden: Hidden width of state encoder and action decoder.
        future_tokens: Learned tokens beside state and actions.
        max_positions: Rows of the position embedding of actions.
        embodiments: Copies of state and action encoders and of the decoder.
        state_dim: Width of the state; env states are padded with zeros.
        action_dim: A: width of an action; env actions are padded with zeros.
        horizon: H: actions per prediction.
        time_features: Width of the sinusoidal time features.
        value_widths: Hidden widths of the value head.
        noise_widths: Hidden widths of the noise head (`flow_noise`).
    """

    tokens_per_image: int = 256
    patch_size: int = 14
    vision_width: int = 1152
    vision_depth: int = 27
    vision_mlp: int = 4304
    vocab_size: int = 151_680
    width: int = 2048
    depth: int = 12
    mlp: int = 6144
    heads: int = 16
    kv_heads: int = 8
    head_dim: int = 128
    mixer_depth: int = 4
    head_width: int = 1536
    head_depth: int = 16
    head_output: int = 1024
    hidden: int = 1024
    future_tokens: int = 32
    max_positions: int = 1024
    embodiments: int = 32
    state_dim: int = 64
    action_dim: int = 32
    horizon: int = 16
    time_features: int = 256
    value_widths: tuple[int, ...] = (1024, 512, 256)
    noise_widths: tuple[int, ...] = (128, 64)
