"""The policy of a config, as training starts with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from joyrlinf_core.errors import RunFailedError

if TYPE_CHECKING:
    from joyrlinf_core.engine.context import JobContext
    from joyrlinf_core.policies.base import Policy


def load_policy(context: JobContext) -> Policy:
    """Return the policy in `actor.model.model_path`, on CPU, in the precision of the run."""
    actor = context.plan.config.actor
    if actor.model.model_path is None:
        raise RunFailedError("actor.model.model_path is not set", fix="set it, or add `sft`")
    policy = actor.model.load(Path(actor.model.model_path))
    policy.set_precision(actor.precision)
    policy.set_gradient_checkpointing(enabled=actor.gradient_checkpointing)
    return policy
