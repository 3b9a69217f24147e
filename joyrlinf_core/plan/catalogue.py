"""Presets with what they use, and whether this version runs them."""

from __future__ import annotations

from dataclasses import dataclass

from joyrlinf_core.config import presets
from joyrlinf_core.config.loader import load_config
from joyrlinf_core.config.presets import Preset
from joyrlinf_core.config.schema import Config
from joyrlinf_core.errors import ConfigError
from joyrlinf_core.plan.rules import RULES, RuleContext

_RUNTIME_RULES = ("JR403", "JR701")
"""Rules about what this version can plan but not run; `joyrl train` stops at their findings."""


@dataclass(frozen=True)
class Entry:
    """A preset in the list of presets.

    Attributes:
        preset: Name, file, description.
        simulator: Type of its training env.
        model: Policy family, and variant where it has any.
        mode: `sync` or `async`.
        missing: What this version lacks to run it; empty: it runs.
    """

    preset: Preset
    simulator: str
    model: str
    mode: str
    missing: tuple[str, ...]


def missing_runtime(config: Config) -> tuple[str, ...]:
    """Return what this version lacks to run a config; empty when it runs."""
    context = RuleContext(config)
    return tuple(found.message for code in _RUNTIME_RULES for found in RULES[code].check(context))


def catalogue() -> list[Entry]:
    """Return every preset: those that run first, then by simulator, model, mode and GPUs.

    Raises:
        ConfigError: A preset is broken.
    """
    return sorted((_entry(preset) for preset in presets.listing()), key=_order)


def _entry(preset: Preset) -> Entry:
    loaded = load_config(preset.name)
    config = loaded.config
    if config is None:
        raise ConfigError(loaded.findings)
    model = config.actor.model
    variant = getattr(model, "variant", None)
    return Entry(
        preset=preset,
        simulator=config.env.train.type,
        model=model.model_type if variant is None else f"{model.model_type} {variant}",
        mode=config.algorithm.pipeline_mode,
        missing=missing_runtime(config),
    )


def _order(entry: Entry) -> tuple[bool, str, str, str, int, str]:
    gpus = entry.preset.meta.gpus
    return bool(entry.missing), entry.simulator, entry.model, entry.mode, gpus, entry.preset.name
