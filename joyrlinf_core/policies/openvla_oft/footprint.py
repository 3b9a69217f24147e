"""What an OpenVLA-OFT stores and costs, computed from its sizes alone. No torch.

P tokens: start, patches of all pictures, prompt, one placeholder an action dimension. FLOPs count a
multiply-add as two.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from joyrlinf_core.config.schema.footprint import Footprint, TensorSpec
from joyrlinf_core.policies.openvla_oft.architecture import Architecture, Tower
from joyrlinf_core.policies.tokenizer import estimate_tokens

if TYPE_CHECKING:
    from joyrlinf_core.config.schema.env import EnvConfig
    from joyrlinf_core.policies.openvla_oft.config import OpenVlaOftConfig

_TEMPLATE = "In: What action should the robot take to ?\nOut: "


@dataclass(frozen=True)
class Weights:
    """Weights by part.

    Attributes:
        vision: Both towers.
        projector: From their features to the language model.
        language: Language model, embedding and output matrix included.
        lora: Adapter matrices.
        value: Value head.
        unit: Largest unit that is sharded by itself.
    """

    vision: int
    projector: int
    language: int
    lora: int
    value: int
    unit: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.vision + self.projector + self.language + self.lora + self.value


def count_weights(a: Architecture, *, lora_rank: int = 0, values: int = 0) -> Weights:
    """Count the weights.

    Args:
        a: Sizes.
        lora_rank: Rank of the adapter; 0 has none.
        values: Outputs of the value head; 0 has none.
    """
    vision = sum(_tower(a, tower) for tower in a.towers)
    projector = sum((before + 1) * after for before, after in pairwise(_projector_widths(a)))
    layer = sum(before * after for before, after in _llama_linears(a)) + 2 * a.width
    ends = 2 * a.vocab_size * a.width + a.width
    widths = (a.width, *a.value_widths, values)
    value = sum((before + 1) * after for before, after in pairwise(widths)) if values else 0
    lora = lora_rank * sum(before + after for before, after in _adapted(a))
    units = (*(_tower(a, tower) for tower in a.towers), projector, layer, ends)
    return Weights(
        vision=vision,
        projector=projector,
        language=a.depth * layer + ends,
        lora=lora,
        value=value,
        unit=max(units),
    )


@dataclass(frozen=True)
class Work:
    """FLOPs of one row.

    Attributes:
        vision: Both towers and the projector, all pictures.
        language: Language model over P tokens, and the output rows of the action tokens.
    """

    vision: float
    language: float


def count_work(a: Architecture, *, pictures: int, text: int, outputs: int, bins: int) -> Work:
    """Count the FLOPs of one row.

    Args:
        a: Sizes.
        pictures: Pictures that the policy reads.
        text: Prompt tokens, the start token included.
        outputs: Action tokens.
        bins: Values that each can have.
    """
    tokens = pictures * a.patches + text + outputs
    towers = 0
    for tower in a.towers:
        n, w = a.patches + tower.prefix, tower.width
        block = 2 * n * (4 * w**2 + 2 * w * tower.mlp) + 4 * n**2 * w
        towers += (tower.depth - 1) * block + 2 * a.patches * 3 * a.patch_size**2 * w
    projector = 2 * a.patches * sum(b * c for b, c in pairwise(_projector_widths(a)))
    layer = 2 * tokens * sum(before * after for before, after in _llama_linears(a))
    layer += 4 * tokens**2 * a.width
    return Work(
        vision=float(pictures * (towers + projector)),
        language=float(a.depth * layer + 2 * outputs * bins * a.width),
    )


def footprint(
    config: OpenVlaOftConfig, env: EnvConfig, *, gradient_checkpointing: bool
) -> Footprint:
    """Return what a policy of this config stores and costs in `env`."""
    a = Architecture()
    chunk, d = config.num_action_chunks, config.action_dim or env.action_dim
    values = chunk if config.value_type == "action_level" else 1
    weights = count_weights(
        a, lora_rank=config.lora_rank, values=values if config.add_value_head else 0
    )
    trainable = weights.lora + weights.value if config.lora_rank else weights.total
    pictures = min(config.num_images_in_input, env.image_shape[0])
    text = min(prompt_tokens(env), config.max_prompt_length)
    work = count_work(a, pictures=pictures, text=text, outputs=chunk * d, bins=config.n_action_bins)
    forward = work.vision + work.language
    # Frozen matrices get no gradient of their own: one product less each.
    passes = (2 if config.lora_rank else 3) + (1 if gradient_checkpointing else 0)
    tokens = pictures * a.patches + text + chunk * d
    _, height, width, channels = env.image_shape
    return Footprint(
        parameters=weights.total,
        trainable=trainable,
        sharding_unit=weights.unit,
        inputs={
            "images": TensorSpec((pictures, height, width, channels), "uint8"),
            "tokens": TensorSpec((config.max_prompt_length,), "int32"),
            "token_count": TensorSpec((), "int32"),
        },
        replay={"action_tokens": TensorSpec((chunk, d), "int32")},
        predict_flops=forward,
        update_flops=passes * forward,
        predict_bytes=tokens * (10 * a.width + 6 * a.mlp),
        activation_bytes=_kept(a, pictures, tokens, checkpointing=gradient_checkpointing)
        + 4 * 2 * chunk * d * config.n_action_bins,
    )


def prompt_tokens(env: EnvConfig) -> int:
    """Return about how many tokens the env's longest prompt has, its start token included."""
    longest = max(estimate_tokens(prompt) for prompt in env.task_prompts)
    # The last token of a prompt is a lone space.
    return longest + estimate_tokens(_TEMPLATE) + 3


def _tower(a: Architecture, tower: Tower) -> int:
    w = tower.width
    block = 4 * (w + 1) * w + (w + 1) * tower.mlp + (tower.mlp + 1) * w + 4 * w
    block += 2 * w if tower.scaled else 0
    stem = (3 * a.patch_size**2 + 1) * w + (a.patches + tower.prefix) * w
    return tower.depth * block + stem + 2 * w


def _projector_widths(a: Architecture) -> tuple[int, ...]:
    return (a.features, 4 * a.features, a.width, a.width)


def _llama_linears(a: Architecture) -> list[tuple[int, int]]:
    """Return the sizes of the matrices of one language model layer."""
    attention = [(a.width, a.width)] * 4
    return [*attention, (a.width, a.mlp), (a.width, a.mlp), (a.mlp, a.width)]


def _adapted(a: Architecture) -> list[tuple[int, int]]:
    """Return the sizes of every matrix that the LoRA adapts."""
    found = a.depth * _llama_linears(a)
    found.append((a.width, a.vocab_size))
    found += list(pairwise(_projector_widths(a)))
    for tower in a.towers:
        w = tower.width
        block = [(w, 3 * w), (w, w), (w, tower.mlp), (tower.mlp, w)]
        found += tower.depth * block
        found.append((3 * a.patch_size**2, w))
    return found


def _kept(a: Architecture, pictures: int, tokens: int, *, checkpointing: bool) -> int:
    """Return what the update keeps of one row: bf16 inputs of products and residuals."""
    layer = tokens * (24 * a.width + 6 * a.mlp)
    towers = [
        (tower, pictures * (a.patches + tower.prefix), 24 * tower.width + 4 * tower.mlp)
        for tower in a.towers
    ]
    if checkpointing:
        inputs = a.depth * tokens * 2 * a.width
        inputs += sum(tower.depth * n * 2 * tower.width for tower, n, _ in towers)
        return inputs + layer
    return a.depth * layer + sum(tower.depth * n * each for tower, n, each in towers)
