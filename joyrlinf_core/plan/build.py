"""Config -> `RunPlan`, in pure Python."""

from __future__ import annotations

from collections.abc import Mapping

from joyrlinf_core.config.loader import LoadedConfig
from joyrlinf_core.config.schema import Config
from joyrlinf_core.errors import ConfigError, Finding
from joyrlinf_core.plan.batching import build_batch
from joyrlinf_core.plan.memory import estimate_memory, footprint_of, is_sharded
from joyrlinf_core.plan.placement import colocated, resolve_placement
from joyrlinf_core.plan.ranks import build_ranks
from joyrlinf_core.plan.rules import Origins, check
from joyrlinf_core.plan.run_plan import BatchPlan, Job, Placement, RunPlan
from joyrlinf_core.plan.shards import build_shards
from joyrlinf_core.plan.traffic import build_traffic


def check_loaded(
    loaded: LoadedConfig, job: Job | None = None, *, check_paths: bool = False
) -> tuple[Finding, ...]:
    """Return every finding of a loaded config: reading, schema and rules, with their places.

    The rules look at whatever could be read, so that all problems show at once.

    Args:
        loaded: A config as it was read.
        job: What will run; None checks the config for its own sake.
        check_paths: Files and directories must be there although nothing will run.
    """
    findings = list(loaded.findings)
    if loaded.partial is not None:
        found = check(
            loaded.partial,
            unparsed=loaded.unparsed,
            job=job,
            check_paths=check_paths,
            origins=Origins.of(loaded.source_map),
        )
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
    if any(finding.severity == "error" for finding in findings):
        raise ConfigError(findings)
    return plan_checked(config, job, args)


def plan_checked(config: Config, job: Job | None, args: Mapping[str, str] | None = None) -> RunPlan:
    """Derive the plan of a config in which no rule finds an error; see `build_plan`."""
    placement = resolve_placement(config.cluster)
    assert placement is not None, "a rule finds an error otherwise"
    job = job or "train"
    if job != "train":
        config = _one_process_a_gpu(config, placement)
        placement = resolve_placement(config.cluster)
        assert placement is not None, "half of the ranks, each with every role"
        placement = colocated(placement)
    return assemble(job, args or {}, config, placement, build_batch(config, placement, job))


def _one_process_a_gpu(config: Config, placement: Placement) -> Config:
    """Return the config without `launcher.mps`: where every rank does the same, none is to share.

    One process of each pair is left out. All of them learn in cloning, and NCCL refuses two ranks
    on one GPU.
    """
    if not config.launcher.mps:
        return config
    cluster = {
        "gpus_per_node": placement.ranks_per_node // 2,
        "component_placement": {"env,rollout,actor": "all"},
    }
    return config.model_copy(
        update={
            "launcher": config.launcher.model_copy(update={"mps": False}),
            "cluster": config.cluster.model_copy(update=cluster),
        }
    )


def assemble(
    job: Job, args: Mapping[str, str], config: Config, placement: Placement, batch: BatchPlan
) -> RunPlan:
    """Derive the rest of a plan from placement and batch.

    Args:
        job: What to run.
        args: See `RunPlan.args`.
        config: The config.
        placement: Who plays which role.
        batch: Sizes of the batch.
    """
    footprint = footprint_of(config)
    ranks, shards = build_ranks(config, placement, batch), build_shards(placement, batch)
    sharded = is_sharded(config, len(placement.actor_ranks), footprint)
    memory = None
    if footprint is not None:
        memory = estimate_memory(config, placement, batch, ranks, shards, footprint)
    return RunPlan(
        job=job,
        args=dict(args),
        config=config,
        placement=placement,
        batch=batch,
        ranks=ranks,
        shards=shards,
        traffic=build_traffic(config, placement, batch, shards, footprint, sharded=sharded),
        memory=memory,
    )
