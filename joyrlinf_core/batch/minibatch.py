"""Which rows go into which optimizer step, and in which micro-batches.

Every group shuffles its own rows with a seed made of (run seed, step, update epoch, group). Rows
are then dealt by their place in the group's order, so every minibatch holds an equal share of every
group. With T_eff * G divisible by the number of minibatches, the m-th global minibatch holds the
same samples on any number of ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from joyrlinf_core import seeding
from joyrlinf_core.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from joyrlinf_core.batch.train import TrainBatch


def shuffled_rows(group: Tensor, *, seed: int, step: int, update_epoch: int) -> Tensor:
    """Return all rows in the order in which minibatches are cut from them.

    Args:
        group: int64 [N], global group number of each row; every group has as many rows.
        seed: Seed of the run.
        step: Training step.
        update_epoch: Pass over this rollout, from 0.

    Returns:
        int64 [N] on the CPU, a permutation of 0..N-1.
    """
    group = group.cpu()
    orders: list[Tensor] = []
    for number in group.unique(sorted=True).tolist():
        rows = (group == number).nonzero().squeeze(1)
        generator = torch.Generator()
        generator.manual_seed(seeding.stream(seed, "shuffle", step, update_epoch, number))
        orders.append(rows[torch.randperm(rows.numel(), generator=generator)])
    if len({order.numel() for order in orders}) > 1:
        raise ConfigError(
            message="the groups of one actor have unequal numbers of rows: "
            f"{sorted({order.numel() for order in orders})}",
            fix="deal whole groups of algorithm.group_size envs to every actor",
        )
    return torch.stack(orders, dim=1).flatten()


def minibatch_rows(
    group: Tensor, count: int, *, seed: int, step: int, update_epoch: int
) -> tuple[Tensor, ...]:
    """Return the rows of each optimizer step of one update epoch.

    Args:
        group: int64 [N], global group number of each row.
        count: M, optimizer steps per update epoch; divides N.
        seed: Seed of the run.
        step: Training step.
        update_epoch: Pass over this rollout, from 0.

    Returns:
        M tensors, each int64 [N / M] on the CPU.
    """
    if group.numel() % count:
        raise ConfigError(
            message=f"{group.numel()} samples do not divide into {count} optimizer steps; "
            f"{group.numel()} % {count} = {group.numel() % count}",
            fix="choose actor.micro_batch_size * actor.gradient_accumulation_steps so that it "
            "divides the samples per actor",
        )
    order = shuffled_rows(group, seed=seed, step=step, update_epoch=update_epoch)
    return order.chunk(count)


def active_rows(batch: TrainBatch, rows: Tensor, *, policy_only: bool) -> Tensor:
    """Return the rows that can change the loss; the others need no forward pass.

    Args:
        batch: The flat batch.
        rows: int64 [m], rows of a minibatch.
        policy_only: The loss has no value and no entropy term, so that a row whose advantages are
            all zero contributes nothing either.

    Returns:
        int64 [<= m], in the order of `rows`; empty when nothing is left.
    """
    used = batch.weights != 0
    if policy_only:
        used = used & (batch.advantages != 0)
    if used.dim() > 1:
        used = used.any(dim=1)
    return rows[used.cpu()[rows]]


def micro_batches(rows: Tensor, micro_batch_size: int) -> tuple[Tensor, ...]:
    """Cut rows into micro-batches of at most `micro_batch_size`; none when there are no rows."""
    return rows.split(micro_batch_size) if rows.numel() else ()
