"""`runner`: length of the run, evaluation, saving and logging."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from joyrlinf_core.config.schema.base import MAX_COUNT, Section


class LoggerConfig(Section):
    """Where metrics go."""

    log_path: str = "results"
    """Root of all run directories."""

    experiment_name: str = Field(default="joyrl", max_length=100)
    """Name of a folder below `log_path`; runs of one experiment stand side by side."""

    logger_backends: tuple[Literal["tensorboard", "wandb"], ...] = ("tensorboard",)
    """Metric sinks beside `events.jsonl`, which is always written."""

    @field_validator("experiment_name")
    @classmethod
    def _is_one_folder(cls, name: str) -> str:
        bad = set(name) & set("/\\") or not name.isprintable()
        if bad or name != name.strip() or name.strip(".") == "":
            raise ValueError("can't be the name of one folder; use letters, digits, `-` and `_`")
        return name


class RunnerConfig(Section):
    """The loop around rollout and update."""

    max_steps: int = Field(default=1000, ge=1, le=MAX_COUNT)
    """Training steps; one is a rollout and the updates on it."""

    max_seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Stop after the step that passes this many seconds of training; None has no limit."""

    val_check_interval: int = -1
    """Evaluate every this many steps; <= 0 never."""

    eval_at_start: bool = False
    """Evaluate once before the first step, so that the run shows its own baseline."""

    eval_at_end: bool = False
    """Evaluate once after the last step."""

    save_interval: int = -1
    """Write a checkpoint every this many steps; <= 0 only at the end and on a stop request."""

    keep_checkpoints: int = Field(default=2, ge=1, le=MAX_COUNT)
    """Newest checkpoints that stay on disk."""

    resume_dir: str | None = None
    """A `.../checkpoints/global_step_<N>` directory to start from; set by `joyrl resume`."""

    stuck_after_seconds: float = Field(default=600.0, ge=0, allow_inf_nan=False)
    """End the run when a rank has not got on for so long; says which one, and where. Three times as
    long while a rank loads, saves or starts simulators. 0 never."""

    seed: int = Field(default=0, ge=0)
    """Seed of everything random in the run."""

    logger: LoggerConfig = LoggerConfig()
    """Metric sinks and paths."""
