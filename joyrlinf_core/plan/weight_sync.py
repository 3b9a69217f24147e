"""`algorithm.weight_sync`: whether weights travel from GPU to GPU or through host memory."""

from __future__ import annotations

from joyrlinf_core.errors import EnvironmentNotReadyError
from joyrlinf_core.plan.ranks import device_of
from joyrlinf_core.plan.run_plan import Placement, RunPlan


def weights_over_nccl(plan: RunPlan, *, on_gpus: bool = True) -> bool:
    """Say whether the group `weights` uses NCCL beside Gloo, or Gloo alone.

    Args:
        plan: The plan.
        on_gpus: Whether policies run on GPUs.

    Raises:
        EnvironmentNotReadyError: The config insists on NCCL, which can't be had.
    """
    wanted, place = plan.config.algorithm.weight_sync, plan.placement
    if wanted == "gloo":
        return False
    ranks = {*place.actor_ranks[:1], *plan.traffic.weight_receivers}
    pair = on_one_gpu(place, ranks, mps=plan.config.launcher.mps)
    if on_gpus and pair is None:
        return True
    if wanted == "auto":
        return False
    reason = (
        "policies run on the CPU" if pair is None else f"ranks {pair[0]} and {pair[1]} share a GPU"
    )
    raise EnvironmentNotReadyError(
        f"`algorithm.weight_sync: nccl` can't be had: {reason}",
        fix="set algorithm.weight_sync: auto",
    )


def on_one_gpu(placement: Placement, ranks: set[int], *, mps: bool) -> tuple[int, int] | None:
    """Return two of the ranks that are on the same GPU, None where each has its own."""
    first: dict[tuple[int, int], int] = {}
    for rank in sorted(ranks):
        place = placement.node_of(rank), device_of(placement, rank, mps=mps)
        if place in first:
            return first[place], rank
        first[place] = rank
    return None
