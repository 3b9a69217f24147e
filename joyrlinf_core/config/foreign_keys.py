"""Keys of other toolkits (Hydra, RLinf and those like it), and what to write here instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Foreign(NamedTuple):
    """What stands in joyrl for a key of another toolkit."""

    target: str
    """The key that is meant: a name of the same section, a dotted key, or empty for none."""

    text: str
    """Fix of the finding."""


FOREIGN_KEYS: Mapping[str, Foreign] = {
    "defaults": Foreign("", "write `extends: NAME` with the name of one preset or file"),
    "hydra": Foreign("", "delete it; runs are kept under `runner.logger.log_path`"),
    "env_type": Foreign("type", "write `type`"),
    "simulator_type": Foreign("type", "write `type`"),
    "task_suite_name": Foreign("suite", "write `suite`"),
    "num_group_envs": Foreign(
        "total_num_envs", "write `total_num_envs`: all envs, a multiple of algorithm.group_size"
    ),
    "init_params": Foreign(
        "", "delete it; its keys stand in the section itself, as does `task_id`"
    ),
    "global_batch_size": Foreign(
        "actor.gradient_accumulation_steps",
        "joyrl counts micro_batch_size x gradient_accumulation_steps on each rank",
    ),
    "max_epochs": Foreign("runner.max_steps", "`runner.max_steps` counts training steps"),
    "only_eval": Foreign("", "delete it; `joyrl eval` evaluates"),
    "task_type": Foreign("", "delete it; the command says what runs: train, sft or eval"),
    "group_name": Foreign("", "delete it; roles are placed by `cluster.component_placement`"),
    "training_backend": Foreign("actor.fsdp", "delete it; `actor.fsdp` says how weights are kept"),
    "kl_beta": Foreign("", "delete it; the loss has no KL term"),
    "kl_penalty": Foreign("", "delete it; the loss has no KL term"),
    "project_name": Foreign(
        "runner.logger.experiment_name", "delete it; `runner.logger.experiment_name` names runs"
    ),
    "openpi": Foreign("", "delete it; the keys of a policy family stand in `actor.model` itself"),
}
"""Unknown key -> what it is here. Names that joyrl has somewhere are not in it."""

INTERPOLATION = "${"
"""Begin of a reference to another key or variable in those toolkits."""
