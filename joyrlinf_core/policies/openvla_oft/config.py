"""`OpenVlaOftConfig`: the keys of `actor.model` for OpenVLA-OFT. No torch at module level."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NoReturn

from pydantic import Field

from joyrlinf_core.config.schema.actor import ModelConfig
from joyrlinf_core.config.schema.base import MAX_CHUNK, MAX_COUNT
from joyrlinf_core.errors import EnvironmentNotReadyError

if TYPE_CHECKING:
    from joyrlinf_core.config.schema.env import EnvConfig
    from joyrlinf_core.config.schema.footprint import Footprint
    from joyrlinf_core.policies.base import NormStats, Policy


class OpenVlaOftConfig(ModelConfig):
    """OpenVLA-OFT with action tokens."""

    model_type: Literal["openvla_oft"] = "openvla_oft"
    """Policy family."""

    num_action_chunks: int = Field(default=8, ge=1, le=MAX_CHUNK)
    """C: actions that one call predicts and executes; the policy is trained for 8."""

    unnorm_key: str | None = None
    """Data set whose statistics scale actions back, as `dataset_statistics.json` names it, for
    example `libero_10_no_noops` or `bridge_orig`. None: the only one there is."""

    num_images_in_input: int = Field(default=1, ge=1, le=3)
    """Cameras that the policy reads, the first ones of the env."""

    max_prompt_length: int = Field(default=128, ge=1, le=MAX_COUNT)
    """Prompt tokens; shorter prompts are padded. Usual: 30 for ManiSkill, 128 for LIBERO."""

    center_crop: bool = True
    """Cut the central nine tenths out of a picture, as these policies were trained."""

    keep_stop_token: bool = False
    """Keep the stop token behind the action tokens. Checkpoints of SimpleVLA-RL and openvla-oft
    want it, those of RLinf do not."""

    n_action_bins: int = Field(default=256, ge=2, le=MAX_COUNT)
    """Action tokens: the last ones of the vocabulary."""

    temperature_train: float = Field(default=1.0, gt=0)
    """Temperature of sampling in rollout and of the log-probs. Usual: 1.0 for ManiSkill, 1.6 for
    LIBERO."""

    temperature_eval: float = Field(default=0.0, ge=0)
    """Temperature of sampling in evaluation; 0 takes the likeliest token."""

    lora_rank: int = Field(default=32, ge=0, le=MAX_COUNT)
    """Rank of the LoRA on every linear layer; 0 trains all weights."""

    lora_alpha: float | None = Field(default=None, gt=0)
    """Scale of the LoRA. None: `lora_rank`."""

    value_type: Literal["chunk_level", "action_level"] = "action_level"
    """Values of a chunk: one, or one an action. Must be `algorithm.reward_type`."""

    missing_runtime: ClassVar[str] = (
        "model type 'openvla_oft' can be planned in this version, but not run"
    )
    """See `ModelConfig`."""

    takes_adapter: ClassVar[bool] = True
    """See `ModelConfig`."""

    expected_levels: ClassVar[tuple[str, str]] = ("action_level", "token_level")
    """See `ModelConfig`."""

    @property
    def has_entropy(self) -> bool:
        """Always: actions are drawn from a table."""
        return True

    @property
    def planned_horizon(self) -> int:
        """H = C."""
        return self.num_action_chunks

    def footprint(self, env: EnvConfig, *, gradient_checkpointing: bool) -> Footprint:
        """Return what the policy stores and costs."""
        from joyrlinf_core.policies.openvla_oft import footprint

        return footprint.footprint(self, env, gradient_checkpointing=gradient_checkpointing)

    def create(self, env: EnvConfig, stats: NormStats, *, seed: int) -> Policy:
        """See `ModelConfig.create`; refuses in this version."""
        del env, stats, seed
        self._refuse()

    def load(self, directory: Path) -> Policy:
        """See `ModelConfig.load`; refuses in this version."""
        del directory
        self._refuse()

    def check_directory(self, directory: Path) -> list[str]:
        """Return what a policy directory lacks."""
        if not directory.is_dir():
            return [f"{directory} is no directory"]
        lacking = [] if (directory / "config.json").is_file() else ["no config.json"]
        if not list(directory.glob("*.safetensors")):
            lacking.append("no weights: *.safetensors")
        return lacking

    def _refuse(self) -> NoReturn:
        raise EnvironmentNotReadyError(
            self.missing_runtime, fix="joyrl presets list shows what runs"
        )
