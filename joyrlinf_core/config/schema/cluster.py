"""`cluster`: nodes, ranks and which role runs where."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from joyrlinf_core.config.schema.base import MAX_COUNT, Section


class ClusterConfig(Section):
    """Hardware of the run and placement of the roles."""

    num_nodes: int = Field(default=1, ge=1, le=1024)
    """Number of machines."""

    gpus_per_node: int | None = Field(default=None, ge=1, le=256)
    """Processes per machine: one per GPU, or ranks on CPU. Inferred on one node from contiguous
    ranks."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where policies run. `auto` takes CUDA where the machine has it."""

    cpu_threads: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Torch threads per rank on CPU. None: cores of the machine / ranks per node."""

    placement_basis: Literal["global", "per_node"] = "global"
    """Whether `component_placement` names global ranks, or local ranks that repeat on every
    node."""

    component_placement: dict[str, str | int] = Field(
        default_factory=lambda: {"env,rollout,actor": "0"}
    )
    """Role (`env`, `rollout`, `actor`, comma-separated to set several) -> ranks: `all`, an int, or
    `0-3,6`."""
