"""`launcher`: how the processes of a node are started."""

from __future__ import annotations

from joyrlinf_core.config.schema.base import Section


class LauncherConfig(Section):
    """Start of the processes."""

    mps: bool = False
    """Two processes share each GPU through CUDA MPS: one acts while the other learns.
    `cluster.gpus_per_node` counts processes and must be even: local ranks r and r + half of it are
    on one GPU."""
