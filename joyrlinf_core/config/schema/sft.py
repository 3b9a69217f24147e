"""`sft`: behaviour cloning that makes the policy which RL starts from."""

from __future__ import annotations

from pydantic import Field

from joyrlinf_core.config.schema.actor import OptimConfig
from joyrlinf_core.config.schema.base import MAX_COUNT, Section


class SftConfig(Section):
    """Demonstrations and flow-matching training."""

    dataset: str | None = None
    """Demonstrations to train on: a joyrl directory or a LeRobot data set. None: collect with
    scripted experts."""

    num_demos: int = Field(default=100, ge=1, le=MAX_COUNT)
    """Scripted episodes to collect over all tasks; failures are dropped."""

    expert_noise: float = Field(default=0.3, ge=0)
    """Standard deviation of Gaussian noise on executed actions (range [-1, 1]); labels stay
    clean."""

    frame_stride: int = Field(default=3, ge=1, le=MAX_COUNT)
    """Env steps between two training samples of a demonstration."""

    steps_after_success: int = Field(default=10, ge=0, le=MAX_COUNT)
    """Env steps that a demonstration goes on after success, so that chunks near the end have
    labels."""

    max_episode_steps: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Env steps that a scripted episode may take; None: `env.train.max_episode_steps`. A longer
    limit keeps demonstrations that are slower than the task allows."""

    steps: int = Field(default=800, ge=1, le=MAX_COUNT)
    """Optimizer steps."""

    max_seconds: float | None = Field(default=None, gt=0)
    """Stop training after this many seconds, demonstrations not counted; None has no limit."""

    batch_size: int = Field(default=64, ge=1, le=MAX_COUNT)
    """Samples per optimizer step, all ranks together."""

    optim: OptimConfig = OptimConfig(
        lr=2e-3, lr_warmup_steps=50, lr_schedule="cosine", weight_decay=1e-4
    )
    """Optimizer."""

    log_interval: int = Field(default=50, ge=1, le=MAX_COUNT)
    """Optimizer steps between two log lines (loss and action error)."""

    eval_interval: int = -1
    """Optimizer steps between two evaluations in the simulator; <= 0 only at the end."""

    eval_episodes: int = Field(default=0, ge=0, le=MAX_COUNT)
    """Episodes per evaluation during and after SFT; 0 does not evaluate."""
