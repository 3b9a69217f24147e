"""Names of the step metrics that console and performance summary read.

A job may put any other name into `Step.metrics` too; TensorBoard and W&B show them all. Prefixes:
`env/` what the simulators did, `rollout/` what the policy achieved in them, `train/` the update,
`sft/` behaviour cloning. Standard library alone.
"""

from __future__ import annotations

SUCCESS_RATE = "rollout/success_once"
"""Share of finished training episodes with a success, in [0, 1]."""

RETURN_MEAN = "rollout/return"
"""Mean undiscounted return of the training episodes, in reward units."""

ENV_STEPS = "env/steps"
"""Env steps that the simulators executed in this step, all ranks."""

SAMPLES = "train/samples"
"""Samples (chunks) that the optimizer saw in this step, all ranks and epochs."""

RATIO_MAX = "train/ratio_max"
"""Largest probability ratio of the step; 1 at the first update of a rollout."""

APPROX_KL = "train/approx_kl"
"""Mean KL estimate between the policy that acted and the updated one."""

CLIP_FRACTION = "train/clip_fraction"
"""Share of the ratios that were clipped."""

GRAD_NORM = "train/grad_norm"
"""Gradient norm before clipping, mean over the optimizer steps."""

SFT_LOSS = "sft/loss"
"""Imitation loss, mean over the log interval."""

SFT_ACTION_ERROR = "sft/action_error"
"""Mean absolute error of the predicted actions on demonstrations, in action units."""

SFT_GRAD_NORM = "sft/grad_norm"
"""Gradient norm before clipping."""
