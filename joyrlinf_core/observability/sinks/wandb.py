"""Weights & Biases sink."""

from __future__ import annotations

import netrc
import os
from typing import Any

from joyrlinf_core.errors import MissingExtraError
from joyrlinf_core.observability.events import Record, RunStarted
from joyrlinf_core.observability.run_dir import RunDir
from joyrlinf_core.observability.sinks.scalars import scalars

STEP = "global_step"


class WandbSink:
    """Logs scalars; offline where no API key is known, and never asks for one.

    The run id is kept in the run directory, so that a resumed run goes on in the same curves.

    Args:
        run_dir: The run directory.
        project: Name of the project, here the experiment.
        config: Resolved config, shown beside the curves.

    Raises:
        MissingExtraError: The package is not installed.
    """

    def __init__(self, run_dir: RunDir, project: str, config: dict[str, Any]) -> None:
        try:
            import wandb
        except ImportError as error:
            raise MissingExtraError("wandb", "runner.logger.logger_backends: wandb") from error
        self._wandb: Any = wandb
        self._run_dir = run_dir
        self._project = project
        self._config = config
        self._run: Any = None

    def write(self, record: Record) -> None:
        """Log the scalars of one event."""
        if isinstance(record.event, RunStarted):
            self._open()
        step, values = scalars(record.event)
        if self._run is not None and values:
            # W&B's own step may only grow, which a repeated step of a resumed run would break.
            self._run.log({**values, STEP: step})

    def close(self) -> None:
        """Finish the W&B run."""
        if self._run is not None:
            self._run.finish()

    def _open(self) -> None:
        kept = self._run_dir.root / "wandb_run_id"
        run_id = kept.read_text(encoding="utf-8").strip() if kept.exists() else None
        self._run = self._wandb.init(
            project=self._project,
            name=self._run_dir.root.name,
            config=self._config,
            dir=str(self._run_dir.root),
            id=run_id,
            resume="allow",
            mode="online" if _has_key() else "offline",
        )
        kept.write_text(self._run.id, encoding="utf-8")
        self._run.define_metric(STEP)
        self._run.define_metric("*", step_metric=STEP)


def _has_key() -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc().authenticators("api.wandb.ai") is not None
    except (OSError, netrc.NetrcParseError):
        return False
