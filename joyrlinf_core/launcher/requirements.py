"""What has to be there before a job is started. Imports nothing of it."""

from __future__ import annotations

from importlib.util import find_spec

from joyrlinf_core.config.schema import Config
from joyrlinf_core.errors import ConfigError, EnvironmentNotReadyError
from joyrlinf_core.plan.batching import eval_episodes
from joyrlinf_core.plan.run_plan import Job

PACKAGES = ("torch", "transformers", "safetensors", "sentencepiece")
"""What every worker imports."""


def check_ready(config: Config, job: Job) -> None:
    """Check that packages, simulators and what is asked are there, before anything is started.

    Raises:
        ConfigError: More held-out episodes are asked for than there are.
        EnvironmentNotReadyError: Something is missing; the error names its fix.
    """
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise EnvironmentNotReadyError(
            f"can't import {', '.join(missing)}: not installed in this Python",
            fix=f"pip install {' '.join(missing)}",
        )
    evaluation = config.eval_env
    wanted, available = eval_episodes(config, job), evaluation.num_eval_episodes_available
    if available is not None and wanted > available:
        raise ConfigError(
            message=f"env.eval.num_episodes is {wanted}, but {evaluation.type} has {available} "
            "held-out episodes",
            fix=f"--episodes {available} or fewer; a few hundred give a narrow interval",
        )
    config.env.train.check_ready()
    if config.env.eval is not None and config.env.eval.type != config.env.train.type:
        config.env.eval.check_ready()
