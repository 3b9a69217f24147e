"""The whole config."""

from __future__ import annotations

from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Field, SerializeAsAny
from pydantic_core import PydanticCustomError

from joyrlinf_core import registry
from joyrlinf_core.config.schema.actor import ActorConfig as _ActorBase
from joyrlinf_core.config.schema.actor import ModelConfig, RolloutConfig
from joyrlinf_core.config.schema.algorithm import AlgorithmConfig
from joyrlinf_core.config.schema.base import Section
from joyrlinf_core.config.schema.cluster import ClusterConfig
from joyrlinf_core.config.schema.env import EnvConfig
from joyrlinf_core.config.schema.launcher import LauncherConfig
from joyrlinf_core.config.schema.profiler import ProfilerConfig
from joyrlinf_core.config.schema.runner import RunnerConfig
from joyrlinf_core.config.schema.sft import SftConfig


def _chosen(kind: registry.Kind, key: str, base: type[Section]) -> BeforeValidator:
    """Return a validator that picks the section's class by the name under `key`.

    A pydantic discriminated union would put the tag into the error path, which then is no path of
    the YAML.
    """

    def pick(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        name = cast("dict[str, Any]", value).get(key)
        if not isinstance(name, str):
            raise PydanticCustomError(
                "missing_name",
                "`{key}` must name one of: {known}",
                {"key": key, "known": ", ".join(registry.names(kind))},
            )
        try:
            cls = registry.load(kind, name)
        except registry.UnknownNameError as error:
            raise PydanticCustomError(
                "unknown_name",
                "unknown `{key}: {name}`; {told}",
                {
                    "key": key,
                    "name": name,
                    "known": ", ".join(error.known),
                    "told": error.reason or f"known: {', '.join(error.known)}",
                },
            ) from error
        if not (isinstance(cls, type) and issubclass(cls, base)):
            raise PydanticCustomError(
                "unknown_name",
                "`{key}: {name}` is no {base}",
                {"key": key, "name": name, "base": base.__name__},
            )
        return cls.model_validate(value)

    return BeforeValidator(pick)


AnyEnv = Annotated[SerializeAsAny[EnvConfig], _chosen("envs", "type", EnvConfig)]
AnyModel = Annotated[SerializeAsAny[ModelConfig], _chosen("policies", "model_type", ModelConfig)]


class MetaConfig(Section):
    """What `presets list` shows; nothing here changes a run."""

    title: str = ""
    """One line."""

    gpus: int = 0
    """GPUs that the preset is written for; 0 runs on CPU."""

    gpu_memory_gb: float | None = None
    """Memory per GPU that it needs."""

    extras: tuple[str, ...] = ()
    """Extras that must be installed."""

    expected: str = ""
    """Result and time to expect, on which machine."""

    aliases: tuple[str, ...] = ()
    """Other names of the preset."""


class EnvSection(Section):
    """Simulators for training and evaluation."""

    train: AnyEnv
    """Training env."""

    eval: AnyEnv | None = None
    """Evaluation env; inherits from `train` what it does not set. Must be there when evaluation is
    on."""


class ActorConfig(_ActorBase):
    """The learner."""

    model: AnyModel
    """The policy."""


class Config(Section):
    """A complete, validated run description."""

    meta: MetaConfig = MetaConfig()
    """Description of a preset."""

    cluster: ClusterConfig = ClusterConfig()
    """Hardware and placement."""

    launcher: LauncherConfig = LauncherConfig()
    """Start of the processes."""

    runner: RunnerConfig = RunnerConfig()
    """Length, evaluation, saving, logging."""

    algorithm: AlgorithmConfig = AlgorithmConfig()
    """Reinforcement learning."""

    env: EnvSection
    """Simulators."""

    actor: ActorConfig
    """Policy and learner."""

    rollout: RolloutConfig = Field(default_factory=RolloutConfig)
    """Policy inference."""

    sft: SftConfig | None = None
    """Behaviour cloning recipe of the policy that RL starts from."""

    profiler: ProfilerConfig = ProfilerConfig()
    """Traces."""

    @property
    def eval_env(self) -> EnvConfig:
        """The evaluation env, or the training env where none is set."""
        return self.env.eval or self.env.train
