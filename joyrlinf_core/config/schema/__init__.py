"""Config schema, one section a file."""

from joyrlinf_core.config.schema.actor import FsdpConfig, ModelConfig, OptimConfig, RolloutConfig
from joyrlinf_core.config.schema.algorithm import AlgorithmConfig
from joyrlinf_core.config.schema.cluster import ClusterConfig
from joyrlinf_core.config.schema.env import EnvConfig, EpisodeId
from joyrlinf_core.config.schema.footprint import Footprint, TensorSpec
from joyrlinf_core.config.schema.launcher import LauncherConfig
from joyrlinf_core.config.schema.profiler import ProfilerConfig
from joyrlinf_core.config.schema.root import ActorConfig, Config, EnvSection, MetaConfig
from joyrlinf_core.config.schema.runner import LoggerConfig, RunnerConfig
from joyrlinf_core.config.schema.sft import SftConfig

__all__ = [
    "ActorConfig",
    "AlgorithmConfig",
    "ClusterConfig",
    "Config",
    "EnvConfig",
    "EnvSection",
    "EpisodeId",
    "Footprint",
    "FsdpConfig",
    "LauncherConfig",
    "LoggerConfig",
    "MetaConfig",
    "ModelConfig",
    "OptimConfig",
    "ProfilerConfig",
    "RolloutConfig",
    "RunnerConfig",
    "SftConfig",
    "TensorSpec",
]
