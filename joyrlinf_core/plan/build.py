"""Config -> `RunPlan`, in pure Python."""

from __future__ import annotations

from collections.abc import Mapping

from joyrlinf_core.config.loader import LoadedConfig
from joyrlinf_core.config.schema import Config
from joyrlinf_core.errors import ConfigError, Finding
from joyrlinf_core.plan.batching import build_batch
from joyrlinf_core.plan.placement import resolve_placement
from joyrlinf_core.plan.rules import check
from joyrlinf_core.plan.run_plan import Job, RunPlan


def check_loaded(loaded: LoadedConfig, job: Job | None = None) -> tuple[Finding, ...]:
    """Return every finding of a loaded config: reading, schema and rules, with their places.

    The rules look at whatever could be read, so that all problems show at once.

    Args:
        loaded: A config as it was read.
        job: What will run; None checks the config for its own sake.
    """
    findings = list(loaded.findings)
    if loaded.partial is not None:
        found = check(loaded.partial, unparsed=loaded.unparsed, job=job)
        findings.extend(loaded.source_map.place(finding) for finding in found)
    return tuple(findings)


def build_plan(config: Config, job: Job | None, args: Mapping[str, str] | None = None) -> RunPlan:
    """Derive everything that a run needs to know.

    Args:
        config: A config that passed the schema.
        job: What to run; None plans a training run without asking for its files.
        args: Inputs of the job that are no config, see `RunPlan.args`.

    Raises:
        ConfigError: A rule finds an error; carries every finding.
    """
    findings = check(config, job=job)
    placement = resolve_placement(config.cluster)
    if placement is None or any(finding.severity == "error" for finding in findings):
        raise ConfigError(findings)
    return RunPlan(
        job=job or "train",
        args=dict(args or {}),
        config=config,
        placement=placement,
        batch=build_batch(config, placement, job or "train"),
    )
