"""Builds policies: from scratch with random weights, or from a policy directory."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from joyrlinf_core.errors import CheckpointError
from joyrlinf_core.policies import norm_stats
from joyrlinf_core.policies.base import NormStats
from joyrlinf_core.policies.openpi import checkpoint, layout, prompts
from joyrlinf_core.policies.openpi.architecture import FITTED
from joyrlinf_core.policies.openpi.gemma import AdaptiveRmsNorm, GemmaLayer
from joyrlinf_core.policies.openpi.model import OpenPiModel
from joyrlinf_core.policies.openpi.policy import OpenPiPolicy
from joyrlinf_core.policies.openpi.settings import Settings
from joyrlinf_core.policies.tokenizer import (
    ByteTokenizer,
    Tokenizer,
    load_tokenizer,
    train_tokenizer,
)
from joyrlinf_core.seeding import stream

if TYPE_CHECKING:
    from joyrlinf_core.policies.openpi.config import OpenPiConfig

HEAD_STD = 0.02
BIN_FREQUENCIES = 8


def create_policy(
    config: OpenPiConfig,
    settings: Settings,
    stats: NormStats,
    task_prompts: tuple[str, ...],
    *,
    seed: int,
) -> OpenPiPolicy:
    """Build a policy with random weights; the same seed gives the same weights."""
    tokenizer = _tokenizer_for(config, settings, task_prompts)
    architecture = settings.architecture
    if config.variant in FITTED:
        architecture = replace(architecture, vocab_size=tokenizer.vocab_size)
    settings = replace(settings, architecture=architecture)
    # Modules draw from the global generator while they are built; it is put back afterwards.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = OpenPiModel(
            architecture,
            value_head=config.add_value_head,
            noise_head=config.noise_method == "flow_noise",
        )
        initialise(model)
        if settings.discrete_state_input:
            _smooth_state_bins(model.embed.weight, tokenizer)
    return OpenPiPolicy(config, settings, stats, tokenizer, model)


def load_policy(config: OpenPiConfig, directory: Path) -> OpenPiPolicy:
    """Load a policy directory that `check_directory` found complete."""
    settings = config.settings_of(directory)
    stats_path = layout.find_norm_stats(directory, settings.asset_id)
    if stats_path is None:
        raise CheckpointError(f"{directory} has no statistics for asset {settings.asset_id}")
    tokenizer: Tokenizer = ByteTokenizer()
    if settings.tokenizer == "sentencepiece":
        path = layout.find_tokenizer(directory, config.tokenizer_path)
        if path is None:
            raise CheckpointError(f"{directory} has no tokenizer file")
        tokenizer = load_tokenizer(path)
    weights = checkpoint.read_weights(layout.find_weights(directory))
    with torch.device("meta"):
        model = OpenPiModel(
            settings.architecture,
            value_head=config.add_value_head,
            noise_head=config.noise_method == "flow_noise",
        )
    absent = checkpoint.load_weights(model, weights, directory)
    with torch.random.fork_rng(devices=[]):
        for head in absent:
            torch.manual_seed(stream(0, "openpi", head))
            module = getattr(model, head.removesuffix("."))
            module.to_empty(device="cpu")
            _initialise_head(module)
    for name, buffer in list(model.vision.embeddings.named_buffers()):
        # The only buffer of the tower: positions, which no checkpoint holds.
        order = torch.arange(buffer.shape[-1]).expand(buffer.shape)
        model.vision.embeddings.register_buffer(name, order, persistent=False)
    stats = norm_stats.read_norm_stats(stats_path)
    return OpenPiPolicy(config, settings, stats, tokenizer, model)


def initialise(model: OpenPiModel) -> None:
    """Fill in random weights of a policy that is trained from scratch."""
    embed = model.embed.weight
    # Embeddings are multiplied by sqrt(width): their scale after it is one.
    nn.init.normal_(embed, std=1.0 / math.sqrt(embed.shape[1]))
    for module in model.modules():
        if isinstance(module, GemmaLayer):
            for name, parameter in module.named_parameters():
                if parameter.ndim == 2 and "layernorm" not in name:
                    nn.init.normal_(parameter, std=1.0 / math.sqrt(parameter.shape[1]))
        elif isinstance(module, AdaptiveRmsNorm):
            _open_gate(module)
    for head in (model.value_head, model.noise_head):
        if head is not None:
            _initialise_head(head)


def _open_gate(norm: AdaptiveRmsNorm) -> None:
    """Start as a plain norm with an open gate.

    Upstream starts from zero, which closes the gates: fine for a fine-tune, but an expert from
    scratch would then ignore its prefix.
    """
    width = norm.dense.weight.shape[1]
    nn.init.zeros_(norm.dense.weight)
    nn.init.zeros_(norm.dense.bias)
    nn.init.ones_(norm.dense.bias[2 * width :])


def _initialise_head(head: nn.Module) -> None:
    layers = [module for module in head.modules() if isinstance(module, nn.Linear)]
    for layer in layers:
        layer.reset_parameters()
    nn.init.normal_(layers[-1].weight, std=HEAD_STD)
    nn.init.zeros_(layers[-1].bias)


@torch.no_grad()
def _smooth_state_bins(embedding: Tensor, tokenizer: Tokenizer) -> None:
    """Give neighbouring state numbers similar embeddings: their order need not be learned."""
    width = embedding.shape[1]
    frequencies = 2.0 ** torch.arange(min(BIN_FREQUENCIES, width // 2)) / 4
    for number in range(prompts.STATE_BINS):
        token = tokenizer.whole(str(number))
        if token is None:
            continue
        angle = math.pi * frequencies * number / prompts.STATE_BINS
        code = torch.cat((angle.sin(), angle.cos()))
        # Sine and cosine have a mean square of 1/2; the row keeps the scale of the others.
        embedding[token, : len(code)] = code * math.sqrt(2.0 / width)


def _tokenizer_for(
    config: OpenPiConfig, settings: Settings, task_prompts: tuple[str, ...]
) -> Tokenizer:
    if settings.tokenizer == "bytes":
        return ByteTokenizer()
    if config.tokenizer_path is not None:
        return load_tokenizer(Path(config.tokenizer_path).expanduser())
    if not settings.discrete_state_input:
        return train_tokenizer([prompts.clean(prompt) for prompt in task_prompts])
    return train_tokenizer(
        [prompts.scaffold(prompt, ()) for prompt in task_prompts],
        symbols=[str(number) for number in range(prompts.STATE_BINS)],
    )
