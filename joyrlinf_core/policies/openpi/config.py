"""`OpenPiConfig`: the keys of `actor.model` for Pi0 and Pi0.5. No torch at module level."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from joyrlinf_core.config.schema.actor import ModelConfig
from joyrlinf_core.config.schema.base import MAX_COUNT
from joyrlinf_core.errors import CheckpointError, ConfigError
from joyrlinf_core.policies import norm_stats
from joyrlinf_core.policies.openpi import layout
from joyrlinf_core.policies.openpi.architecture import (
    FITTED,
    VARIANTS,
    Architecture,
    ArchitectureOverrides,
    Variant,
)
from joyrlinf_core.policies.openpi.settings import (
    Normalization,
    Settings,
    read_document,
    recorded,
)

if TYPE_CHECKING:
    from joyrlinf_core.config.schema.env import EnvConfig
    from joyrlinf_core.config.schema.footprint import Footprint
    from joyrlinf_core.policies.base import NormStats
    from joyrlinf_core.policies.openpi.policy import OpenPiPolicy

_RECORDED = (
    "normalization",
    "normalize_actions",
    "state_clip",
    "discrete_state_input",
    "pad_discrete_state",
    "asset_id",
    "tokenizer",
    "action_dim",
)


class OpenPiConfig(ModelConfig):
    """Pi0 and Pi0.5.

    Keys whose default is None belong to the policy directory: joyrl records them in `config.json`
    when it creates a policy and reads them back. Setting one to something else is an error.
    """

    model_type: Literal["openpi"] = "openpi"
    """Policy family."""

    variant: Variant = "pi05"
    """Sizes of a policy that is created from scratch, and of a directory that does not tell its
    own (upstream ones)."""

    architecture: ArchitectureOverrides = ArchitectureOverrides()
    """Sizes that replace those of `variant`."""

    num_steps: int = Field(default=4, ge=1, le=MAX_COUNT)
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

    ignore_last: bool = False
    """Never choose the last denoise step as the noisy one."""

    logprob_reduction: Literal["mean", "sum"] = "mean"
    """Joint log-prob over the K + 1 terms of a chain: `mean` tempers the ratio, `sum` is exact."""

    train_expert_only: bool = False
    """Freeze the vision tower and the language model."""

    detach_critic_input: bool = False
    """Keep the value loss from reaching anything but the value head."""

    discrete_state_input: bool | None = None
    """Put the state into the prompt as numbers 0-255 (Pi0.5 only). None: the directory's; from
    scratch, on for Pi0.5."""

    pad_discrete_state: bool | None = None
    """Pad the state before it goes into the prompt. None: the directory's; from scratch, off."""

    normalization: Normalization | None = None
    """Scaling of state and actions. None: the directory's; else mean_std for Pi0, quantile for
    Pi0.5."""

    normalize_actions: bool | None = None
    """Scale actions by their statistics. None: the directory's; else on."""

    state_clip: float | None = Field(default=None, ge=0)
    """Bound on the normalised state; 0 has none. None: the directory's; else 0."""

    asset_id: str | None = None
    """Directory of `norm_stats.json`. None: the only one there is; from scratch, `joyrl`."""

    tokenizer: Literal["sentencepiece", "bytes"] | None = None
    """Kind of tokenizer. None: the directory's; else sentencepiece."""

    tokenizer_path: str | None = None
    """SentencePiece `.model` file. None: the directory's; from scratch, one is trained on the env's
    prompts."""

    @model_validator(mode="after")
    def _steps_allow_noise(self) -> Self:
        if self.num_scored_steps < 1:
            raise ValueError(
                f"`num_steps: {self.num_steps}` leaves no noisy step for `noise_method: "
                f"{self.noise_method}` with `ignore_last: {str(self.ignore_last).lower()}`; "
                "use num_steps 2 or more"
            )
        low, high = self.noise_logvar_range
        if not 0 < low <= high:
            raise ValueError(f"`noise_logvar_range: [{low}, {high}]` needs 0 < smallest <= largest")
        return self

    @property
    def num_scored_steps(self) -> int:
        """Leading denoise steps that may be the noisy one; the last of `flow_cps` has no noise."""
        skip = self.ignore_last or self.noise_method == "flow_cps"
        return self.num_steps - (1 if skip else 0)

    @property
    def has_entropy(self) -> bool:
        """Whether the noise level is learned."""
        return self.noise_method == "flow_noise"

    @property
    def planned_horizon(self) -> int:
        """H, from the policy directory where it can be read, else from `variant`."""
        stored = self._stored_settings()
        if stored is not None:
            return stored.architecture.horizon
        return self.architecture.apply(VARIANTS[self.variant]).horizon

    @property
    def horizon_is_certain(self) -> bool:
        """Whether the policy directory or a key told H, or there is no directory."""
        told = self.model_path is None or self.architecture.horizon is not None
        return told or self._stored_settings() is not None

    def footprint(self, env: EnvConfig, *, gradient_checkpointing: bool) -> Footprint:
        """Return what the policy stores and costs.

        Sizes come from the policy directory where it can be read, else from `variant`.
        """
        from joyrlinf_core.policies.openpi import footprint

        settings = self._stored_settings()
        if settings is None:
            settings = self._settings_for(env)
            size = footprint.vocab_size(self, settings, env.task_prompts)
            architecture = replace(settings.architecture, vocab_size=size)
            settings = replace(settings, architecture=architecture)
        return footprint.footprint(
            self, settings, env, gradient_checkpointing=gradient_checkpointing
        )

    def create(self, env: EnvConfig, stats: NormStats, *, seed: int) -> OpenPiPolicy:
        """Build a policy with random weights for an env.

        Raises:
            ConfigError: The sizes do not fit each other or the env.
        """
        from joyrlinf_core.policies.openpi.create import create_policy

        self._refuse_lora()
        settings = self._settings_for(env)
        self._require(self.settings_problems(settings))
        return create_policy(self, settings, stats, env.task_prompts, seed=seed)

    def _stored_settings(self) -> Settings | None:
        """Return what the policy directory records, None where it can't be told."""
        if self.model_path is None:
            return None
        directory = Path(self.model_path).expanduser()
        try:
            return self.settings_of(directory) if directory.is_dir() else None
        except CheckpointError:
            return None  # `check_directory` says what is wrong with it

    def _settings_for(self, env: EnvConfig) -> Settings:
        """Return the settings of a new policy for `env`."""
        architecture = self._architecture_for(env)
        pi05 = architecture.family == "pi05"
        return Settings(
            architecture=architecture,
            action_dim=self.action_dim or env.action_dim,
            normalization=self.normalization or ("quantile" if pi05 else "mean_std"),
            normalize_actions=self.normalize_actions is not False,
            state_clip=self.state_clip or 0.0,
            discrete_state_input=(
                pi05 if self.discrete_state_input is None else self.discrete_state_input
            ),
            pad_discrete_state=bool(self.pad_discrete_state),
            asset_id=self.asset_id or "joyrl",
            tokenizer=self.tokenizer or "sentencepiece",
        )

    def load(self, directory: Path) -> OpenPiPolicy:
        """Load a policy directory.

        Raises:
            CheckpointError: A file is missing, or tensors are missing or left over.
            ConfigError: The config asks for something else than the directory holds.
        """
        from joyrlinf_core.policies.openpi.create import load_policy

        self._refuse_lora()
        problems = self.check_directory(directory)
        if problems:
            raise CheckpointError(
                f"policy directory {directory}: " + "; ".join(problems),
                fix="point actor.model.model_path at a complete policy directory",
            )
        return load_policy(self, directory)

    def check_directory(self, directory: Path) -> list[str]:
        """Return what a policy directory lacks, without torch; empty when `load` can start."""
        if not directory.is_dir():
            return [f"{directory} is no directory"]
        problems = []
        if not layout.find_weights(directory):
            problems.append(f"no weights: neither {layout.WEIGHTS_NAME} nor *.safetensors nor .pt")
        try:
            stored = recorded(read_document(directory), directory)
        except CheckpointError as error:
            return [*problems, error.message]
        asset_id = self.asset_id or (stored.asset_id if stored else None)
        stats = layout.find_norm_stats(directory, asset_id)
        if stats is None:
            problems.append(_missing_stats(directory, asset_id))
        kind = self.tokenizer or (stored.tokenizer if stored else "sentencepiece")
        if kind == "sentencepiece" and not layout.find_tokenizer(directory, self.tokenizer_path):
            where = self.tokenizer_path or "tokenizer.model (set actor.model.tokenizer_path)"
            problems.append(f"no tokenizer file {where}")
        if stats is not None:
            try:
                problems += self.settings_problems(self.settings_of(directory))
            except CheckpointError as error:
                problems.append(error.message)
        return problems

    def settings_of(self, directory: Path) -> Settings:
        """Return the settings of a directory that has statistics.

        Raises:
            CheckpointError: A file is broken, or a key of this config contradicts the directory.
        """
        document = read_document(directory)
        stored = recorded(document, directory)
        if stored is not None:
            self._refuse_contradiction(stored, directory)
            return stored
        architecture = self._upstream_architecture(document)
        pi05 = architecture.family == "pi05"
        stats_path = layout.find_norm_stats(directory, self.asset_id)
        if stats_path is None:
            raise CheckpointError(_missing_stats(directory, self.asset_id))
        stats = norm_stats.read_norm_stats(stats_path)
        root = directory / "assets" if (directory / "assets") in stats_path.parents else directory
        discrete = self.discrete_state_input
        if discrete is None:
            discrete = bool(document.get("discrete_state_input", False))
        return Settings(
            architecture=architecture,
            action_dim=self.action_dim or min(len(stats.actions.mean), architecture.action_dim),
            normalization=self.normalization or ("quantile" if pi05 else "mean_std"),
            normalize_actions=self.normalize_actions is not False,
            state_clip=self.state_clip or 0.0,
            discrete_state_input=discrete,
            pad_discrete_state=bool(self.pad_discrete_state),
            asset_id=stats_path.parent.relative_to(root).as_posix(),
            tokenizer=self.tokenizer or "sentencepiece",
        )

    def settings_problems(self, settings: Settings) -> list[str]:
        """Return where this config and the settings do not fit together."""
        architecture = settings.architecture
        found = [f"architecture: {text}" for text in architecture.problems()]
        if settings.action_dim > architecture.action_dim:
            found.append(
                f"the env's {settings.action_dim} action dims exceed the model's "
                f"{architecture.action_dim} (actor.model.architecture.action_dim)"
            )
        if self.num_action_chunks > architecture.horizon:
            found.append(
                f"num_action_chunks {self.num_action_chunks} exceeds the {architecture.horizon} "
                "actions that the model predicts (actor.model.architecture.horizon)"
            )
        if settings.discrete_state_input and architecture.family == "pi0":
            found.append("discrete_state_input needs Pi0.5; Pi0 has a state token")
        return found

    def _architecture_for(self, env: EnvConfig) -> Architecture:
        """Return the sizes of a new policy for `env`."""
        base = VARIANTS[self.variant]
        _, height, width, _ = env.image_shape
        if self.variant in FITTED:
            patch = self.architecture.patch_size or base.patch_size
            base = replace(
                base,
                image_size=max(max(height, width) // patch, 1) * patch,
                action_dim=self.action_dim or env.action_dim,
                state_dim=env.state_dim,
            )
        architecture = self.architecture.apply(base)
        if env.state_dim > architecture.state_dim:
            raise ConfigError(
                message=f"the env's {env.state_dim} state dims exceed the model's "
                f"{architecture.state_dim}",
                fix=f"actor.model.architecture.state_dim: {env.state_dim}",
            )
        return architecture

    def _upstream_architecture(self, document: dict[str, object]) -> Architecture:
        """Return the sizes of a directory that joyrl did not write."""
        base = VARIANTS[self.variant]
        keys = {
            "action_dim": ("action_dim", "max_action_dim"),
            "horizon": ("action_horizon", "chunk_size"),
            "max_token_len": ("max_token_len", "tokenizer_max_length"),
        }
        told = {
            ours: value
            for ours, names in keys.items()
            for name in names
            if isinstance(value := document.get(name), int)
        }
        if "action_dim" in told:
            told["state_dim"] = told["action_dim"]
        return self.architecture.apply(replace(base, **told))

    def _refuse_contradiction(self, stored: Settings, directory: Path) -> None:
        wrong = [
            f"{key} is {getattr(self, key)} here and {getattr(stored, key)} there"
            for key in _RECORDED
            if getattr(self, key) is not None and getattr(self, key) != getattr(stored, key)
        ]
        for key, value in self.architecture.model_dump(exclude_none=True).items():
            if value != getattr(stored.architecture, key):
                there = getattr(stored.architecture, key)
                wrong.append(f"architecture.{key} is {value} here and {there} there")
        if wrong:
            raise CheckpointError(
                f"actor.model contradicts {directory}: " + "; ".join(wrong),
                fix="leave these keys out, or make a policy directory with the new values",
            )

    def _refuse_lora(self) -> None:
        if self.lora_path is not None:
            raise ConfigError(
                message=f"actor.model.lora_path: {self.lora_path}: OpenPI policies take no adapter",
                fix="merge the adapter into the weights and leave lora_path out",
            )

    def _require(self, problems: list[str]) -> None:
        if problems:
            raise ConfigError(
                message="actor.model does not fit: " + "; ".join(problems),
                fix="change the named keys",
            )


def _missing_stats(directory: Path, asset_id: str | None) -> str:
    name = norm_stats.FILE_NAME
    if asset_id is not None:
        return f"no normalisation statistics at assets/{asset_id}/{name} or {asset_id}/{name}"
    count = len(list(directory.rglob(name)))
    if count > 1:
        return f"{count} files {name}: choose one with actor.model.asset_id"
    return f"no normalisation statistics: {name} is nowhere below {directory}"
