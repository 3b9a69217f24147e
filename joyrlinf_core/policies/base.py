"""Contract of the policy side.

No torch at module level; the runtime classes live in the family's own modules.

Shapes: b rows, C actions per chunk, D env action dims, S state length.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

    from joyrlinf_core.batch.observation import Observation
    from joyrlinf_core.config.schema import ModelConfig

Inputs = Mapping[str, "Tensor"]
"""What a policy reads of an observation, first axis b: uint8 images, float32 state, token ids and
their mask. This is stored in the rollout; nothing preprocessed is."""

Draws = Mapping[str, "Tensor"]
"""Random numbers of one policy call, first axis b. They are drawn for all envs of the run and
sliced, so that the number of ranks does not change a trajectory."""

Mode = Literal["train", "eval"]


@dataclass(frozen=True)
class FieldStats:
    """Statistics of one vector over the demonstrations, one number per dimension."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    q01: tuple[float, ...]
    q99: tuple[float, ...]


@dataclass(frozen=True)
class NormStats:
    """Normalisation statistics, as `norm_stats.json` holds them."""

    state: FieldStats
    actions: FieldStats


@dataclass(frozen=True)
class PolicyOutput:
    """Result of `predict`.

    Attributes:
        actions: float32 [b, C, D], in the env's units.
        logprobs: float32 [b, C, D]; zeros in eval mode.
        values: float32 [b], or None without a value head.
        replay: What `evaluate_actions` needs to score these actions again, first axis b (denoise
            chains, noised step).
    """

    actions: Tensor
    logprobs: Tensor
    values: Tensor | None
    replay: Mapping[str, Tensor] = field(default_factory=dict)

    @classmethod
    def concatenate(cls, parts: Sequence[PolicyOutput]) -> PolicyOutput:
        """Return the rows of several outputs in one, in order."""
        import torch

        values = [part.values for part in parts if part.values is not None]
        return cls(
            actions=torch.cat([part.actions for part in parts]),
            logprobs=torch.cat([part.logprobs for part in parts]),
            values=torch.cat(values) if values else None,
            replay={
                name: torch.cat([part.replay[name] for part in parts]) for name in parts[0].replay
            },
        )


@dataclass(frozen=True)
class ActionScores:
    """Result of `evaluate_actions`, with gradients: how the current weights rate stored actions.

    Attributes:
        logprobs: float32 [b, C, D] of the stored actions under the current weights.
        entropy: float32 [b], or None where the policy has none.
        values: float32 [b], or None without a value head.
    """

    logprobs: Tensor
    entropy: Tensor | None
    values: Tensor | None


@dataclass(frozen=True)
class Sharding:
    """How FSDP2 shards a policy.

    Attributes:
        units: Modules that are sharded one by one, inner first.
        root: Module that holds the units and every other weight.
        forward_methods: (module, method name) of sharded modules that compute outside `forward`.
    """

    units: Sequence[nn.Module]
    root: nn.Module
    forward_methods: Sequence[tuple[nn.Module, str]]


class Policy(Protocol):
    """A policy: an `nn.Module` (reached as `module`) with these methods.

    `evaluate_actions` of what `predict` returned, under the same weights, gives the same log-probs
    to 1e-5 in float32.
    """

    config: ModelConfig
    ratio_tolerance: float
    """Largest |ratio - 1| that is accepted at the first update of a rollout."""

    @property
    def module(self) -> nn.Module:
        """The torch module that holds every weight."""
        ...

    def prepare(self, observation: Observation) -> dict[str, Tensor]:
        """Tokenise prompts and pick what the policy reads; on CPU.

        Images stay uint8, the state unnormalised.
        """
        ...

    def draw(self, generator: Generator, n: int) -> dict[str, Tensor]:
        """Draw the random numbers of one `predict` call for n rows, on CPU."""
        ...

    def predict(self, inputs: Inputs, draws: Draws, mode: Mode) -> PolicyOutput:
        """Choose actions.

        `train` explores and scores; `eval` integrates the ODE from the drawn noise.
        """
        ...

    def evaluate_actions(self, inputs: Inputs, replay: Mapping[str, Tensor]) -> ActionScores:
        """Score stored actions under the current weights, with gradients."""
        ...

    def sft_loss(
        self, inputs: Inputs, actions: Tensor, valid: Tensor, generator: Generator
    ) -> Tensor:
        """Imitation loss, scalar.

        Args:
            inputs: As from `prepare`.
            actions: float32 [b, H, D] demonstrated actions from the frame on, in the env's units.
            valid: bool [b, H]; False where the demonstration had ended.
            generator: CPU generator of noise and times.
        """
        ...

    def set_precision(self, precision: Literal["fp32", "bf16"]) -> None:
        """Choose the compute type of the backbone; log-probs stay float32. Before `module.to`."""
        ...

    def set_gradient_checkpointing(self, *, enabled: bool) -> None:
        """Recompute activations in the backward pass."""
        ...

    @property
    def horizon(self) -> int:
        """H: actions that the policy predicts; C of them are executed."""
        ...

    def trainable_parameters(self) -> Iterable[tuple[str, nn.Parameter]]:
        """Named parameters that can get a gradient; everything else is frozen."""
        ...

    def sharding(self) -> Sharding:
        """Return how FSDP2 shards this policy."""
        ...

    def save(self, directory: Path) -> None:
        """Write a policy directory in the upstream layout; `directory` must not exist yet."""
        ...
