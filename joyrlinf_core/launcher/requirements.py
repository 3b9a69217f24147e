"""What has to be there before a job is started. Imports nothing of it."""

from __future__ import annotations

from importlib.util import find_spec

from joyrlinf_core.config.schema import Config
from joyrlinf_core.errors import EnvironmentNotReadyError

PACKAGES = ("torch", "transformers", "safetensors", "sentencepiece")
"""What every worker imports."""


def check_ready(config: Config) -> None:
    """Check that packages and simulators are there, before anything is started.

    Raises:
        EnvironmentNotReadyError: Something is missing; the error names its fix.
    """
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise EnvironmentNotReadyError(
            f"can't import {', '.join(missing)}: not installed in this Python",
            fix=f"pip install {' '.join(missing)}",
        )
    config.env.train.check_ready()
    if config.env.eval is not None and config.env.eval.type != config.env.train.type:
        config.env.eval.check_ready()
