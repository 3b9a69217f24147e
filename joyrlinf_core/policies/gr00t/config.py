"""`Gr00tConfig`: the keys of `actor.model` for GR00T N1.5. No torch at module level."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NoReturn

from pydantic import Field, ValidationInfo, field_validator

from joyrlinf_core.config.schema.actor import ModelConfig
from joyrlinf_core.config.schema.base import MAX_COUNT
from joyrlinf_core.errors import EnvironmentNotReadyError
from joyrlinf_core.policies.gr00t.architecture import Architecture

if TYPE_CHECKING:
    from joyrlinf_core.config.schema.env import EnvConfig
    from joyrlinf_core.config.schema.footprint import Footprint
    from joyrlinf_core.policies.base import NormStats, Policy

EMBODIMENTS: dict[str, int] = {
    "agibot_genie1": 26,
    "gr1": 24,
    "isaaclab_franka": 31,
    "libero_franka": 31,
    "libero_panda": 2,
    "maniskill_widowx": 30,
    "oxe_droid": 17,
}
"""Number of an embodiment's own encoder and decoder, where all known checkpoints agree on it."""

METADATA = "experiment_cfg/metadata.json"


class Gr00tConfig(ModelConfig):
    """GR00T N1.5."""

    model_type: Literal["gr00t"] = "gr00t"
    """Policy family."""

    denoising_steps: int = Field(default=4, ge=1, le=MAX_COUNT)
    """K: denoise steps per prediction."""

    noise_method: Literal["flow_sde", "flow_cps", "flow_noise"] = "flow_sde"
    """How rollout explores: an SDE with the flow's marginals, coefficient-preserving sampling, or a
    learned noise level."""

    noise_level: float = Field(default=0.5, gt=0)
    """a: strength of the noise of `flow_sde` and `flow_cps`."""

    noise_logvar_range: tuple[float, float] = (0.08, 0.16)
    """Smallest and largest standard deviation of `flow_noise`."""

    joint_logprob: bool = False
    """True: every denoise step is noisy and scored. False: one random step of each prediction."""

    ignore_last: bool = Field(default=False, validate_default=True)
    """Never choose the last denoise step as the noisy one."""

    logprob_reduction: Literal["mean", "sum"] = "mean"
    """Joint log-prob over the K + 1 terms of a chain: `mean` tempers the ratio, `sum` is exact."""

    embodiment_id: int | None = Field(default=None, ge=0, lt=32)
    """Number of the embodiment's own encoder and decoder. None: that of `embodiment_tag`."""

    embodiment_tag: str = Field(default="libero_franka", validate_default=True)
    """Robot, as `experiment_cfg/metadata.json` names it; chooses statistics and encoders. One that
    joyrl does not know needs `embodiment_id`."""

    tune_llm: bool = False
    """Also train the language model."""

    tune_visual: bool = False
    """Also train the vision tower."""

    disable_dropout: bool = True
    """Switch the head's dropout of 0.2 off; rollout and update would otherwise disagree."""

    padding_value: int = Field(default=570, ge=1, le=MAX_COUNT)
    """Length that pictures (256 tokens each) and prompt are padded to. The head reads padding too,
    so it must be the same in training, rollout and evaluation."""

    detach_critic_input: bool = False
    """Keep the value loss from reaching anything but the value head."""

    use_vlm_value: bool = False
    """The value head reads the backbone's features alone, not the state."""

    tokenizer_path: str | None = None
    """Directory of the Qwen tokenizer, which checkpoints do not hold. None: the policy
    directory."""

    missing_runtime: ClassVar[str] = (
        "model type 'gr00t' can be planned in this version, but not run"
    )
    """See `ModelConfig`."""

    @field_validator("ignore_last")
    @classmethod
    def _a_noisy_step_is_left(cls, skip: bool, info: ValidationInfo) -> bool:  # noqa: FBT001
        steps, method = info.data.get("denoising_steps"), info.data.get("noise_method")
        if steps == 1 and (skip or method == "flow_cps"):
            raise ValueError(
                f"leaves no noisy step with `denoising_steps: 1` and `noise_method: {method}`; use "
                "denoising_steps 2 or more"
            )
        return skip

    @field_validator("noise_logvar_range")
    @classmethod
    def _range_is_one(cls, bounds: tuple[float, float]) -> tuple[float, float]:
        if not 0 < bounds[0] <= bounds[1]:
            raise ValueError("needs 0 < smallest <= largest")
        return bounds

    @field_validator("embodiment_tag")
    @classmethod
    def _tag_has_a_number(cls, tag: str, info: ValidationInfo) -> str:
        if tag not in EMBODIMENTS and info.data.get("embodiment_id") is None:
            raise ValueError(
                f"has no known number; set `embodiment_id` as well, or use one of "
                f"{', '.join(EMBODIMENTS)}"
            )
        return tag

    @field_validator("disable_dropout")
    @classmethod
    def _dropout_is_off(cls, off: bool) -> bool:  # noqa: FBT001
        if not off:
            raise ValueError("must be true: with dropout the log-probs of an update are noise")
        return off

    @property
    def has_entropy(self) -> bool:
        """Whether the noise level is learned."""
        return self.noise_method == "flow_noise"

    @property
    def planned_horizon(self) -> int:
        """H = 16."""
        return Architecture().horizon

    def footprint(self, env: EnvConfig, *, gradient_checkpointing: bool) -> Footprint:
        """Return what the policy stores and costs."""
        from joyrlinf_core.policies.gr00t import footprint

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
        wanted = ("config.json", METADATA)
        lacking = [f"no {name}" for name in wanted if not (directory / name).is_file()]
        if not list(directory.glob("*.safetensors")):
            lacking.append("no weights: *.safetensors")
        return lacking

    def _refuse(self) -> NoReturn:
        raise EnvironmentNotReadyError(
            self.missing_runtime, fix="joyrl presets list shows what runs"
        )
