"""`Recorder`: collects what happened in one rollout into a `RolloutBatch`.

Shapes: T chunk steps of all epochs, B columns of this rank, m rows of one call, C actions, D action
dims. Column, t and row are as in `rollout.py`; methods write step t of the columns int64 [m].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from joyrlinf_core.batch.rollout import RolloutBatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from joyrlinf_core.envs.base import ChunkStep
    from joyrlinf_core.policies.base import PolicyOutput


class Recorder:
    """Buffers [T, B, ...] of zeros; what did not play stays zero.

    Args:
        t_eff: T, chunk steps of all epochs.
        columns: B.
        chunk: C.
        group: int64 [B], global group number of each column.
    """

    def __init__(self, t_eff: int, columns: int, chunk: int, group: Tensor) -> None:
        self._shape = (t_eff, columns)
        self._group = group
        self._inputs: dict[str, Tensor] = {}
        self._replay: dict[str, Tensor] = {}
        self._fields: dict[str, Tensor] = {
            "rewards": torch.zeros(t_eff, columns, chunk),
            "dones": torch.zeros(t_eff, columns, chunk, dtype=torch.bool),
            "terminations": torch.zeros(t_eff, columns, chunk, dtype=torch.bool),
            "played": torch.zeros(t_eff, columns, dtype=torch.bool),
            "episode": torch.zeros(t_eff, columns, dtype=torch.int64),
            "task": torch.zeros(t_eff, columns, dtype=torch.int64),
            "success": torch.zeros(t_eff, columns, dtype=torch.bool),
            "versions": torch.zeros(t_eff, columns, dtype=torch.int64),
        }
        self.env_steps = 0
        self.policy_rows = 0

    def write_episode(self, t: int, columns: Tensor, *, episode: Tensor, task: Tensor) -> None:
        """Record episode number and task int64 [m] of columns, whether they play or wait."""
        self._fields["episode"][t, columns] = episode
        self._fields["task"][t, columns] = task

    def write_decision(
        self,
        t: int,
        columns: Tensor,
        *,
        inputs: Mapping[str, Tensor],
        output: PolicyOutput,
        version: int,
    ) -> None:
        """Record one policy call; inputs and output have the first axis m."""
        for name, value in inputs.items():
            self._buffer(self._inputs, name, value)[t, columns] = value
        for name, value in output.replay.items():
            self._buffer(self._replay, name, value)[t, columns] = value.cpu()
        self._buffer(self._fields, "actions", output.actions)[t, columns] = output.actions.cpu()
        logprobs = output.logprobs
        self._buffer(self._fields, "prev_logprobs", logprobs)[t, columns] = logprobs.cpu()
        if output.values is not None:
            values = output.values.cpu()
            self._buffer(self._fields, "prev_values", values)[t, columns] = values
        self._fields["played"][t, columns] = True
        self._fields["versions"][t, columns] = version
        self.policy_rows += len(columns)

    def write_result(self, t: int, columns: Tensor, result: ChunkStep, dones: Tensor) -> None:
        """Record what the simulators did with the chunk of step t."""
        self._fields["rewards"][t, columns] = result.rewards
        self._fields["dones"][t, columns] = dones
        self._fields["terminations"][t, columns] = result.terminations
        self._fields["success"][t, columns] = result.success
        self.env_steps += int(result.steps.sum())

    def write_next_values(self, t: int, columns: Tensor, values: Tensor) -> None:
        """Record the value float32 [m] of the observation after the chunk of step t."""
        self._buffer(self._fields, "next_values", values)[t, columns] = values.cpu()

    def batch(self) -> RolloutBatch:
        """Return the recorded rollout."""
        if "prev_values" in self._fields and "next_values" not in self._fields:
            self._fields["next_values"] = torch.zeros(self._shape)
        return RolloutBatch(
            inputs=self._inputs, replay=self._replay, group=self._group, **self._fields
        )

    def _buffer(self, table: dict[str, Tensor], name: str, value: Tensor) -> Tensor:
        if name not in table:
            table[name] = torch.zeros(*self._shape, *value.shape[1:], dtype=value.dtype)
        return table[name]
