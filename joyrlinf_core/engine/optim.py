"""AdamW, its learning-rate schedule and gradient clipping."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from joyrlinf_core.config.schema import OptimConfig
    from joyrlinf_core.policies.base import Policy

VALUE_HEAD = "value_head"
"""Parameters with this in their name take `value_lr`, as in RLinf checkpoints."""


def build_optimizer(policy: Policy, config: OptimConfig) -> torch.optim.AdamW:
    """Build AdamW over the trainable parameters; weight decay acts on matrices only."""
    groups: dict[tuple[bool, bool], list[torch.nn.Parameter]] = {}
    for name, parameter in policy.trainable_parameters():
        key = (VALUE_HEAD in name, parameter.ndim >= 2)
        groups.setdefault(key, []).append(parameter)
    return torch.optim.AdamW(
        [
            {
                "params": parameters,
                "lr": (config.value_lr or config.lr) if is_value else config.lr,
                "weight_decay": config.weight_decay if is_matrix else 0.0,
            }
            for (is_value, is_matrix), parameters in sorted(groups.items())
        ],
        betas=config.betas,
        eps=config.eps,
    )


def lr_factor(config: OptimConfig, total_steps: int) -> Callable[[int], float]:
    """Return the factor on the peak learning rate at scheduler step 0, 1, ...

    Linear from 1 / warm-up to 1, then constant, or a half cosine that reaches `min_lr_ratio` at
    `total_steps`.
    """
    warmup = config.lr_warmup_steps

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        if config.lr_schedule == "constant":
            return 1.0
        progress = min(1.0, (step - warmup) / max(1, total_steps - warmup))
        cosine = 0.5 * (1 + math.cos(math.pi * progress))
        return config.min_lr_ratio + (1 - config.min_lr_ratio) * cosine

    return factor


class LearningRate:
    """Sets the learning rates of an optimizer; torch's own schedules warn when a step is skipped.

    Args:
        optimizer: Its group rates are the peaks.
        factor: Factor on the peaks at step 0, 1, ...
    """

    def __init__(self, optimizer: torch.optim.Optimizer, factor: Callable[[int], float]) -> None:
        self._optimizer = optimizer
        self._factor = factor
        self._peaks = [float(group["lr"]) for group in optimizer.param_groups]
        self._step = 0
        self._apply()

    def step(self) -> None:
        """Go to the next step; call once per training step."""
        self._step += 1
        self._apply()

    def state_dict(self) -> dict[str, int]:
        """Return where the schedule stands."""
        return {"step": self._step}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continue from `state_dict`."""
        self._step = state["step"]
        self._apply()

    def _apply(self) -> None:
        factor = self._factor(self._step)
        for group, peak in zip(self._optimizer.param_groups, self._peaks, strict=True):
            group["lr"] = peak * factor


def build_learning_rate(
    optimizer: torch.optim.Optimizer, config: OptimConfig, total_steps: int
) -> LearningRate:
    """Build the schedule of a run of `total_steps`."""
    return LearningRate(optimizer, lr_factor(config, total_steps))


def clip_gradients(parameters: list[torch.nn.Parameter], limit: float) -> float:
    """Clip the global gradient norm in place; return the norm before."""
    norm = torch.nn.utils.clip_grad_norm_(parameters, limit)
    full = getattr(norm, "full_tensor", None)
    return float(full() if full is not None else norm)
