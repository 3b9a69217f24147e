"""Denoise steps as Gaussian transitions, and their log-probabilities.

Time runs t_i = 1 - i / K from 1 (noise) to 0 (action); the velocity v estimates noise - action.
Every method's mean is linear in x and v, so a step is three numbers: mean = of_x * x + of_v * v,
standard deviation std. Methods:

- `flow_sde`: the SDE of Flow-GRPO (arXiv 2505.05470), used for action chunks in pi-RL (2510.25889).
- `flow_cps`: coefficients-preserving sampling (arXiv 2509.05952).
- `flow_noise`: a learned std around the ODE mean, as in ReinFlow (arXiv 2505.22094) and pi-RL.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

NoiseMethod = Literal["flow_sde", "flow_cps", "flow_noise"]


@dataclass(frozen=True)
class StepTable:
    """The transitions of K denoise steps.

    Attributes:
        times: float32 [K], t_i.
        of_x: float32 [K], factor of x in the noisy mean.
        of_v: float32 [K], factor of v in the noisy mean.
        std: float32 [K], standard deviation; 0 where the method leaves the step without noise, NaN
            where it is learned.
    """

    times: Tensor
    of_x: Tensor
    of_v: Tensor
    std: Tensor

    @property
    def ode(self) -> float:
        """Factor of v in a step without noise; x has the factor 1."""
        return -1.0 / len(self.times)


def step_table(
    method: NoiseMethod, num_steps: int, noise_level: float, device: torch.device
) -> StepTable:
    """Return the transitions of a method, computed in double precision.

    Args:
        method: How steps are noised.
        num_steps: K.
        noise_level: a.
        device: Where the table lives.
    """
    delta = 1.0 / num_steps
    rows = []
    for index in range(num_steps):
        t = 1.0 - index * delta
        later = 1.0 - (index + 1) * delta
        w0, w1, std = 1.0 - later, later, math.nan
        if method == "flow_sde":
            # At t = 1 the marginal variance ratio is infinite; the next time stands in for it.
            sigma = noise_level * math.sqrt(t / (1.0 - t if index else delta))
            w1 = later - sigma**2 * delta / (2.0 * t)
            std = sigma * math.sqrt(delta)
        elif method == "flow_cps":
            last = index == num_steps - 1
            w1 = 0.0 if last else later * math.cos(0.5 * math.pi * noise_level)
            std = 0.0 if last else later * math.sin(0.5 * math.pi * noise_level)
        # Action estimate x - t v, noise estimate x + (1 - t) v.
        rows.append((t, w0 + w1, w1 * (1.0 - t) - w0 * t, std))
    columns = torch.tensor(rows, dtype=torch.float64).T.to(device, torch.float32)
    return StepTable(*columns.unbind(0))


def learned_std(output: Tensor, bounds: tuple[float, float]) -> Tensor:
    """Return the standard deviation of a noise head's raw output, between `bounds`.

    The log-variance is interpolated, so that an output of 0 gives the geometric mean.
    """
    low, high = (math.log(bound) for bound in bounds)
    return torch.exp(low + (high - low) * 0.5 * (torch.tanh(output) + 1.0))


def log_prob(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Return the log-density of a normal distribution per element; 0 where std is 0."""
    noisy = std > 0
    safe = torch.where(noisy, std, 1.0)
    density = -0.5 * ((x - mean) / safe).square() - safe.log() - 0.5 * math.log(2.0 * math.pi)
    return torch.where(noisy, density, 0.0)


def entropy(std: Tensor) -> Tensor:
    """Return the entropy of a normal distribution per element."""
    return 0.5 * math.log(2.0 * math.pi * math.e) + std.log()
