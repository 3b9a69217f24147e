"""`algorithm`: advantages, loss, filtering."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from joyrlinf_core.config.schema.base import MAX_COUNT, Section


class AlgorithmConfig(Section):
    """Reinforcement-learning algorithm."""

    pipeline_mode: Literal["sync", "async"] = "sync"
    """`sync`: rollout and update in turn on the same weights. `async`: both at once on disjoint
    ranks."""

    comm_mode: Literal["v1", "v2"] = "v1"
    """Transport of trajectories between disjoint ranks: v1 point-to-point, v2 all-to-all."""

    weight_sync: Literal["auto", "gloo", "nccl"] = "auto"
    """How new weights travel to rollout ranks with a copy of their own: `gloo` through host memory,
    `nccl` from GPU to GPU. `auto` takes NCCL where each of these ranks has a GPU of its own."""

    adv_type: str = "grpo"
    """Advantage estimator: a file of `algorithms/advantages/`, an entry point, or
    `pkg.module:Attr`."""

    loss_type: str = "actor"
    """Loss: a file of `algorithms/losses/`, an entry point, or `pkg.module:Attr`."""

    adv_args: dict[str, Any] = Field(default_factory=dict)
    """Extra arguments of a third-party advantage estimator."""

    loss_args: dict[str, Any] = Field(default_factory=dict)
    """Extra arguments of a third-party loss."""

    group_size: int = Field(default=8, ge=1, le=MAX_COUNT)
    """G: consecutive envs that share one initial state."""

    reward_type: Literal["chunk_level", "action_level"] = "chunk_level"
    """Granularity of rewards, advantages and masks."""

    logprob_type: Literal["chunk_level", "action_level", "token_level"] = "chunk_level"
    """Granularity of the probability ratio; never coarser than `reward_type`."""

    filter_rewards: bool = False
    """Drop groups whose mean return lies outside [`rewards_lower_bound`, `rewards_upper_bound`]."""

    rewards_lower_bound: float = 0.1
    """Lower bound of a kept group's mean return, in reward units."""

    rewards_upper_bound: float = 0.9
    """Upper bound of a kept group's mean return, in reward units."""

    clip_ratio_low: float = Field(default=0.2, gt=0, lt=1)
    """PPO clip below: ratios are clipped at 1 - this."""

    clip_ratio_high: float = Field(default=0.2, gt=0)
    """PPO clip above: ratios are clipped at 1 + this."""

    clip_ratio_c: float | None = Field(default=3.0, gt=1)
    """Dual clip for negative advantages (arXiv 1912.09729, eq. 5); None switches it off."""

    clip_log_ratio: float | None = Field(default=20.0, gt=0)
    """Bound on |log ratio| before the exponential; None has none."""

    entropy_bonus: float = Field(default=0.0, ge=0)
    """Weight of the entropy term; needs a policy with an entropy."""

    gamma: float = Field(default=0.99, ge=0, le=1)
    """Discount of GAE. GRPO does not use it."""

    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    """Lambda of GAE (arXiv 1506.02438, eq. 16)."""

    normalize_advantages: bool = True
    """Normalise GAE advantages over all valid entries of all actors."""

    value_clip: float = Field(default=0.2, gt=0)
    """Clip range of the value update."""

    huber_delta: float = Field(default=10.0, gt=0)
    """Transition point of the Huber value loss."""

    value_loss_coef: float = Field(default=1.0, ge=0)
    """Weight of the value loss."""

    update_epoch: int = Field(default=1, ge=1, le=MAX_COUNT)
    """Passes over the samples of one rollout."""

    max_staleness: int = Field(default=0, ge=0, le=MAX_COUNT)
    """Async only: weight versions between the policy that acted and the one that learns, at most. A
    rollout that would exceed it waits, so nothing is generated for nothing."""

    proximal: Literal["interpolate", "exact"] = "interpolate"
    """Async only: log-probs that the decoupled loss clips around. `exact` computes them anew at the
    start of each update, which costs a forward pass; `interpolate` guesses them from the versions
    of the samples."""

    behaviour_weight_max: float | None = Field(default=5.0, gt=1)
    """Async only: samples that have become more likely than this, relative to the policy that
    acted, are left out of the loss; None keeps all."""

    on_nonfinite: Literal["stop", "skip"] = "stop"
    """What to do when a loss or gradient norm is NaN or infinite."""

    dead_signal_steps: int = Field(default=20, ge=0, le=MAX_COUNT)
    """Warn after this many steps in a row without a group that has any variance in returns; 0
    never."""
