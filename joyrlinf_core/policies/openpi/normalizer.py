"""Scaling of states and actions by the statistics of a policy directory."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from joyrlinf_core.errors import CheckpointError
from joyrlinf_core.policies.base import FieldStats, NormStats
from joyrlinf_core.policies.openpi.settings import Normalization, Settings

EPSILON = 1e-6


class Normalizer(nn.Module):
    """Affine maps between the env's units and the model's.

    Dimensions beyond the statistics pass through. The numbers are buffers that no checkpoint holds:
    they come from `norm_stats.json`.

    Args:
        settings: Kind of scaling and the real action dims.
        stats: Statistics.
    """

    state_shift: Tensor
    state_scale: Tensor
    action_shift: Tensor
    action_scale: Tensor

    def __init__(self, settings: Settings, stats: NormStats) -> None:
        super().__init__()
        self.state_dim = settings.architecture.state_dim
        self.action_width = settings.architecture.action_dim
        self.action_dim = settings.action_dim
        self.state_clip = settings.state_clip
        self.normalize_actions = settings.normalize_actions
        state = _affine("state", stats.state, settings.normalization, self.state_dim)
        if self.normalize_actions:
            action = _affine("actions", stats.actions, settings.normalization, self.action_dim)
        else:
            action = torch.zeros(self.action_dim), torch.ones(self.action_dim)
        for name, (shift, scale) in (("state", state), ("action", action)):
            self.register_buffer(f"{name}_shift", shift, persistent=False)
            self.register_buffer(f"{name}_scale", scale, persistent=False)

    def state(self, state: Tensor, *, pad: bool = True) -> Tensor:
        """Normalise float32 [b, S]; padded with zeros to the model's width unless told not to."""
        size = state.shape[-1]
        if size > self.state_dim:
            raise CheckpointError(
                f"the env's state has {size} dims, the policy takes {self.state_dim}",
                fix="use the env that the policy was made for, or make a policy for this one",
            )
        scaled = (state - self.state_shift[:size]) / self.state_scale[:size]
        if self.state_clip:
            scaled = scaled.clamp(-self.state_clip, self.state_clip)
        return F.pad(scaled, (0, self.state_dim - size)) if pad else scaled

    def actions(self, actions: Tensor) -> Tensor:
        """Normalise float32 [..., D] and pad to the model's action width."""
        if actions.shape[-1] != self.action_dim:
            raise CheckpointError(
                f"actions have {actions.shape[-1]} dims, the policy was made for {self.action_dim}",
                fix=f"use demonstrations with {self.action_dim} action dims",
            )
        scaled = (actions - self.action_shift) / self.action_scale
        return F.pad(scaled, (0, self.action_width - self.action_dim))

    def env_actions(self, actions: Tensor) -> Tensor:
        """Bring model actions float32 [..., A] back into the env's units: [..., D]."""
        return actions[..., : self.action_dim] * self.action_scale + self.action_shift


def _affine(name: str, stats: FieldStats, kind: Normalization, size: int) -> tuple[Tensor, Tensor]:
    """Return shift and scale, each float32 [size]: normalised = (x - shift) / scale."""
    low, high = torch.tensor((stats.q01, stats.q99), dtype=torch.float64)[:, :size]
    if kind == "mean_std":
        shift, spread = torch.tensor((stats.mean, stats.std), dtype=torch.float64)[:, :size]
        scale = spread + EPSILON
    else:
        scale = (high - low + EPSILON) / 2
        shift = low + scale
        if math.isnan(float(scale.sum())):
            raise CheckpointError(
                f"quantile normalisation needs q01 and q99 of '{name}', which the statistics lack",
                fix="set actor.model.normalization: mean_std, or add the quantiles",
            )
    missing = size - len(scale)
    return (
        F.pad(shift, (0, missing)).float(),
        F.pad(scale, (0, missing), value=1.0).float(),
    )
