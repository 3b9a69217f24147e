"""Rollout to loss: ranks, micro-batches and dropped rows change nothing; traps of 3.9 and 1.6."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest
import torch

from joyrlinf_core.algorithms.advantages import gae, grpo
from joyrlinf_core.algorithms.aggregation import normaliser
from joyrlinf_core.algorithms.base import AdvantageContext, LossInputs
from joyrlinf_core.algorithms.losses import actor, actor_critic
from joyrlinf_core.batch.flatten import flatten
from joyrlinf_core.batch.layout import split_tokens
from joyrlinf_core.batch.minibatch import active_rows, micro_batches, minibatch_rows
from joyrlinf_core.batch.rollout import RolloutBatch
from joyrlinf_core.config.schema import AlgorithmConfig

MINIBATCHES = 4


def _columns(batch: RolloutBatch, columns: slice) -> RolloutBatch:
    changed = {}
    for name, value in vars(batch).items():
        if name in ("inputs", "replay"):
            changed[name] = {key: item[:, columns] for key, item in value.items()}
        else:
            changed[name] = value[columns] if name == "group" else value[:, columns]
    return RolloutBatch(**changed)


def _step_losses(
    shards: list[RolloutBatch], config: AlgorithmConfig, *, auto_reset: bool, size: int, drop: bool
) -> tuple[list[float], torch.Tensor]:
    """Return the loss of each optimizer step, and d loss / d policy summed over them.

    The policy is one number per dim of a chunk, added to the stored log-probs.
    """
    estimator = grpo if config.adv_type == "grpo" else gae
    loss = actor if config.loss_type == "actor" else actor_critic
    moments: list[torch.Tensor] = []
    for shard in shards:  # what the all-reduce would have seen
        keep = AdvantageContext(
            config, auto_reset=auto_reset, sum_over_actors=lambda v: moments.append(v) or v
        )
        estimator.compute(shard, keep)
    context = AdvantageContext(
        config, auto_reset=auto_reset, sum_over_actors=lambda _: torch.stack(moments).sum(0)
    )
    results = [estimator.compute(shard, context) for shard in shards]
    divisor = normaliser(sum(result.total_weight for result in results), MINIBATCHES)
    policy = torch.linspace(-0.4, 0.4, 6).reshape(3, 2).requires_grad_()
    losses = [0.0] * MINIBATCHES
    for shard, result in zip(shards, results, strict=True):
        flat = flatten(shard, result, config.logprob_type)
        tokens = split_tokens(shard.prev_logprobs, 3).flatten(0, 1)
        cuts = minibatch_rows(flat.group, MINIBATCHES, seed=1, step=2, update_epoch=0)
        for m, rows in enumerate(cuts):
            used = active_rows(flat, rows, policy_only=loss is actor) if drop else rows
            for piece in micro_batches(used, size):
                some = flat.rows(piece)
                out = loss.compute(
                    LossInputs(
                        logprobs=tokens[piece] + policy,
                        old_logprobs=some.prev_logprobs,
                        advantages=some.advantages,
                        mask=some.mask,
                        weights=some.weights,
                        normaliser=divisor,
                        values=None
                        if some.prev_values is None
                        else some.prev_values + policy.sum(),
                        old_values=some.prev_values,
                        returns=some.returns,
                    ),
                    config,
                )
                out.loss.backward()
                losses[m] += float(out.loss.detach())
    assert policy.grad is not None
    return losses, policy.grad


@pytest.mark.parametrize("auto_reset", [False, True])
@pytest.mark.parametrize(
    ("adv_type", "loss_type"), [("grpo", "actor"), ("gae", "actor_critic"), ("gae", "actor")]
)
@pytest.mark.parametrize(
    ("reward_type", "logprob_type"),
    [("chunk_level", "chunk_level"), ("action_level", "token_level")],
)
def test_ranks_and_micro_batches_change_nothing(
    random_rollout, reward_type, logprob_type, adv_type, loss_type, auto_reset
):
    """T_eff * G is 40 or 36: both divide by the number of minibatches."""
    config = AlgorithmConfig(
        adv_type=adv_type, loss_type=loss_type, reward_type=reward_type, logprob_type=logprob_type
    )
    batch = random_rollout(11, auto_reset=auto_reset, groups=4)
    one, gradient = _step_losses([batch], config, auto_reset=auto_reset, size=1000, drop=False)
    for cut, size in ((8, 5), (4, 3)):
        shards = [_columns(batch, slice(0, cut)), _columns(batch, slice(cut, 16))]
        two, again = _step_losses(shards, config, auto_reset=auto_reset, size=size, drop=True)
        assert two == pytest.approx(one, abs=1e-5)
        torch.testing.assert_close(again, gradient, atol=1e-5, rtol=1e-5)
    assert any(abs(value) > 1e-3 for value in one)


@pytest.mark.parametrize("level", ["chunk_level", "action_level"])
def test_minibatch_losses_average_to_the_mean_over_trajectories(random_rollout, level):
    """At ratio 1 the loss of an entry is minus its advantage."""
    batch = random_rollout(2, auto_reset=False)
    config = AlgorithmConfig(reward_type=level, logprob_type=level)
    result = gae.compute(batch, AdvantageContext(config))
    flat = flatten(batch, result, level)
    divisor = normaliser(result.total_weight, 1)
    got = -(flat.advantages * flat.weights).sum() / divisor
    means = []
    for column in range(batch.shape[1]):
        for k in batch.episode[:, column].unique():
            rows = batch.episode[:, column] == k
            entries = result.advantages[rows, column][result.mask[rows, column]]
            means.append(-entries.mean())
    torch.testing.assert_close(got, torch.stack(means).mean(), atol=1e-6, rtol=1e-5)


def test_long_and_short_trajectories_pull_equally(rollout):
    """Success after one chunk against failure after eight: the two weights cancel."""
    t, c = 8, 2
    dones = torch.zeros(t, 2, c)
    dones[0, 0, 1] = 1
    rewards = dones.clone()
    played = torch.ones(t, 2, dtype=torch.bool)
    played[1:, 0] = False
    batch = rollout(rewards, dones, played=played)
    result = grpo.compute(batch, AdvantageContext(AlgorithmConfig()))
    pull = (result.advantages * result.weights).sum(0)
    torch.testing.assert_close(pull[0], -pull[1])
    assert pull[0] > 0.5


def test_actions_after_the_end_teach_nothing(random_rollout):
    """Garbage in rewards after a done leaves every advantage as it was."""
    batch = random_rollout(4, auto_reset=False)
    config = AlgorithmConfig(reward_type="action_level", logprob_type="action_level")
    clean = grpo.compute(batch, AdvantageContext(config))
    garbage = batch.rewards.masked_fill(~clean.mask, 1e6)
    dirty = grpo.compute(dataclasses.replace(batch, rewards=garbage), AdvantageContext(config))
    assert torch.equal(clean.advantages, dirty.advantages)


def test_registered_modules_import_no_torch():
    """`joyrl validate` looks names up where torch is not installed."""
    code = (
        "import sys; from joyrlinf_core import registry\n"
        "assert registry.names('advantages') == ['gae', 'grpo'], registry.names('advantages')\n"
        "assert registry.names('losses') == ['actor', 'actor_critic'], registry.names('losses')\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
