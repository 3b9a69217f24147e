"""`build_vec_env`: builds the vector env of a config, with or without processes of its own.

The one place that chooses between `local.py` and `subproc.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from joyrlinf_core.envs.local import LocalVecEnv
from joyrlinf_core.envs.subproc import SubprocVecEnv

if TYPE_CHECKING:
    from joyrlinf_core.config.schema import EnvConfig
    from joyrlinf_core.envs.base import VecEnv


def build_vec_env(config: EnvConfig, num_envs: int, *, group_size: int = 1) -> VecEnv:
    """Build `num_envs` environments of one rank and pipeline stage.

    Simulator processes go on starting after the return; the first `reset` waits for them.

    Args:
        config: Env section; `num_workers` 0 steps in this process, else that many processes.
        num_envs: Slots.
        group_size: Consecutive slots that usually start from one state; they stay in one process
            where that splits evenly.

    Raises:
        MissingExtraError: The simulator's package is not installed.
        EnvironmentNotReadyError: It can't run on this machine.
    """
    config.check_ready()
    if config.num_workers == 0:
        return LocalVecEnv(config, num_envs)
    return SubprocVecEnv(config, num_envs, num_workers=config.num_workers, group_size=group_size)
