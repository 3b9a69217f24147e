"""The checks of `shape-check`: each returns the numbers that it saw, or raises `Mismatch`.

They compare what the batch code made of a rollout with the script of that rollout, with the layout
table of `batch/layout.py`, or with the same thing computed another way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import torch

from joyrlinf_core.algorithms.groups import group_statistics
from joyrlinf_core.algorithms.scores import trajectories
from joyrlinf_core.batch.flatten import flatten
from joyrlinf_core.batch.metrics import merge, values
from joyrlinf_core.diagnostics import shape_rows
from joyrlinf_core.diagnostics.shape_run import without_policy_tensors
from joyrlinf_core.diagnostics.shape_script import group_scores
from joyrlinf_core.diagnostics.synthetic import marks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from joyrlinf_core.batch.train import TrainBatch
    from joyrlinf_core.diagnostics.shape_rows import Entry
    from joyrlinf_core.diagnostics.shape_run import Actor, ShapeRun
    from joyrlinf_core.diagnostics.shape_script import GroupScore
    from joyrlinf_core.diagnostics.synthetic import StandIn

CheckFunction = Callable[["ShapeRun"], str]

_TOLERANCE = 1e-4
"""Relative error of float32 sums that are taken in another order."""

_ROUNDING = 2e-6
"""Absolute error of a loss, whose terms are of the size of one and may cancel."""

_STEPS = 8
"""Optimizer steps whose losses are compared."""


class Mismatch(Exception):  # noqa: N818 - it is no error of joyrl, it is what a check found
    """A check failed; the text says what was found and what was expected."""


class NotApplicableError(Exception):
    """A check says nothing about this config; the text says why."""


def layout(entries: Iterable[Entry], run: ShapeRun) -> str:
    """Every tensor has the shape and type of the layout table."""
    wrong: list[str] = []
    count = 0
    for entry in entries:
        count += 1
        found = tuple(entry.value.shape), shape_rows.dtype_name(entry.value)
        expected = entry.expected(run.sizes)
        if found != expected:
            wrong.append(
                f"{entry.name} is {_shown(*found)}, expected [{', '.join(entry.axes)}"
                f"{', ...' if entry.spec else ''}] = {_shown(*expected)}"
            )
    if wrong:
        _fail("; ".join(wrong))
    return f"{count} tensors"


def whole_groups(run: ShapeRun) -> str:
    """Each actor holds whole groups, every env is on one actor."""
    sizes, envs = run.planned, run.plan.batch.num_envs
    holder: dict[int, int] = {}
    for actor in range(sizes.actors):
        ids = run.env_ids(actor)
        if len(ids) != sizes.columns:
            _fail(f"actor {actor} gets {len(ids)} columns, expected B = {sizes.columns}")
        for column, env_id in enumerate(ids):
            group = env_id // sizes.group_size
            if holder.setdefault(group, actor) != actor:
                _fail(f"group {group} is on actors {holder[group]} and {actor}")
            if group != ids[column - column % sizes.group_size] // sizes.group_size:
                _fail(f"column {column} of actor {actor} is of group {group}, its neighbours not")
        if len(set(ids)) != len(ids):
            _fail(f"actor {actor} gets an env twice")
    if len(holder) != envs // sizes.group_size:
        _fail(f"{len(holder)} groups are dealt, expected {envs // sizes.group_size}")
    return (
        f"{sizes.actors} actors x {sizes.groups} groups of {sizes.group_size} = "
        f"{envs} envs, no group on two actors"
    )


def masks(run: ShapeRun) -> str:
    """The mask keeps executed actions, the ending one included, and nothing after it."""
    kept = total = inside = 0
    for number, actor in enumerate(run.actors):
        assert actor.mask is not None
        executed = actor.script.executed
        wrong = actor.mask.valid != executed
        if wrong.any():
            t, column, action = wrong.nonzero()[0].tolist()
            _fail(
                f"{int(wrong.sum())} of {wrong.numel()} actions; the first is t {t}, column "
                f"{column}, action {action} of actor {number}: "
                f"{'kept' if executed[t, column, action] < 1 else 'dropped'}"
            )
        kept, total = kept + int(executed.sum()), total + executed.numel()
        inside += sum(one.ended and one.actions % run.sizes.chunk != 0 for one in actor.episodes)
    return f"{kept} of {total} actions kept; {inside} episodes end inside a chunk"


def rewards_after_the_end(run: ShapeRun) -> str:
    """A reward after the end of an episode changes no advantage."""
    actor = run.actors[0]
    after = ~actor.script.executed
    garbage = replace(actor.rollout, rewards=actor.rollout.rewards.masked_fill(after, 1e6))
    clean, dirty = (run.advantages_of([one])[0] for one in (actor.rollout, garbage))
    changed = int((clean.advantages != dirty.advantages).sum())
    if changed:
        _fail(f"{changed} advantages change with rewards of 1e6 after the end")
    return f"1e6 put on {int(after.sum())} actions"


def scores(run: ShapeRun) -> str:
    """Scores of episodes, and mean and variance of groups, are those of the script."""
    episodes = groups = varied = 0
    for actor in run.actors:
        assert actor.mask is not None
        table = trajectories(actor.rollout, actor.mask)
        for one in actor.episodes:
            found = float(table.score[one.place, one.column])
            if not _close(found, one.score):
                _fail(
                    f"episode {one.number} of column {one.column} scores {found:.6g}, "
                    f"expected {one.score:.6g}"
                )
        statistics = group_statistics(table, actor.rollout.group)
        expected = _expected_groups(run, actor)
        if len(expected) != len(statistics.size):
            _fail(f"{len(statistics.size)} groups, expected {len(expected)}")
        for index, key in enumerate(sorted(expected)):
            score = expected[key]
            mean = sum(score.scores) / len(score.scores)
            found = (int(statistics.size[index]), bool(statistics.varied[index]))
            if found != (len(score.scores), score.varied) or not _close(
                float(statistics.mean[index]), mean
            ):
                _fail(
                    f"group {key[0]}, episode {key[1]}: {found[0]} scores of mean "
                    f"{float(statistics.mean[index]):.6g}, expected {len(score.scores)} of "
                    f"{mean:.6g}"
                )
        episodes, groups = episodes + len(actor.episodes), groups + len(expected)
        varied += sum(score.varied for score in expected.values())
    return f"{episodes} episodes in {groups} groups, {varied} with variance"


def filtered(run: ShapeRun) -> str:
    """The reward filter keeps the groups whose mean score lies within its bounds."""
    _own_estimators_only(run)
    kept = total = 0
    for actor in run.actors:
        assert actor.result is not None
        rows = actor.result.mask if actor.result.mask.dim() == 2 else actor.result.mask[..., 0]
        expected = _expected_groups(run, actor)
        for one in actor.episodes:
            score = expected.get((one.group, one.number))
            if score is None or not (one.ended or not run.env.auto_reset):
                continue
            if bool(rows[one.start, one.column]) != score.kept:
                _fail(
                    f"group {one.group} with mean {sum(score.scores) / len(score.scores):.6g} is "
                    f"{'dropped' if score.kept else 'kept'}"
                )
        kept += sum(score.kept for score in expected.values())
        total += len(expected)
    algorithm = run.algorithm
    if not algorithm.filter_rewards:
        return f"off: {kept} of {total} groups kept"
    bounds = f"[{algorithm.rewards_lower_bound:g}, {algorithm.rewards_upper_bound:g}]"
    return f"{kept} of {total} groups kept, bounds {bounds}"


def masked_entries(run: ShapeRun) -> str:
    """Advantages and weights are finite, and zero outside the mask."""
    masked = total = 0
    weight = whole = 0.0
    for actor in run.actors:
        result = actor.result
        assert result is not None
        for name in ("advantages", "weights"):
            entries = getattr(result, name)
            bad = int((~torch.isfinite(entries)).sum())
            outside = int((entries[~result.mask] != 0).sum())
            if bad or outside:
                _fail(f"{name}: {bad} not finite, {outside} not zero outside the mask")
        masked, total = masked + int((~result.mask).sum()), total + result.mask.numel()
        weight += float(result.weights.double().sum())
        whole += result.total_weight
    if weight > whole * (1 + _TOLERANCE):
        _fail(f"weights sum to {weight:.6g}, more than total_weight {whole:.6g}")
    return f"{masked} of {total} entries masked; weights sum to {weight:.6g} of {whole:.6g}"


def group_advantages(run: ShapeRun) -> str:
    """GRPO: (score - mean) / (std + 1e-6) of the group, the same for all actions."""
    if run.algorithm.adv_type != "grpo":
        raise NotApplicableError(f"algorithm.adv_type: {run.algorithm.adv_type}")
    zero = count = 0
    for actor in run.actors:
        assert actor.result is not None
        expected = _expected_groups(run, actor)
        for one in actor.episodes:
            score = expected.get((one.group, one.number))
            if score is None or not (one.ended or not run.env.auto_reset):
                continue
            wanted = score.advantage(one.score) if score.kept else 0.0
            end = one.start + one.chunks(run.sizes.chunk)
            rows = actor.result.advantages[one.start : end, one.column]
            mask = actor.result.mask[one.start : end, one.column]
            found = rows[mask] if score.kept else rows.flatten()
            wrong = [value for value in found.tolist() if not _close(value, wanted)]
            if wrong:
                _fail(
                    f"episode {one.number} of column {one.column} has {wrong[0]:.6g}, "
                    f"expected {wanted:.6g}"
                )
            count, zero = count + 1, zero + (wanted == 0)
    return f"{count} episodes, {zero} of them zero"


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
    if not torch.equal(*found):
        _fail(f"{_shape(stored)} and {_shape(tokens.prev_logprobs)} give different numbers")
    return f"{_shape(stored)} and {_shape(tokens.prev_logprobs)} both give {_shape(found[0])}"


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
                flat.prev_logprobs[n].double(), expected, rtol=_TOLERANCE, atol=_TOLERANCE
            ):
                _fail(
                    f"row {n} is not the sum over chunk step {n // columns}, column {n % columns}"
                )
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
            if shape_rows.address(value) != shape_rows.address(stored):
                _fail(f"{table}.{name} is copied")
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
                _fail(f"steps of {sorted(lengths)} samples, expected {sizes.step_rows}")
            if not torch.equal(torch.cat(steps).sort().values, torch.arange(sizes.samples)):
                _fail(f"update epoch {epoch} misses samples, or has some twice")
            shares = {
                count
                for rows in steps
                for count in flat.group[rows].unique(return_counts=True)[1].tolist()
            }
            if per_group % len(steps) == 0 and shares != {per_group // len(steps)}:
                _fail(f"a group has {sorted(shares)} samples in a step")
    config = run.plan.config.actor
    return (
        f"{sizes.samples} samples = {sizes.optimizer_steps} steps x "
        f"{config.gradient_accumulation_steps} micro-batches x {config.micro_batch_size}"
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
    if not error <= _TOLERANCE:
        _fail(text)
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
        if not _close(found, expected, _ROUNDING):
            _fail(f"step {step}: {found:.6g} from micro-batches, {expected:.6g} at once")
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
    if not _close(parts, whole, _ROUNDING):
        _fail(f"{parts:.6g} from {_steps(run, count)}, {whole:.6g} at once")
    return f"{_steps(run, count)} x {run.sizes.actors} actors: {whole:.6g}"


def _loss(run: ShapeRun, rows: TrainBatch, policy: StandIn) -> float:
    return float(run.loss(rows, policy, run.normaliser).loss.detach())


def _expected_groups(run: ShapeRun, actor: Actor) -> dict[tuple[int, int], GroupScore]:
    return group_scores(actor.episodes, run.algorithm, auto_reset=run.env.auto_reset)


def _own_estimators_only(run: ShapeRun) -> None:
    if run.algorithm.adv_type not in ("grpo", "gae"):
        raise NotApplicableError(f"algorithm.adv_type: {run.algorithm.adv_type}")


def _same_rows(name: str, found: Tensor, expected: Tensor, columns: int) -> None:
    if found.shape != expected.shape:
        _fail(f"{name} is {_shape(found)}, expected {_shape(expected)}")
    wrong = (found != expected).reshape(len(expected), -1).any(1)
    if wrong.any():
        n = int(wrong.nonzero()[0])
        _fail(
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
    if not error <= _ROUNDING + _TOLERANCE * scale:
        _fail(f"gradients differ by {error:.2g}, the largest is {scale:.2g}")


def _sample(samples: int) -> Sequence[int]:
    """Return up to about 64 rows, spread out."""
    return range(0, samples, max(1, samples // 64))


def _close(found: float, expected: float, absolute: float = _TOLERANCE) -> bool:
    return abs(found - expected) <= absolute + _TOLERANCE * abs(expected)


def _fail(text: str) -> NoReturn:
    raise Mismatch(text)


def _shape(value: Tensor) -> str:
    return str(list(value.shape))


def _shown(shape: tuple[int, ...], dtype: str) -> str:
    return f"{list(shape)} {dtype}"


def _steps(run: ShapeRun, count: int) -> str:
    every = run.sizes.optimizer_steps
    if count < every:
        return f"first {count} of {every} steps"
    return "1 step" if count == 1 else f"{count} steps"
