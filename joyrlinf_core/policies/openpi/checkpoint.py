"""Tensor names: ours <-> the upstream OpenPI ones, and the files of a policy directory.

Ours keeps query, key and value in one matrix and gate and up in another; upstream has them apart.
Upstream names are normalised first: prefixes of wrappers and of LeRobot, and names of older files.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from joyrlinf_core.errors import CheckpointError
from joyrlinf_core.policies import norm_stats, tokenizer
from joyrlinf_core.policies.base import NormStats
from joyrlinf_core.policies.openpi import layout
from joyrlinf_core.policies.openpi.model import OpenPiModel
from joyrlinf_core.policies.openpi.settings import Settings, write_settings

_ROOT = "paligemma_with_expert."
_VLM = f"{_ROOT}paligemma.model.language_model."
_TIED_EMBEDDING = f"{_ROOT}paligemma.lm_head.weight"
_EMBEDDING = f"{_VLM}embed_tokens.weight"
_PREFIXES = ("model.", "_orig_mod.", "module.", "base_model.model.")
_OLDER = (
    (f"{_ROOT}paligemma.vision_tower.", f"{_ROOT}paligemma.model.vision_tower."),
    (f"{_ROOT}paligemma.multi_modal_projector.", f"{_ROOT}paligemma.model.multi_modal_projector."),
    (f"{_ROOT}paligemma.language_model.model.", _VLM),
    (f"{_ROOT}paligemma.language_model.lm_head.", f"{_ROOT}paligemma.lm_head."),
)
_NEVER_USED = (
    f"{_ROOT}gemma_expert.lm_head.weight",
    f"{_ROOT}gemma_expert.model.embed_tokens.weight",
)
_MODULES = (
    ("vision.", f"{_ROOT}paligemma.model.vision_tower.vision_model."),
    ("mm.", f"{_ROOT}paligemma.model.multi_modal_projector.linear."),
    ("embed.", f"{_VLM}embed_tokens."),
    ("vlm.", _VLM),
    ("expert.", f"{_ROOT}gemma_expert.model."),
)
_FUSED = {
    "qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "kv_proj": ("self_attn.k_proj", "self_attn.v_proj"),
    "q_proj": ("self_attn.q_proj",),
    "o_proj": ("self_attn.o_proj",),
    "gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
    "down_proj": ("mlp.down_proj",),
}
_LAYER = re.compile(r"^((?:vlm|expert)\.layers\.\d+\.)(\w+)\.weight$")
_OPTIONAL = ("value_head.", "noise_head.")


def upstream_names(name: str) -> tuple[str, ...]:
    """Return the upstream tensors that a tensor of ours is made of, stacked along axis 0."""
    layer = _LAYER.match(name)
    parts = (name,)
    if layer is not None and layer[2] in _FUSED:
        parts = tuple(f"{layer[1]}{part}.weight" for part in _FUSED[layer[2]])
    return tuple(_outside(part) for part in parts)


def to_upstream(model: OpenPiModel) -> dict[str, Tensor]:
    """Return every weight under its upstream name, contiguous and on CPU."""
    a = model.architecture
    query, keys = a.heads * a.head_dim, a.kv_heads * a.head_dim
    out = {}
    for name, tensor in model.state_dict().items():
        names = upstream_names(name)
        sizes = [tensor.shape[0] // len(names)] * len(names)
        if len(names) == 3:
            sizes = [query, keys, keys]
        for part, piece in zip(names, tensor.split(sizes), strict=True):
            out[part] = piece.detach().cpu().clone().contiguous()
    return out


def read_weights(paths: Iterable[Path]) -> dict[str, Tensor]:
    """Return the tensors of weight files under their upstream names.

    Raises:
        CheckpointError: A file can't be read.
    """
    merged: dict[str, Tensor] = {}
    for path in paths:
        try:
            if path.suffix == ".safetensors":
                content = load_file(path)
            else:
                content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except (OSError, SafetensorError, RuntimeError, ValueError) as error:
            raise CheckpointError(
                f"{path} can't be read: {error}",
                fix="copy the file again; it is incomplete or no weight file",
            ) from error
        merged.update((canonical(name), tensor) for name, tensor in content.items())
    tied = merged.pop(_TIED_EMBEDDING, None)
    if tied is not None:
        merged.setdefault(_EMBEDDING, tied)
    for name in _NEVER_USED:
        merged.pop(name, None)
    return merged


def canonical(name: str) -> str:
    """Return an upstream tensor name without wrapper prefixes and in today's spelling."""
    stripped = True
    while stripped:
        stripped = False
        for prefix in _PREFIXES:
            if name.startswith(prefix):
                name, stripped = name.removeprefix(prefix), True
    for old, new in _OLDER:
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name


