"""`JobContext`: what the worker hands to a job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from joyrlinf_core.observability.emitter import Emitter
    from joyrlinf_core.observability.run_dir import RunDir
    from joyrlinf_core.plan.run_plan import RunPlan


@dataclass(frozen=True)
class JobContext:
    """One worker process of a job.

    Attributes:
        plan: The plan, as read from `plan.json`.
        run_dir: The run directory; exists.
        rank: Global rank.
        world_size: Number of ranks; the default process group is up when it is above 1.
        device: Device of this rank.
        emitter: Appends events of this rank.
        stop_requested: True once this rank was asked to end after the current step (file or
            SIGTERM).
        fail: Ends this process with an error that another thread than the main one met.
    """

    plan: RunPlan
    run_dir: RunDir
    rank: int
    world_size: int
    device: torch.device
    emitter: Emitter
    stop_requested: Callable[[], bool]
    fail: Callable[[BaseException], None]
