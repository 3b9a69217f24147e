"""Which keys to turn until a plan fits; every suggestion was planned again and fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from joyrlinf_core.config.schema import Config
from joyrlinf_core.errors import ConfigError
from joyrlinf_core.plan.rules.changes import Change, changed

Fits = Callable[[Config], bool]
"""Plans a config and says whether it fits; raises `ConfigError` for an invalid one."""

NOTHING_HELPS = (
    "no batch size, checkpointing, sharding or precision suffices: take more or larger GPUs, or a "
    "smaller model"
)

_TRIES = 12
"""Values that are tried of one key."""


def find(config: Config, fits: Fits) -> list[Change]:
    """Return changes that make a config fit, any of them alone; empty if nothing does.

    The first ones change how a result is computed, the last ones what is learned. Where no key
    suffices alone, the one change names several.
    """
    computing, learning = list(_computing(config)), list(_learning(config))
    found = [_mildest(config, values, {}, fits) for values in (*computing, *learning)]
    alone = [change for change in found if change is not None]
    return alone or _together(config, [*computing, *_freezing(config)], fits)


def _computing(config: Config) -> Iterator[list[Change]]:
    """Yield the keys that leave the result alone: the values of each, mildest first."""
    actor, model = config.actor, config.actor.model
    product = actor.micro_batch_size * actor.gradient_accumulation_steps
    yield [
        {"actor.micro_batch_size": size, "actor.gradient_accumulation_steps": product // size}
        for size in _divisors_below(product, actor.micro_batch_size)
    ]
    rows = model.predict_micro_batch_size or config.env.train.total_num_envs
    yield [{"actor.model.predict_micro_batch_size": size} for size in _halves(rows)]
    if not actor.gradient_checkpointing:
        yield [{"actor.gradient_checkpointing": True}]
    if actor.fsdp.strategy != "fsdp2":
        yield [{"actor.fsdp.strategy": "fsdp2"}]
    if actor.precision != "bf16":
        yield [{"actor.precision": "bf16"}]


def _freezing(config: Config) -> Iterator[list[Change]]:
    """Yield the model's keys that leave fewer weights to train."""
    for key, now, instead in _FEWER_TRAINED:
        # A key that the family lacks is none of these values.
        if getattr(config.actor.model, key, None) == now:
            yield [{f"actor.model.{key}": instead}]


_FEWER_TRAINED: tuple[tuple[str, Any, Any], ...] = (
    ("train_expert_only", False, True),
    ("tune_llm", True, False),
    ("tune_visual", True, False),
    ("lora_rank", 0, 32),
)
"""Key, value that trains many weights, value that trains few."""


def _learning(config: Config) -> Iterator[list[Change]]:
    """Yield the keys that change what is learned, or from how much."""
    env = config.env.train
    yield from _freezing(config)
    yield [{"env.train.total_num_envs": size} for size in _halves(env.total_num_envs)]
    yield [{"env.train.rollout_epoch": count} for count in _halves(env.rollout_epoch)]


def _divisors_below(product: int, limit: int) -> list[int]:
    """Return the largest divisors of a product below a limit, descending."""
    found: list[int] = []
    for size in range(min(limit, product) - 1, 0, -1):
        if product % size == 0:
            found.append(size)
        if len(found) == _TRIES:
            break
    return found


def _halves(number: int) -> list[int]:
    """Return number / 2, / 4 and so on, down to 1."""
    return [number >> shift for shift in range(1, _TRIES + 1) if number >> shift]


def _mildest(config: Config, values: Sequence[Change], others: Change, fits: Fits) -> Change | None:
    """Return the first change of a key that fits together with other changes."""
    return next((change for change in values if _works(config, {**others, **change}, fits)), None)


def _works(config: Config, change: Change, fits: Fits) -> bool:
    other = changed(config, change)
    if other is None:
        return False
    try:
        return fits(other)
    except ConfigError:
        return False


def _together(config: Config, keys: Sequence[Sequence[Change]], fits: Fits) -> list[Change]:
    """Return one change of several keys; empty if all of them at their strongest do not fit.

    Then every key is left out again if possible, or given its mildest value.
    """
    taken: list[Sequence[Change]] = []
    for values in keys:
        taken += [values] if values else []
        if _works(config, _merged([values[-1] for values in taken]), fits):
            break
    else:
        return []
    chosen = [values[-1] for values in taken]
    for index, values in enumerate(taken):
        others = _merged(chosen[:index] + chosen[index + 1 :])
        chosen[index] = _mildest(config, [{}, *values], others, fits) or {}
    return [_merged(chosen)]


def _merged(changes: Sequence[Change]) -> dict[str, Any]:
    return {key: value for change in changes for key, value in change.items()}
