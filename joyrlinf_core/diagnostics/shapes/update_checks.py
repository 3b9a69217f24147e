"""Checks of the flat batch and of the update on it, against the rollout and against each other.

Each is a `CheckFunction`, see `outcome.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from joyrlinf_core.batch.flatten import flatten
from joyrlinf_core.batch.metrics import merge, values
from joyrlinf_core.diagnostics.shapes.outcome import (
    TOLERANCE,
    NotApplicableError,
    close,
    counted,
    fail,
    shape_text,
)
from joyrlinf_core.diagnostics.shapes.rows import address
from joyrlinf_core.diagnostics.shapes.run import without_policy_tensors
from joyrlinf_core.diagnostics.shapes.synthetic import marks

if TYPE_CHECKING:
    from torch import Tensor

    from joyrlinf_core.batch.train import TrainBatch
    from joyrlinf_core.diagnostics.shapes.run import ShapeRun
    from joyrlinf_core.diagnostics.shapes.synthetic import StandIn

_ROUNDING = 2e-6
"""Absolute error of a loss, whose terms are of the size of one and may cancel."""

_STEPS = 8
"""Optimizer steps whose losses are compared."""


def logprob_forms(run: ShapeRun) -> str:
    """Log-probs [T, B, C, D] and [T, B, C * D] give the same rows."""
    actor = run.actors[0]
    assert actor.result is not None
    stored = actor.rollout.prev_logprobs
    tokens = replace(actor.rollout, prev_logprobs=stored.flatten(2))
    found = [
        flatten(rollout, actor.result, run.algorithm.logprob_type).prev_logprobs
        for rollout in (actor.rollout, tokens)
    ]
    forms = f"{shape_text(stored)} and {shape_text(tokens.prev_logprobs)}"
    if not torch.equal(*found):
        fail(f"{forms} give different numbers")
    return f"{forms} both give {shape_text(found[0])}"


def logprob_level(run: ShapeRun) -> str:
    """A row's log-prob is the sum over the finer axes of its chunk."""
    for number, actor in enumerate(run.actors):
        flat = run.flat(number)
        stored = actor.rollout.prev_logprobs.double()
        columns = run.sizes.columns
        for n in _sample(run.sizes.samples):
            chunk = stored[n // columns, n % columns]
            level = flat.prev_logprobs.dim()
            expected = chunk.sum() if level == 1 else chunk.sum(-1) if level == 2 else chunk
            if not torch.allclose(
                flat.prev_logprobs[n].double(), expected, rtol=TOLERANCE, atol=TOLERANCE
            ):
                fail(f"row {n} is not the sum over chunk step {n // columns}, column {n % columns}")
    return f"{run.algorithm.logprob_type} under {run.algorithm.reward_type} advantages"


def row_order(run: ShapeRun) -> str:
    """Row n is chunk step n // B of column n % B, in every tensor."""
    for number, actor in enumerate(run.actors):
        flat, rollout = run.flat(number), actor.rollout
        result = actor.result
        assert result is not None
        t_eff, columns = run.sizes.t, run.sizes.columns
        n = torch.arange(run.sizes.samples)
        t, column = n // columns, n % columns
        wanted = {
            "column": column,
            "group": rollout.group[column],
            "versions": rollout.versions[t, column],
            "actions": rollout.actions[t, column],
            "advantages": result.advantages[t, column],
            "mask": result.mask[t, column],
            "weights": result.weights[t, column],
        }
        if rollout.prev_values is not None:
            wanted["prev_values"] = rollout.prev_values[t, column]
        if result.returns is not None:
            wanted["returns"] = result.returns[t, column]
        for name, expected in wanted.items():
            _same_rows(name, getattr(flat, name), expected, columns)
        played = rollout.played[t, column]
        for table, specs in (
            ("inputs", run.stored.inputs),
            ("replay", run.stored.replay),
        ):
            for name, spec in specs.items():
                if spec.nbytes:
                    first = getattr(flat, table)[name].reshape(t_eff * columns, -1)[:, 0]
                    expected = marks(spec, n) * played
                    _same_rows(f"{table}.{name}", first, expected.to(first.dtype), columns)
    return f"n = t * {run.sizes.columns} + column for all {run.sizes.samples} rows of each actor"


def stored_once(run: ShapeRun) -> str:
    """Rows are views of the rollout where nothing is computed; observations are stored once."""
    actor, flat = run.actors[0], run.flat(0)
    count = 0
    for table in ("inputs", "replay"):
        for name, value in getattr(flat, table).items():
            stored = getattr(actor.rollout, table)[name]
            if address(value) != address(stored):
                fail(f"{table}.{name} is copied")
            count += 1
    return f"{count} policy tensors are views"


def minibatches(run: ShapeRun) -> str:
    """Each sample is in one optimizer step of an update epoch, of each group equally many."""
    sizes = run.sizes
    per_group = sizes.t * sizes.group_size
    for actor in range(sizes.actors):
        flat = run.flat(actor)
        for epoch in range(min(2, run.algorithm.update_epoch)):
            steps = run.minibatches(flat, epoch)
            lengths = {len(rows) for rows in steps}
            if lengths != {sizes.step_rows}:
                fail(f"steps of {sorted(lengths)} samples, expected {sizes.step_rows}")
            if not torch.equal(torch.cat(steps).sort().values, torch.arange(sizes.samples)):
                fail(f"update epoch {epoch} misses samples, or has some twice")
            shares = {
                count
                for rows in steps
                for count in flat.group[rows].unique(return_counts=True)[1].tolist()
            }
            if per_group % len(steps) == 0 and shares != {per_group // len(steps)}:
                fail(f"a group has {sorted(shares)} samples in a step")
    return (
        f"{sizes.samples} samples = {counted(sizes.optimizer_steps, 'step')} x "
        f"{sizes.step_rows // sizes.micro_batch} micro-batches x {sizes.micro_batch}"
    )


def first_ratio(run: ShapeRun) -> str:
    """Before the first optimizer step all ratios are one: rows kept their log-probs."""
    outputs = [
        run.loss(without_policy_tensors(run.flat(actor)), run.policy, run.normaliser)
        for actor in range(run.sizes.actors)
    ]
    found = values(merge(output.metrics for output in outputs))
    names = [name for name in ("ratio_min", "ratio_max") if name in found]
    if not names:
        raise NotApplicableError("the loss tells no ratio, or no entry is trained on")
    error = max(abs(found[name] - 1) for name in names)
    text = f"|ratio - 1| is at most {error:.2g}"
    if not error <= TOLERANCE:
        fail(text)
    return text


def micro_batches(run: ShapeRun) -> str:
    """Losses and gradients of micro-batches add up to those of the whole step."""
    summed, at_once = run.moved_policy(), run.moved_policy()
    count = min(run.sizes.optimizer_steps, _STEPS)
    steps, whole = [0.0] * count, [0.0] * count
    active = 0
    for actor in range(run.sizes.actors):
        flat = without_policy_tensors(run.flat(actor))
        for step, rows in enumerate(run.minibatches(flat, 0)[:count]):
            loss, metrics = run.step_loss(flat, rows, summed)
            active += int(metrics["samples"].value()) if metrics else 0
            output = run.loss(flat.rows(rows), at_once, run.normaliser)
            output.loss.backward()
            steps[step] += loss
            whole[step] += float(output.loss.detach())
    for step, (found, expected) in enumerate(zip(steps, whole, strict=True)):
        if not close(found, expected, _ROUNDING):
            fail(f"step {step}: {found:.6g} from micro-batches, {expected:.6g} at once")
    _same_gradient(summed, at_once)
    rows = run.sizes.actors * run.sizes.step_rows * count
    return f"{_steps(run, count)}: {active} of {rows} rows can change the loss, others are left out"


def optimizer_steps(run: ShapeRun) -> str:
    """Losses of optimizer steps add up to that of their samples at once."""
    policy = run.moved_policy()
    count = min(run.sizes.optimizer_steps, _STEPS)
    parts = whole = 0.0
    for actor in range(run.sizes.actors):
        flat = without_policy_tensors(run.flat(actor))
        steps = run.minibatches(flat, 0)[:count]
        whole += _loss(run, flat.rows(torch.cat(steps)), policy)
        parts += sum(_loss(run, flat.rows(rows), policy) for rows in steps)
    if not close(parts, whole, _ROUNDING):
        fail(f"{parts:.6g} from {_steps(run, count)}, {whole:.6g} at once")
    return f"{_steps(run, count)} x {counted(run.sizes.actors, 'actor')}: {whole:.6g}"


def _loss(run: ShapeRun, rows: TrainBatch, policy: StandIn) -> float:
    return float(run.loss(rows, policy, run.normaliser).loss.detach())


def _same_rows(name: str, found: Tensor, expected: Tensor, columns: int) -> None:
    if found.shape != expected.shape:
        fail(f"{name} is {shape_text(found)}, expected {shape_text(expected)}")
    wrong = (found != expected).reshape(len(expected), -1).any(1)
    if wrong.any():
        n = int(wrong.nonzero()[0])
        fail(
            f"{name}: {int(wrong.sum())} of {len(wrong)} rows; row {n} is not chunk step "
            f"{n // columns} of column {n % columns}"
        )


def _same_gradient(summed: StandIn, at_once: StandIn) -> None:
    found, expected = summed.step.grad, at_once.step.grad
    if expected is None:
        return
    if found is None:
        found = torch.zeros_like(expected)
    scale = float(expected.abs().max())
    error = float((found - expected).abs().max())
    if not error <= _ROUNDING + TOLERANCE * scale:
        fail(f"gradients differ by {error:.2g}, the largest is {scale:.2g}")


def _sample(samples: int) -> Sequence[int]:
    """Return up to about 64 rows, spread out."""
    return range(0, samples, max(1, samples // 64))


def _steps(run: ShapeRun, count: int) -> str:
    every = run.sizes.optimizer_steps
    if count < every:
        return f"first {count} of {every} steps"
    return counted(count, "step")
