"""Checks that simulators return finite numbers; the first NaN or infinity ends the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from joyrlinf_core.errors import NonFiniteError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from joyrlinf_core.envs.base import ChunkStep


def check_result(result: ChunkStep, place: Callable[[int], str]) -> None:
    """Check rewards and observations of a chunk; see `check` for `place`."""
    check("reward", result.rewards, place)
    check("observation", result.observation.state, place)


def check(what: str, values: Tensor, place: Callable[[int], str]) -> None:
    """Check that simulators returned finite numbers.

    Args:
        what: Name of the values, for the message.
        values: float32 [m, ...].
        place: Says which env and episode a row in [0, m) belongs to.

    Raises:
        NonFiniteError: One is NaN or infinite; names the place of the first.
    """
    finite = torch.isfinite(values)
    if finite.all():
        return
    row = int((~finite.flatten(1).all(dim=1)).nonzero()[0])
    raise NonFiniteError(
        f"the simulator returned a NaN or infinite {what} in {place(row)}",
        fix="the physics of this episode became unstable, its actions were finite: check the "
        "action scale, or replay the episode in the simulator",
    )
