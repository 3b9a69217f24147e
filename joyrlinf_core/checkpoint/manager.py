"""`CheckpointManager`: the checkpoints of one training run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from joyrlinf_core.checkpoint import archive, rng, store
from joyrlinf_core.checkpoint.manifest import CheckpointMeta, config_hash
from joyrlinf_core.errors import CheckpointError, JoyrlError

if TYPE_CHECKING:
    from joyrlinf_core.checkpoint.archive import Checkpoint
    from joyrlinf_core.comm.sharding import TrainingState
    from joyrlinf_core.plan.run_plan import RunPlan


class CheckpointManager:
    """Saves and loads checkpoints of a run, and keeps the newest few. Only rank 0 saves.

    Args:
        directory: The run's `checkpoints/`.
        keep: How many checkpoints stay on disk.
        plan: The run's plan: what a checkpoint belongs to.
    """

    def __init__(self, directory: Path, *, keep: int, plan: RunPlan) -> None:
        self._directory = directory
        self._keep = keep
        self._plan = plan

    def save(self, step: int, state: TrainingState, progress: Mapping[str, int | float]) -> Path:
        """Write the checkpoint of a step, then delete those that are too many.

        Args:
            step: Training steps finished.
            state: Full state of the learner.
            progress: Where the run stands; see `CheckpointMeta.progress`.

        Returns:
            The checkpoint's directory.

        Raises:
            CheckpointError: The disk is full or can't be written; older checkpoints are untouched.
        """
        config = self._plan.config
        path = self._directory / f"global_step_{step}"
        meta = CheckpointMeta(
            step=step,
            config_hash=config_hash(config),
            world_size=self._plan.placement.world_size,
            torch_version=str(torch.__version__),
            seed=config.runner.seed,
            progress=dict(progress),
            rng_states=rng.capture(),
        )
        archive.save(path, state.model, state.optimizer, state.scheduler, meta)
        resumed_from = config.runner.resume_dir
        store.prune(
            self._directory, self._keep, protect=Path(resumed_from) if resumed_from else None
        )
        return path

    def load(self, directory: Path) -> Checkpoint:
        """Read a checkpoint, of this or another run.

        Raises:
            CheckpointError: Files are missing or changed; the message lists all of them.
        """
        return archive.load(directory)


@contextmanager
def fitting(directory: Path) -> Iterator[None]:
    """Turn what torch raises at a state of other weights into a message that says what to do."""
    try:
        yield
    except JoyrlError:
        raise
    except (RuntimeError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{directory} does not fit the policy of this config: {error}",
            fix="leave the keys of actor.model as the run had them, or start a new run",
        ) from error


def load_model_state(directory: Path) -> tuple[int, dict[str, Any]]:
    """Return the step and the model's state dict of a `global_step_<N>` directory."""
    return archive.load_model(directory)
