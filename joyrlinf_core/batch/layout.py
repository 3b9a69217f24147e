"""The layout table: which shape a quantity has at which level.

T chunk steps, B batch columns, C actions per chunk, D env action dims, N = T * B flat rows.

| quantity                 | level        | rollout      | flat      |
|--------------------------|--------------|--------------|-----------|
| rewards, dones           |              | [T, B, C]    |           |
| log-probs                | chunk_level  | [T, B, C, D] | [N]       |
|                          | action_level | [T, B, C, D] | [N, C]    |
|                          | token_level  | [T, B, C, D] | [N, C, D] |
| advantages, mask, weight | chunk_level  | [T, B]       | [N]       |
|                          | action_level | [T, B, C]    | [N, C]    |

Row n of a flat tensor is n = t * B + column. This module imports no torch: tensor methods do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from joyrlinf_core.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

RewardLevel = Literal["chunk_level", "action_level"]
LogprobLevel = Literal["chunk_level", "action_level", "token_level"]

AXES: dict[str, str] = {"chunk_level": "", "action_level": "C", "token_level": "CD"}
"""Axes that a level keeps behind the row axis."""

LEGAL_PAIRS: tuple[tuple[RewardLevel, LogprobLevel], ...] = (
    ("chunk_level", "chunk_level"),
    ("chunk_level", "action_level"),
    ("chunk_level", "token_level"),
    ("action_level", "action_level"),
    ("action_level", "token_level"),
)
"""(reward_type, logprob_type): a log-prob is never coarser than the reward it is weighted with."""


def env_ids(rank: int, columns: int) -> range:
    """Return the ids of the envs whose columns a rank holds, in their order.

    Envs g*G to g*G + G-1 are group g, so a rank whose columns divide by G holds whole groups.

    Args:
        rank: Place of the rank among those of its role, from 0.
        columns: Columns of each of them.
    """
    return range(rank * columns, (rank + 1) * columns)


def check_pair(reward_type: RewardLevel, logprob_type: LogprobLevel) -> None:
    """Refuse a log-prob level that is coarser than the reward level.

    Raises:
        ConfigError: The pair is not in `LEGAL_PAIRS`.
    """
    if (reward_type, logprob_type) not in LEGAL_PAIRS:
        raise ConfigError(
            message=f"algorithm.logprob_type: {logprob_type} is coarser than "
            f"algorithm.reward_type: {reward_type}, so the actions of a chunk would share a ratio "
            "but not an advantage",
            fix=f"set algorithm.logprob_type: {reward_type}",
        )


def split_tokens(logprobs: Tensor, chunk_size: int) -> Tensor:
    """Return log-probs as [..., C, D].

    Args:
        logprobs: [T, B, C, D], or [T, B, C * D] as token policies store them.
        chunk_size: C.
    """
    if logprobs.dim() == 3:
        t, b, tokens = logprobs.shape
        if tokens % chunk_size:
            raise ConfigError(
                message=f"log-probs of shape {tuple(logprobs.shape)} hold {tokens} tokens a chunk, "
                f"which is no multiple of actor.model.num_action_chunks: {chunk_size}",
                fix="return log-probs [b, C, D] or [b, C * D] from the policy",
            )
        return logprobs.reshape(t, b, chunk_size, tokens // chunk_size)
    return logprobs


def reduce_logprobs(logprobs: Tensor, level: LogprobLevel) -> Tensor:
    """Sum log-probs [..., C, D] to a level: [...], [..., C] or [..., C, D]."""
    if level == "chunk_level":
        return logprobs.sum(dim=(-2, -1))
    if level == "action_level":
        return logprobs.sum(dim=-1)
    return logprobs


def expand_to(values: Tensor, like: Tensor) -> Tensor:
    """Expand a coarser tensor over the trailing axes that `like` has more.

    Args:
        values: Shape of `like`, less zero or more trailing axes.
        like: Tensor at the finer level.
    """
    return values.reshape(*values.shape, *[1] * (like.dim() - values.dim())).expand_as(like)


def reduce_to(values: Tensor, level_dim: int) -> Tensor:
    """Average the trailing axes away until `level_dim` axes are left."""
    axes = tuple(range(level_dim, values.dim()))
    return values.mean(dim=axes) if axes else values