def load_weights(model: OpenPiModel, weights: Mapping[str, Tensor], source: Path) -> list[str]:
    """Put upstream tensors into a model built on any device, as float32 on CPU.

    Args:
        model: Receives the tensors; parameters are replaced, not copied into.
        weights: From `read_weights`.
        source: What messages name.

    Returns:
        Heads that the file does not have at all (`value_head.`, `noise_head.`): the caller fills
        them in.

    Raises:
        CheckpointError: Tensors are missing, left over or have another shape; lists all of them.
    """
    target = model.state_dict()
    absent = [
        head
        for head in _OPTIONAL
        if any(name.startswith(head) for name in target)
        and not any(name.startswith(head) for name in weights)
    ]
    problems, state, used = [], {}, set()
    for name, wanted in target.items():
        names = upstream_names(name)
        used.update(names)
        if name.startswith(tuple(absent)):
            continue
        missing = [part for part in names if part not in weights]
        if missing:
            problems += [f"missing {part}" for part in missing]
            continue
        tensor = torch.cat([weights[part].float() for part in names])
        if tensor.shape != wanted.shape:
            problems.append(
                f"{' + '.join(names)}: shape {tuple(tensor.shape)}, "
                f"the config's is {tuple(wanted.shape)}"
            )
        state[name] = tensor
    # A head of an earlier RL run that this config does not ask for is no mistake.
    problems += [
        f"unexpected {name}"
        for name in weights
        if name not in used and not name.startswith(_OPTIONAL)
    ]
    if problems:
        raise CheckpointError(
            f"{source}: {len(problems)} tensors do not fit:\n  " + "\n  ".join(sorted(problems)),
            fix="check actor.model.variant and actor.model.architecture against the checkpoint",
        )
    model.load_state_dict(state, strict=False, assign=True)
    return absent


def write_policy(
    directory: Path,
    model: OpenPiModel,
    settings: Settings,
    stats: NormStats,
    tokenizer_model: bytes | None,
) -> None:
    """Write a policy directory under a temporary name, then rename it.

    Raises:
        CheckpointError: `directory` exists, or it can't be written.
    """
    if directory.exists():
        raise CheckpointError(
            f"{directory} exists already", fix="choose another output directory or remove this one"
        )
    partial = directory.with_name(f".{directory.name}.{os.getpid()}.partial")
    try:
        partial.mkdir(parents=True)
        save_file(to_upstream(model), partial / layout.WEIGHTS_NAME, metadata={"format": "pt"})
        write_settings(partial, settings)
        norm_stats.write_norm_stats(partial / settings.asset_id / norm_stats.FILE_NAME, stats)
        if tokenizer_model is not None:
            (partial / tokenizer.FILE_NAME).write_bytes(tokenizer_model)
        partial.rename(directory)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"policy directory {directory} can't be written: {error}",
            fix="free disk space, or choose a directory that can be written",
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _outside(name: str) -> str:
    for ours, theirs in _MODULES:
        if name.startswith(ours):
            return theirs + name.removeprefix(ours)
    return name
