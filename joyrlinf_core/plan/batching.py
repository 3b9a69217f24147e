"""Batch arithmetic: one place for every division that must come out even.

`BatchShape` holds the numbers as the config gives them; `violations` says which rules they break,
and `nearest` looks for values that break none.

The letters, here, in `run_plan.py`, and where rules and `joyrl train --dry-run` show the numbers:

    E      envs of all ranks
    W_a    actor ranks
    S      pipeline stages of one rank
    G      envs of one group, which start from one initial state
    C      actions of one chunk
    R      rollout epochs of one training step
    T      chunk steps of one rollout epoch: its env steps / C
    T_eff  chunk steps of one training step: R * T; the T of `batch/`
    B      columns of one actor's batch, one an env: E / W_a
    N      samples of one actor in one training step, one a chunk of one env: T_eff * B
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from math import lcm, log
from typing import Literal

from joyrlinf_core.config.schema import Config
from joyrlinf_core.config.schema.base import MAX_COUNT
from joyrlinf_core.plan.run_plan import BatchPlan, Job, Placement


@dataclass(frozen=True)
class BatchShape:
    """The numbers that batch arithmetic is about."""

    num_envs: int
    """E."""
    env_ranks: int
    rollout_ranks: int
    actor_ranks: int
    """W_a."""
    stages: int
    """S."""
    group_size: int
    """G."""
    chunk_size: int
    """C."""
    steps_per_epoch: int
    """Env steps of one rollout epoch."""
    max_episode_steps: int
    auto_reset: bool
    rollout_epochs: int
    """R."""
    micro_batch_size: int
    gradient_accumulation_steps: int
    epoch_is_episode: bool = False
    """No length of an epoch is given, so that it is that of an episode."""

    def changed(self, numbers: Mapping[Number, int]) -> BatchShape:
        """Return the shape with other numbers."""
        every: dict[str, int] = {**numbers}
        if self.epoch_is_episode and "max_episode_steps" in numbers:
            every.setdefault("steps_per_epoch", numbers["max_episode_steps"])
        return replace(self, **every)

    @property
    def t_eff(self) -> int:
        """T_eff = R * T, where T = steps per epoch / C."""
        return self.rollout_epochs * (self.steps_per_epoch // self.chunk_size)

    @property
    def columns_per_actor(self) -> int:
        """B = E / W_a."""
        return self.num_envs // self.actor_ranks

    @property
    def samples_per_actor(self) -> int:
        """N = T_eff * B."""
        return self.t_eff * self.columns_per_actor

    @property
    def samples_per_optimizer_step(self) -> int:
        """Samples that one rank feeds into one optimizer step."""
        return self.micro_batch_size * self.gradient_accumulation_steps


_CHECKS: dict[str, Callable[[BatchShape], bool]] = {
    "JR101": lambda s: s.num_envs % s.env_ranks == 0,
    "JR102": lambda s: s.num_envs % (s.env_ranks * s.stages) == 0,
    "JR104": lambda s: s.num_envs // (s.env_ranks * s.stages) % s.group_size == 0,
    "JR105": lambda s: s.num_envs % (s.actor_ranks * s.group_size) == 0,
    "JR106": lambda s: s.steps_per_epoch % s.chunk_size == 0,
    "JR107": lambda s: s.auto_reset or s.max_episode_steps <= s.steps_per_epoch,
    "JR110": lambda s: s.num_envs % (s.rollout_ranks * s.stages * s.group_size) == 0,
    "JR103": lambda s: s.samples_per_actor % s.samples_per_optimizer_step == 0,
}
_NEEDS = {
    "JR102": {"JR101"},
    "JR104": {"JR101", "JR102"},
    "JR110": {"JR101", "JR102", "JR104"},
    "JR103": {"JR101", "JR105", "JR106"},
    "JR105": {"JR104"},
}
"""A check that makes no sense while one of these fails is not made."""


def violations(shape: BatchShape) -> frozenset[str]:
    """Return the codes of the batch rules that these numbers break."""
    return _judged(shape)[0]


def waiting(shape: BatchShape) -> dict[str, str]:
    """Return which rules could not be checked: code -> the broken rule that each waits for."""
    return _judged(shape)[1]


def _judged(shape: BatchShape) -> tuple[frozenset[str], dict[str, str]]:
    broken: set[str] = set()
    after: dict[str, str] = {}
    for code, holds in _CHECKS.items():
        first = min((need for need in _NEEDS.get(code, ()) if need in broken), default=None)
        if code == "JR105" and shape.num_envs % shape.group_size == 0:
            first = None  # whole groups may still fail to divide over the actors
        if code == "JR110" and shape.num_envs % (shape.rollout_ranks * shape.stages):
            first = first if first != "JR104" else None  # groups or not, the envs don't divide
        if code == "JR103" and first is None:
            first = after.get("JR105")
        if first is not None:
            after[code] = first
        elif not holds(shape):
            broken.add(code)
    return frozenset(broken), after


Number = Literal[
    "num_envs",
    "stages",
    "group_size",
    "chunk_size",
    "steps_per_epoch",
    "max_episode_steps",
    "micro_batch_size",
    "gradient_accumulation_steps",
]

_FARTHEST = 1 << 20
_SEARCHED = 4096
"""Values on either side that are looked at: enough for any unit, and quickly done."""
_TRIES = 8
"""Values on either side that `accepts` is asked about."""


def nearest(
    shape: BatchShape,
    number: Number,
    code: str,
    accepts: Callable[[int], bool] = lambda _: True,
) -> tuple[int, ...]:
    """Return the nearest values of one number that mend a rule and break no other batch rule.

    Args:
        shape: Numbers that break the rule.
        number: Which of them to change.
        code: The rule to mend.
        accepts: Further test of a value, called for a few of them only.

    Returns:
        At most one smaller and one larger value; empty if changing this number alone can't help.
    """
    broken = violations(shape)
    now: int = getattr(shape, number)

    def works(value: int) -> bool:
        after = violations(shape.changed({number: value}))
        return code not in after and after <= broken

    # Larger than the whole that it divides, a number can't work.
    wholes: dict[Number, int] = {
        "micro_batch_size": shape.samples_per_actor,
        "gradient_accumulation_steps": shape.samples_per_actor,
        "group_size": shape.num_envs,
        "stages": shape.num_envs,
        "chunk_size": shape.steps_per_epoch,
    }
    if not shape.epoch_is_episode:
        wholes["max_episode_steps"] = shape.steps_per_epoch
    whole = wholes.get(number, _FARTHEST)
    reach = min(whole, max(4 * now, 1024))

    def first(values: range) -> int | None:
        mending = islice((value for value in values[:_SEARCHED] if works(value)), _TRIES)
        return next((value for value in mending if accepts(value)), None)

    # Of envs only as many as divide by the ranks can work.
    step = shape.env_ranks if number == "num_envs" else 1
    below = now - 1 if number not in wholes else min(now - 1, whole)
    above = (now // step + 1) * step
    found = [first(range(below // step * step, 0, -step)), first(range(above, reach + 1, step))]
    if number == "num_envs" and found[1] is None:
        # Farther away only as many as give every stage and every actor whole groups.
        whole = lcm(shape.env_ranks * shape.stages, shape.rollout_ranks * shape.stages)
        whole = lcm(whole, shape.actor_ranks) * shape.group_size
        found[1] = first(range((now // whole + 1) * whole, MAX_COUNT + 1, whole))
    return tuple(value for value in found if value is not None)


_AROUND = 40
"""Values of a number that pairs are made of."""


def nearest_pair(
    shape: BatchShape,
    code: str,
    first: Sequence[Number],
    second: Sequence[Number],
    accepts: Callable[[Mapping[Number, int]], bool],
) -> dict[Number, int] | None:
    """Return the two numbers that mend a rule, break no batch rule and change least.

    Pairs that mend every batch rule go first. At most `_AROUND` values of a number are looked at,
    between half and double of what it is, and `accepts` is asked a few times only.

    Args:
        shape: Numbers that break the rule.
        code: The rule to mend.
        first: Numbers of which one changes.
        second: Numbers of which another one changes.
        accepts: Further test of a pair.
    """
    broken = violations(shape)
    names: dict[frozenset[Number], tuple[Number, Number]] = {}
    for a, b in product(first, second):
        if a != b:
            names.setdefault(frozenset((a, b)), (a, b))
    near = {name: _around(getattr(shape, name)) for name in {*first, *second}}
    found: list[tuple[bool, float, dict[Number, int]]] = []
    for a, b in names.values():
        for (x, x_far), (y, y_far) in product(near[a], near[b]):
            after = violations(shape.changed({a: x, b: y}))
            if code not in after and after <= broken:
                found.append((bool(after), x_far + y_far, {a: x, b: y}))
    found.sort(key=lambda one: one[:2])
    return next((pair for _, _, pair in found[:_TRIES] if accepts(pair)), None)


def _around(now: int) -> list[tuple[int, float]]:
    """Return other values of a number and how far each is, as the logarithm of the ratio."""
    step = 8
    low, high = max(1, now // 2, now - step * _AROUND), min(2 * now, now + step * _AROUND)
    far = {value: abs(log(value / now)) for value in range(low, high + 1) if value != now}
    near = sorted(far.items(), key=lambda item: item[1])[: _AROUND // 2]
    # Round values farther away divide more.
    round_ones = [item for item in far.items() if item[0] % step == 0 and item not in near]
    return near + sorted(round_ones, key=lambda item: item[1])[: _AROUND - len(near)]


def batch_shape(config: Config, placement: Placement) -> BatchShape:
    """Collect the numbers of a config."""
    env, actor = config.env.train, config.actor
    return BatchShape(
        num_envs=env.total_num_envs,
        env_ranks=len(placement.env_ranks),
        rollout_ranks=len(placement.rollout_ranks),
        actor_ranks=len(placement.actor_ranks),
        stages=config.rollout.pipeline_stage_num,
        group_size=config.algorithm.group_size,
        chunk_size=actor.model.num_action_chunks,
        steps_per_epoch=env.steps_per_epoch,
        max_episode_steps=env.max_episode_steps,
        auto_reset=env.auto_reset,
        rollout_epochs=env.rollout_epoch,
        micro_batch_size=actor.micro_batch_size,
        gradient_accumulation_steps=actor.gradient_accumulation_steps,
        epoch_is_episode=env.max_steps_per_rollout_epoch is None,
    )


def evaluation_is_on(config: Config) -> bool:
    """Say whether a training run evaluates at any time."""
    runner = config.runner
    return runner.val_check_interval > 0 or runner.eval_at_start or runner.eval_at_end


def eval_episodes(config: Config, job: Job) -> int:
    """Return the held-out episodes of one evaluation, 0 when evaluation is off."""
    if job != "eval" and not evaluation_is_on(config):
        return 0
    env = config.eval_env
    return env.num_episodes or env.total_num_envs * env.rollout_epoch


def build_batch(config: Config, placement: Placement, job: Job) -> BatchPlan:
    """Compute the batch plan of a config that passes every rule."""
    shape = batch_shape(config, placement)
    steps = shape.samples_per_actor // shape.samples_per_optimizer_step
    per_rank = shape.num_envs // shape.env_ranks
    return BatchPlan(
        num_envs=shape.num_envs,
        envs_per_rank=per_rank,
        envs_per_stage=per_rank // shape.stages,
        num_groups=shape.num_envs // shape.group_size,
        group_size=shape.group_size,
        chunk_size=shape.chunk_size,
        action_dim=config.actor.model.action_dim or config.env.train.action_dim,
        chunk_steps=shape.steps_per_epoch // shape.chunk_size,
        rollout_epochs=shape.rollout_epochs,
        t_eff=shape.t_eff,
        columns_per_actor=shape.columns_per_actor,
        samples_per_actor=shape.samples_per_actor,
        optimizer_steps_per_epoch=steps,
        optimizer_steps_per_update=steps * config.algorithm.update_epoch,
        eval_episodes=eval_episodes(config, job),
    )
