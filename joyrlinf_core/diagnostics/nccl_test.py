"""`nccl_test`: starts workers that check and time the links between ranks, and watches them.

The workers are started as those of a run are, with another program (`links/worker.py`). torch is
in the workers alone.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from joyrlinf_core.config.schema import Config
from joyrlinf_core.diagnostics.links.facts import BACKEND_VARIABLES
from joyrlinf_core.diagnostics.links.hardware import interface_of, read_gpus
from joyrlinf_core.diagnostics.links.journal import read_journal
from joyrlinf_core.diagnostics.links.report import (
    Failure,
    LinkReport,
    group_results,
    wrong_numbers,
)
from joyrlinf_core.diagnostics.links.request import Request
from joyrlinf_core.diagnostics.links.steps import LinkStep
from joyrlinf_core.diagnostics.links.watch import StalledError, Watch
from joyrlinf_core.errors import EnvironmentNotReadyError, ExitCode
from joyrlinf_core.launcher.digest import Digest
from joyrlinf_core.launcher.nodes.facts import check_same, own_facts
from joyrlinf_core.launcher.nodes.interfaces import interfaces, listed
from joyrlinf_core.launcher.nodes.meeting import Team, met
from joyrlinf_core.launcher.nodes.settings import NodeOptions, node_settings
from joyrlinf_core.launcher.supervisor import supervise
from joyrlinf_core.observability.run_dir import RunDir
from joyrlinf_core.plan.build import build_plan
from joyrlinf_core.plan.ranks import build_ranks
from joyrlinf_core.plan.run_plan import BatchPlan, Placement, RunPlan, Traffic

WORKER = ("-m", "joyrlinf_core.diagnostics.links.worker")
"""What torchrun runs."""

PREFIX = "nccl-test-"
"""Of temporary directories; a failed test leaves its own, with the logs."""

_MEMORY = "out of memory is the usual cause: check `dmesg`; try smaller --sizes"
_DEVICES = "a smaller --nproc, another CUDA_VISIBLE_DEVICES, or --device cpu"

Device = Literal["auto", "cpu", "cuda"]


def config_plan(config: Config, request: Request, device: Device | None = None) -> RunPlan:
    """Return the plan whose groups are tested.

    Args:
        config: A config.
        request: Options.
        device: In place of `cluster.device`.

    Raises:
        ConfigError: The config can't be planned.
    """
    if device is not None:
        cluster = config.cluster.model_copy(update={"device": device})
        config = config.model_copy(update={"cluster": cluster})
    plan = build_plan(config, None)
    return plan.model_copy(
        update={"config": _without_sinks(plan.config), "args": request.to_args()}
    )


def world_plan(nproc: int, request: Request, device: Device, nodes: int = 1) -> RunPlan:
    """Return a plan of nothing but ranks.

    The launcher starts plans, and a plan holds a config: its env and policy are never built.

    Args:
        nproc: Ranks on each machine.
        request: Options.
        device: Where the tensors are.
        nodes: Machines.
    """
    world = nproc * nodes
    config = Config.model_validate(
        {
            "cluster": {"num_nodes": nodes, "gpus_per_node": nproc, "device": device},
            "env": {"train": {"type": "metaworld", "total_num_envs": 1, "max_episode_steps": 1}},
            "actor": {"model": {"model_type": "openpi"}},
        }
    )
    every = tuple(range(world))
    placement = Placement(
        mode="colocated", world_size=world, num_nodes=nodes, ranks_per_node=nproc,
        ranks_per_node_inferred=False, env_ranks=every, rollout_ranks=every, actor_ranks=every,
    )  # fmt: skip
    batch = BatchPlan(**dict.fromkeys(BatchPlan.model_fields, 1))
    nothing = Traffic(
        column_bytes=None, trajectories=None, trajectory_bytes=None,
        trajectory_bytes_between_nodes=None, weight_receivers=(), weight_bytes=None,
        weight_bytes_all=None,
    )  # fmt: skip
    return RunPlan(
        job="train",
        args=request.to_args(),
        config=_without_sinks(config),
        placement=placement,
        batch=batch,
        ranks=build_ranks(config, placement, batch),
        shards=(),
        traffic=nothing,
        memory=None,
    )


def default_ranks(device: Device | None) -> int:
    """Return how many ranks to start here where no option says: one per GPU, two without."""
    if os.environ.get("NPROC_PER_NODE", "").isdigit():
        return int(os.environ["NPROC_PER_NODE"])
    gpus = () if device == "cpu" else read_gpus()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = len(gpus) if visible is None else len([one for one in visible.split(",") if one])
    return max(2, min(count, len(gpus)))


def default_nodes() -> int:
    """Return how many machines a plain world has where no option says."""
    named = os.environ.get("NNODES", "")
    return int(named) if named.isdigit() else 1


def nccl_test(
    plan: RunPlan,
    request: Request,
    *,
    on_step: Callable[[str], None],
    say: Callable[[str], None],
    nodes: NodeOptions | None = None,
    worker: Sequence[str] = WORKER,
) -> LinkReport:
    """Test the links of a plan; of one on several nodes, every node does and returns the same.

    Args:
        plan: From `config_plan` or `world_plan`.
        request: The same options.
        on_step: Told of each step that begins.
        say: Where short messages go.
        nodes: What the command line says of the nodes.
        worker: Arguments for torchrun that name the program.

    Raises:
        UsageError: The plan can't be started here.
        EnvironmentNotReadyError: Workers can't be started, or an interface is not there.
        NodeError: The nodes did not come together.
    """
    place = plan.placement
    world = place.world_size
    if world == 1:
        return LinkReport(world, 1, (), (), 0, None, int(ExitCode.OK))
    settings = node_settings(
        nodes or NodeOptions(), place.num_nodes, place.ranks_per_node, os.environ
    )
    if settings is None:
        _check_interfaces()
    run_dir = RunDir(Path(tempfile.mkdtemp(prefix=PREFIX)))
    run_dir.logs.mkdir()

    def read_steps() -> Mapping[int, LinkStep]:
        return {step.index: step for step in read_journal(run_dir).steps}

    watch = Watch(world, request.timeout, read_steps, on_step)
    failure: Failure | None = None
    try:
        with met(settings, say) as team:
            _check_same(team, plan, request)
            watch.restart()
            outcome = supervise(plan, run_dir, watch, worker=worker, team=team)
        code = outcome.exit_code
        if outcome.digest is not None:
            failure = _of_digest(outcome.digest, watch, request)
    except StalledError as error:
        code, failure = int(error.exit_code), _of_stall(error, run_dir)
    except BaseException:
        shutil.rmtree(run_dir.root, ignore_errors=True)
        raise
    report = _report(plan, run_dir, failure, code)
    if report.failure is None or not report.failure.log:
        shutil.rmtree(run_dir.root, ignore_errors=True)
    return report


def _report(plan: RunPlan, run_dir: RunDir, failure: Failure | None, code: int) -> LinkReport:
    """Return what the workers wrote, together with how the launch ended."""
    measured = read_journal(run_dir)
    results = group_results(measured)
    if code == ExitCode.OK:
        failure = wrong_numbers(results)
        code = int(ExitCode.OK if failure is None else ExitCode.RUN_FAILED)
    place, left = plan.placement, len(measured.steps) - len(measured.rows)
    return LinkReport(
        place.world_size, place.num_nodes, measured.facts, results, left, failure, code
    )


def _check_same(team: Team, plan: RunPlan, request: Request) -> None:
    """Raise unless all nodes were started to do the same."""
    if team.alone:
        return
    facts = own_facts(
        plan.config,
        command="nccl-test",
        ranks_per_node=plan.placement.ranks_per_node,
        policy=None,
        checkpoint=None,
    )
    told = " ".join(f"{name}={value}" for name, value in request.to_args().items())
    check_same(team.crew, {**facts, "options": told}, plan.config)


def _check_interfaces() -> None:
    """Raise `EnvironmentNotReadyError` if a variable names an interface that is not there."""
    found = interfaces()
    for variable in BACKEND_VARIABLES:
        name = interface_of(os.environ.get(variable, ""))
        # NCCL takes the beginning of a name, too.
        if name and not any(one.name.startswith(name) for one in found):
            raise EnvironmentNotReadyError(
                f"{variable} is {name!r}: no interface of this machine",
                fix=f"unset {variable}; interfaces here: {listed(found)}",
            )


def _without_sinks(config: Config) -> Config:
    """Return the config without trackers, as this is no run that they should list.

    It has a time-out of its own, too: `Watch` knows better who keeps whom waiting.
    """
    logger = config.runner.logger.model_copy(update={"logger_backends": ()})
    runner = config.runner.model_copy(update={"logger": logger, "stuck_after_seconds": 0.0})
    return config.model_copy(update={"runner": runner})


def _of_digest(digest: Digest, watch: Watch, request: Request) -> Failure:
    """Return the launcher's digest; it begins with the rank that failed, where one did."""
    named = re.match(r"(?:node \d+, \S+: )?rank (\d+)\b", digest.headline)
    message, ranks, fix = digest.headline, (), digest.fix
    if named:
        ranks = (int(named[1]),)
        seen = watch.last_seen(ranks[0])
        message += f" (last seen {seen})" if seen else ""
    # What the launcher advises is for runs.
    if "SIGKILL" in message:
        fix = _MEMORY
    elif digest.exit_code == ExitCode.ENVIRONMENT_NOT_READY and not request.plan_groups:
        fix = _DEVICES
    return Failure(message, ranks, digest.detail, fix, str(digest.log))


def _of_stall(error: StalledError, run_dir: RunDir) -> Failure:
    log = run_dir.logs
    if len(error.ranks) == 1:
        found = sorted(log.glob(f"node*_rank{error.ranks[0]}.log"))
        log = found[-1] if found else log / "launcher.log"
    return Failure(error.message, error.ranks, fix=error.fix, log=str(log))
