"""`actor`: the policy, its optimizer and its precision.

The policy family's own file adds its model keys.
"""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, SerializeAsAny

from joyrlinf_core.config.schema.base import MAX_CHUNK, MAX_COUNT, Section

if TYPE_CHECKING:
    from joyrlinf_core.config.schema.env import EnvConfig
    from joyrlinf_core.config.schema.footprint import Footprint
    from joyrlinf_core.policies.base import NormStats, Policy


class ModelConfig(Section):
    """Keys that every policy family has.

    A subclass lives in the family's file or package, narrows `model_type` to a `Literal` of its
    name and implements the abstract methods. Its module does not import torch at module level.
    """

    model_type: str
    """Policy family: a file or package of `policies/`, an entry point, or `pkg.module:Attr`."""

    model_path: str | None = None
    """Policy directory. None needs an `sft` section, whose result is cached and used."""

    lora_path: str | None = None
    """LoRA adapter directory to load on top."""

    num_action_chunks: int = Field(default=5, ge=1, le=MAX_CHUNK)
    """C: actions executed per policy call."""

    action_dim: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """D: action dimensions that the env takes. None: the env's own."""

    predict_micro_batch_size: int = Field(default=0, ge=0, le=MAX_COUNT)
    """Rows per forward pass inside the policy; 0 takes the whole batch."""

    add_value_head: bool = False
    """Add a value head; PPO needs it."""

    missing_runtime: ClassVar[str] = ""
    """Why policies of this family can be planned but not run in this version; empty: they run."""

    takes_adapter: ClassVar[bool] = False
    """Whether `lora_path` can be loaded on top of the weights."""

    expected_levels: ClassVar[tuple[str, str]] = ("chunk_level", "chunk_level")
    """`algorithm.reward_type` and `algorithm.logprob_type` that the family is trained with."""

    @property
    def has_entropy(self) -> bool:
        """Whether the policy's actions have an entropy that `algorithm.entropy_bonus` can raise."""
        return False

    @property
    def planned_horizon(self) -> int | None:
        """H: actions that one call predicts; None where only the policy directory tells."""
        return None

    @property
    def horizon_is_certain(self) -> bool:
        """False where `planned_horizon` may differ from what the policy directory holds."""
        return True

    def footprint(self, env: EnvConfig, *, gradient_checkpointing: bool) -> Footprint | None:
        """Return what the policy stores and costs; None where the family does not tell.

        Args:
            env: Env whose sizes and prompts the policy takes.
            gradient_checkpointing: Whether the update recomputes activations.
        """
        del env, gradient_checkpointing
        return None

    @abstractmethod
    def create(self, env: EnvConfig, stats: NormStats, *, seed: int) -> Policy:
        """Build a policy with random weights for an env (no checkpoint needed).

        Args:
            env: Env whose image, state and action sizes and prompts the policy must take.
            stats: Normalisation statistics, stored in the policy directory.
            seed: Seed of the weights.
        """

    @abstractmethod
    def load(self, directory: Path) -> Policy:
        """Load a policy directory.

        Raises:
            CheckpointError: A file is missing, or tensors are missing or left over; lists all of
                them.
        """

    @abstractmethod
    def check_directory(self, directory: Path) -> list[str]:
        """Return what a policy directory lacks, without torch; empty when `load` can start."""


class OptimConfig(Section):
    """AdamW and its schedule."""

    lr: float = Field(default=1e-5, gt=0)
    """Peak learning rate."""

    value_lr: float | None = Field(default=None, gt=0)
    """Learning rate of the value head; None: `lr`."""

    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (
        0.9,
        0.95,
    )
    """AdamW betas."""

    eps: float = Field(default=1e-5, gt=0)
    """AdamW epsilon. Well above rounding noise, which AdamW would otherwise turn into full steps of
    weights whose gradient is almost zero."""

    weight_decay: float = Field(default=0.0, ge=0)
    """AdamW weight decay, on matrices only."""

    clip_grad: float = Field(default=1.0, gt=0)
    """Gradient norm is clipped at this."""

    lr_warmup_steps: int = Field(default=0, ge=0, le=MAX_COUNT)
    """Linear warm-up, in scheduler steps."""

    lr_schedule: Literal["constant", "cosine"] = "constant"
    """Shape after the warm-up; `cosine` ends at `min_lr_ratio` * lr after the last step."""

    min_lr_ratio: float = Field(default=0.1, ge=0, le=1)
    """Floor of the cosine as a share of `lr`."""


class FsdpConfig(Section):
    """How trainable parameters are spread over actor ranks."""

    strategy: Literal["auto", "ddp", "fsdp2"] = "auto"
    """`ddp` replicates and sums gradients, `fsdp2` shards; `auto` shards above
    `shard_above_params`."""

    shard_above_params: int = Field(default=200_000_000, ge=0)
    """Trainable parameters from which `auto` shards."""


class ActorConfig(Section):
    """The learner."""

    micro_batch_size: int = Field(default=32, ge=1, le=MAX_COUNT)
    """Samples per forward and backward pass on one rank."""

    gradient_accumulation_steps: int = Field(default=1, ge=1, le=MAX_COUNT)
    """Micro-batches per optimizer step on one rank."""

    precision: Literal["fp32", "bf16"] = "fp32"
    """Compute type of the backbone; weights of the optimizer, log-probs and losses stay fp32."""

    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass."""

    optim: OptimConfig = OptimConfig()
    """Optimizer."""

    fsdp: FsdpConfig = FsdpConfig()
    """Sharding."""

    model: SerializeAsAny[ModelConfig]
    """The policy."""


class RolloutConfig(Section):
    """Policy inference in rollout."""

    pipeline_stage_num: int = Field(default=1, ge=1, le=MAX_COUNT)
    """S: groups of envs per rank; one simulates while the policy infers for the next."""
