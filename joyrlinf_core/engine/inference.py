"""`Inference`: policy calls on observations; its random numbers do not depend on the ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from joyrlinf_core import seeding
from joyrlinf_core.errors import NonFiniteError
from joyrlinf_core.policies.base import PolicyOutput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from joyrlinf_core.batch.observation import Observation
    from joyrlinf_core.policies.base import Mode, Policy


class Inference:
    """Acts for some of the envs of the run.

    Args:
        policy: The policy.
        device: Device of the forward pass.
        num_envs: E, envs of all ranks: random numbers are drawn for all of them and sliced.
        micro_batch: Rows per policy call; 0 takes all.
        lockstep_rows: Where sharded weights gather at each call, the most rows that any rank may
            have: fewer rows then make as many calls, the surplus ones for nothing. Else 0.
    """

    def __init__(
        self,
        policy: Policy,
        device: torch.device,
        *,
        num_envs: int,
        micro_batch: int = 0,
        lockstep_rows: int = 0,
    ) -> None:
        self._policy = policy
        self._device = device
        self._num_envs = num_envs
        self._micro_batch = micro_batch
        self._least_calls = -(-lockstep_rows // micro_batch) if micro_batch else 1
        self._drawn: tuple[tuple[int | str, ...], Mapping[str, Tensor]] | None = None

    @torch.no_grad()
    def act(
        self, observation: Observation, env_ids: Tensor, *, stream: tuple[int | str, ...]
    ) -> tuple[dict[str, Tensor], PolicyOutput]:
        """Explore in b envs.

        Args:
            observation: Of these envs, b rows.
            env_ids: int64 [b], numbers of the envs among those of all ranks; they choose from the
                drawn random numbers.
            stream: (seed, names...) of the random stream of this decision.

        Returns:
            The policy's inputs on CPU (to be stored), and its output.
        """
        draws = {name: value[env_ids] for name, value in self._draws(stream).items()}
        inputs = self._policy.prepare(observation)
        return inputs, self.forward(inputs, draws, "train")

    @torch.no_grad()
    def forward(
        self, inputs: Mapping[str, Tensor], draws: Mapping[str, Tensor], mode: Mode
    ) -> PolicyOutput:
        """Run the policy in micro-batches and check that its numbers are finite."""
        rows = len(next(iter(inputs.values())))
        size = self._micro_batch or rows
        micro_batches = [slice(first, first + size) for first in range(0, rows, size)]
        outputs = [self._predict(inputs, draws, mode, part) for part in micro_batches]
        for _ in range(len(outputs), self._least_calls):
            self._predict(inputs, draws, mode, slice(0, 1))
        output = outputs[0] if len(outputs) == 1 else PolicyOutput.concatenate(outputs)
        _check_finite(output, mode)
        return output

    def _predict(
        self, inputs: Mapping[str, Tensor], draws: Mapping[str, Tensor], mode: Mode, part: slice
    ) -> PolicyOutput:
        return self._policy.predict(
            {name: value[part].to(self._device) for name, value in inputs.items()},
            {name: value[part].to(self._device) for name, value in draws.items()},
            mode,
        )

    def _draws(self, stream: tuple[int | str, ...]) -> Mapping[str, Tensor]:
        # Stages of one chunk step share the stream, so the last draw is kept.
        if self._drawn is None or self._drawn[0] != stream:
            seed, *names = stream
            generator = torch.Generator().manual_seed(seeding.stream(int(seed), *names))
            self._drawn = (stream, self._policy.draw(generator, self._num_envs))
        return self._drawn[1]


def _check_finite(output: PolicyOutput, mode: Mode) -> None:
    named = {"actions": output.actions, "log-probs": output.logprobs, "values": output.values}
    for name, value in named.items():
        if value is not None and not torch.isfinite(value).all():
            raise NonFiniteError(
                f"the policy's {name} hold NaN or infinite numbers in {mode} mode",
                fix="lower actor.optim.lr, or start from an earlier checkpoint",
            )
