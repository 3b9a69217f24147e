from __future__ import annotations

import math

import pytest
import torch

from joyrlinf_core.policies.openpi import sampler

CPU = torch.device("cpu")
STD = {
    3: (0.5, 0.4082, 0.2041),
    4: (0.5, 0.4330, 0.25, 0.1443),
    5: (0.5, 0.4472, 0.2739, 0.1826, 0.1118),
}


@pytest.mark.parametrize("num_steps", STD)
def test_flow_sde_std_table(num_steps):
    table = sampler.step_table("flow_sde", num_steps, 0.5, CPU)
    torch.testing.assert_close(table.std, torch.tensor(STD[num_steps]), atol=5e-5, rtol=0)
    assert table.std[0] == 0.5
    assert float(table.std[-1]) == pytest.approx(0.5 / math.sqrt(num_steps * (num_steps - 1)))


def reference(method, x, v, index, num_steps, a):
    """Mean and std by the definitions: weights of the action and the noise estimate."""
    delta = 1 / num_steps
    t = 1 - index * delta
    action, noise = x - t * v, x + (1 - t) * v
    w0, w1, std = 1 - (t - delta), t - delta, 0.0
    if method == "flow_sde":
        denominator = 1 - t if index > 0 else delta
        sigma = a * math.sqrt(t / denominator)
        w1 -= sigma**2 * delta / (2 * t)
        std = sigma * math.sqrt(delta)
    elif method == "flow_cps":
        std = (t - delta) * math.sin(math.pi * a / 2)
        w1 *= math.cos(math.pi * a / 2)
    return w0 * action + w1 * noise, std


@pytest.mark.parametrize("method", ["flow_sde", "flow_cps", "flow_noise"])
@pytest.mark.parametrize("num_steps", [2, 3, 4, 10])
def test_transitions_equal_their_definition(method, num_steps):
    table = sampler.step_table(method, num_steps, 0.4, CPU)
    x, v = torch.randn(50), torch.randn(50)
    for index in range(num_steps):
        mean, std = reference(method, x, v, index, num_steps, 0.4)
        ours = table.of_x[index] * x + table.of_v[index] * v
        torch.testing.assert_close(ours, mean, atol=2e-6, rtol=0)
        if method == "flow_noise":
            assert table.std[index].isnan()
        else:
            assert float(table.std[index]) == pytest.approx(std, abs=1e-7)


@pytest.mark.parametrize("num_steps", [3, 4, 5])
def test_flow_sde_closed_form(num_steps):
    table = sampler.step_table("flow_sde", num_steps, 0.5, CPU)
    x, v, delta = torch.randn(50), torch.randn(50), 1 / num_steps
    for index in range(num_steps):
        t = float(table.times[index])
        sigma = float(table.std[index]) / math.sqrt(delta)
        mean = x - delta * (v + sigma**2 / (2 * t) * (x + (1 - t) * v))
        ours = table.of_x[index] * x + table.of_v[index] * v
        torch.testing.assert_close(ours, mean, atol=2e-6, rtol=0)


def test_flow_sde_equals_the_other_time_direction():
    """With s = 1 - t and velocity action - noise, as GR00T has it."""
    table, delta = sampler.step_table("flow_sde", 4, 0.5, CPU), 0.25
    x, v = torch.randn(50), torch.randn(50)
    for index in range(4):
        s, other = index * delta, -v
        sigma = 0.5 * math.sqrt((1 - s) / (s or delta))
        mean = x + delta * other - sigma**2 * delta / (2 * (1 - s)) * (x - s * other)
        ours = table.of_x[index] * x + table.of_v[index] * v
        torch.testing.assert_close(ours, mean, atol=2e-6, rtol=0)


def test_last_cps_step_has_no_noise():
    table = sampler.step_table("flow_cps", 4, 0.5, CPU)
    assert table.std[-1] == 0
    assert (table.std[:-1] > 0).all()


def test_learned_std_golden():
    std = sampler.learned_std(torch.tensor([-10.0, 0.0, 10.0]), (0.08, 0.16))
    torch.testing.assert_close(std, torch.tensor([0.08, 0.113137, 0.16]), atol=1e-6, rtol=0)


def test_log_prob_and_entropy():
    x, mean = torch.randn(20), torch.randn(20)
    std = torch.rand(20) + 0.1
    normal = torch.distributions.Normal(mean, std)
    torch.testing.assert_close(sampler.log_prob(x, mean, std), normal.log_prob(x))
    torch.testing.assert_close(sampler.entropy(std), normal.entropy())


def test_log_prob_without_noise_is_zero_and_has_a_finite_gradient():
    mean = torch.randn(3, requires_grad=True)
    value = sampler.log_prob(torch.randn(3), mean, torch.zeros(3))
    value.sum().backward()
    assert not value.any()
    assert mean.grad is not None
    assert not mean.grad.any()
