"""Checks of a rollout and its advantages, against the script of the rollout and the layout table.

Each is a `CheckFunction`, see `outcome.py`.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from joyrlinf_core.algorithms.groups import group_statistics
from joyrlinf_core.algorithms.scores import trajectories
from joyrlinf_core.diagnostics.shapes.outcome import (
    TOLERANCE,
    NotApplicableError,
    close,
    counted,
    fail,
)
from joyrlinf_core.diagnostics.shapes.rows import dtype_name
from joyrlinf_core.diagnostics.shapes.script import group_scores

if TYPE_CHECKING:
    from collections.abc import Iterable

    from joyrlinf_core.diagnostics.shapes.rows import Entry
    from joyrlinf_core.diagnostics.shapes.run import Actor, ShapeRun
    from joyrlinf_core.diagnostics.shapes.script import GroupScore


def layout(entries: Iterable[Entry], run: ShapeRun) -> str:
    """Every tensor has the shape and type of the layout table."""
    wrong: list[str] = []
    count = 0
    for entry in entries:
        count += 1
        found = tuple(entry.value.shape), dtype_name(entry.value)
        expected = entry.expected(run.sizes)
        if found != expected:
            wrong.append(
                f"{entry.name} is {_shown(*found)}, expected [{', '.join(entry.axes)}"
                f"{', ...' if entry.spec else ''}] = {_shown(*expected)}"
            )
    if wrong:
        fail("; ".join(wrong))
    return f"{count} tensors"


def whole_groups(run: ShapeRun) -> str:
    """Each actor holds whole groups, every env is on one actor."""
    sizes, envs = run.planned, run.plan.batch.num_envs
    size = sizes.group_size
    held: list[tuple[range, int]] = []
    for actor in range(sizes.actors):
        parts = run.env_ids(actor)
        count = sum(map(len, parts))
        if count != sizes.columns:
            fail(f"actor {actor} gets {count} columns, expected B = {sizes.columns}")
        column = 0
        for ids in parts:
            if column % size or ids.start % size or len(ids) % size:
                group = ids.start // size
                fail(f"column {column} of actor {actor} is of group {group}, its neighbours not")
            held.append((ids, actor))
            column += len(ids)
    held.sort(key=lambda one: one[0].start)
    for (ids, actor), (others, other) in pairwise(held):
        if others.start < ids.stop:
            group = others.start // size
            if actor == other:
                fail(f"actor {actor} gets an env twice, of group {group}")
            fail(f"group {group} is on actors {actor} and {other}")
    groups = sum(len(ids) for ids, _ in held) // size
    if groups != envs // size:
        fail(f"{groups} groups are dealt, expected {envs // size}")
    return (
        f"{counted(sizes.actors, 'actor')} x {counted(sizes.groups, 'group')} of {size} = "
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
            fail(
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
        fail(f"{changed} advantages change with rewards of 1e6 after the end")
    return f"1e6 put on {int(after.sum())} actions"


def scores(run: ShapeRun) -> str:
    """Scores of episodes, and mean and variance of groups, are those of the script."""
    episodes = groups = varied = 0
    for actor in run.actors:
        assert actor.mask is not None
        table = trajectories(actor.rollout, actor.mask)
        for one in actor.episodes:
            found = float(table.score[one.place, one.column])
            if not close(found, one.score):
                fail(
                    f"episode {one.number} of column {one.column} scores {found:.6g}, "
                    f"expected {one.score:.6g}"
                )
        statistics = group_statistics(table, actor.rollout.group)
        expected = _expected_groups(run, actor)
        if len(expected) != len(statistics.size):
            fail(f"{len(statistics.size)} groups, expected {len(expected)}")
        for index, key in enumerate(sorted(expected)):
            score = expected[key]
            mean = sum(score.scores) / len(score.scores)
            found = (int(statistics.size[index]), bool(statistics.varied[index]))
            if found != (len(score.scores), score.varied) or not close(
                float(statistics.mean[index]), mean
            ):
                fail(
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
                fail(
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
                fail(f"{name}: {bad} not finite, {outside} not zero outside the mask")
        masked, total = masked + int((~result.mask).sum()), total + result.mask.numel()
        weight += float(result.weights.double().sum())
        whole += result.total_weight
    if weight > whole * (1 + TOLERANCE):
        fail(f"weights sum to {weight:.6g}, more than total_weight {whole:.6g}")
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
            wrong = [value for value in found.tolist() if not close(value, wanted)]
            if wrong:
                fail(
                    f"episode {one.number} of column {one.column} has {wrong[0]:.6g}, "
                    f"expected {wanted:.6g}"
                )
            count, zero = count + 1, zero + (wanted == 0)
    return f"{count} episodes, {zero} of them zero"


def _expected_groups(run: ShapeRun, actor: Actor) -> dict[tuple[int, int], GroupScore]:
    return group_scores(actor.episodes, run.algorithm, auto_reset=run.env.auto_reset)


def _own_estimators_only(run: ShapeRun) -> None:
    if run.algorithm.adv_type not in ("grpo", "gae"):
        raise NotApplicableError(f"algorithm.adv_type: {run.algorithm.adv_type}")


def _shown(shape: tuple[int, ...], dtype: str) -> str:
    return f"{list(shape)} {dtype}"
