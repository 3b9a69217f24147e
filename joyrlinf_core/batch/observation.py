"""`Observation`: what envs hand to policies. No torch at module level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Observation:
    """Observation of b environments in the rank's process, as a policy takes it.

    Attributes:
        images: uint8 [b, V, H, W, 3], RGB, upright.
        state: float32 [b, S], unnormalised.
        task: int64 [b], index into `prompts`.
        prompts: Instruction of each task.
    """

    images: Tensor
    state: Tensor
    task: Tensor
    prompts: tuple[str, ...]

    def rows(self, index: Tensor) -> Observation:
        """Return the rows at `index` int64 [m]."""
        return Observation(self.images[index], self.state[index], self.task[index], self.prompts)

    def put(self, index: Tensor, rows: Observation) -> None:
        """Overwrite the rows at `index` int64 [m] in place."""
        self.images[index] = rows.images
        self.state[index] = rows.state
        self.task[index] = rows.task
