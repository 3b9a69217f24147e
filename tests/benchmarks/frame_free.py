"""Meta-World without pictures, for measuring stepping alone; a module, so that it pickles."""

from __future__ import annotations

import numpy as np

from joyrlinf_core.envs.metaworld import Config


class _NoPicture:
    """Stands for the camera where only stepping is measured."""

    def __init__(self, size: int) -> None:
        self._picture = np.zeros((size, size, 3), np.uint8)

    def take(self, view: object, data: object) -> np.ndarray:
        return self._picture

    def close(self) -> None:
        return


class FrameFree(Config):
    """Meta-World whose pictures are black and cost nothing."""

    def build(self, num_slots: int):
        simulator = super().build(num_slots)
        for task in range(len(self.task_names)):
            simulator._world(task)
        simulator._camera.close()
        simulator._camera = _NoPicture(self.image_size)  # pyright: ignore[reportAttributeAccessIssue]
        return simulator
