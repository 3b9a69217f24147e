"""Probability ratios, and the policy that the decoupled loss clips around."""

from __future__ import annotations

from typing import TYPE_CHECKING

from joyrlinf_core.batch.layout import expand_to, reduce_logprobs
from joyrlinf_core.errors import RunFailedError

if TYPE_CHECKING:
    from torch import Tensor

    from joyrlinf_core.algorithms.base import LossInputs
    from joyrlinf_core.config.schema import AlgorithmConfig


def current_logprobs(inputs: LossInputs, config: AlgorithmConfig) -> Tensor:
    """Return the current log-probs at the level of the stored ones.

    Raises:
        RunFailedError: Log-probs or advantages are not float32, or of another level than stored;
            half precision would drown small policy changes in rounding.
    """
    for name in ("logprobs", "old_logprobs", "advantages", "weights"):
        kind = str(getattr(inputs, name).dtype)
        if kind not in ("torch.float32", "torch.float64"):
            raise RunFailedError(
                f"the loss got {name} in {kind}, but needs float32",
                fix="make the policy compute its log-probs in float32",
            )
    logprobs = reduce_logprobs(inputs.logprobs, config.logprob_type)
    if logprobs.shape != inputs.old_logprobs.shape:
        raise RunFailedError(
            f"stored log-probs have shape {tuple(inputs.old_logprobs.shape)}, but "
            f"algorithm.logprob_type: {config.logprob_type} gives {tuple(logprobs.shape)}",
            fix="flatten the rollout with the same logprob_type as the loss",
        )
    return logprobs


def log_ratio(logprobs: Tensor, reference: Tensor, mask: Tensor, bound: float | None) -> Tensor:
    """Return log(pi / pi_reference), bounded, and zero outside the mask.

    Args:
        logprobs: Log-probs under pi.
        reference: Log-probs under the reference, same shape.
        mask: bool, same shape. Masked entries can hold anything, also what would overflow.
        bound: Largest absolute value; None has none.
    """
    difference = (logprobs - reference).masked_fill(~mask, 0.0)
    return difference if bound is None else difference.clamp(-bound, bound)


def proximal_logprobs(logprobs: Tensor, inputs: LossInputs) -> Tensor | None:
    """Return the detached log-probs that the decoupled loss clips around; None when it is off."""
    if inputs.proximal_logprobs is not None:
        return inputs.proximal_logprobs
    if inputs.versions is None or inputs.next_version is None:
        return None
    return interpolated_proximal(
        logprobs, inputs.old_logprobs, inputs.versions, inputs.next_version
    )


def interpolated_proximal(
    logprobs: Tensor, old_logprobs: Tensor, versions: Tensor, next_version: int
) -> Tensor:
    """Guess the log-probs under the weights one version before `next_version`.

    The versions that lie between the policy that acted and the one that learns are taken to be
    equally far apart in log-prob, so nothing has to be recomputed.

    Args:
        logprobs: Log-probs under the current weights.
        old_logprobs: Log-probs under the weights that acted, same shape.
        versions: int64 [m], version that acted.
        next_version: Version that this update makes.

    Returns:
        Detached, shape of `logprobs`; equal to `old_logprobs` where the sample is not older.
    """
    age = (next_version - versions).clamp(min=0)
    share = ((age - 1) / age.clamp(min=1)).clamp(0.0, 1.0)
    current = logprobs.detach()
    return old_logprobs + expand_to(share.to(current.dtype), current) * (current - old_logprobs)
