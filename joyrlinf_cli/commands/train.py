"""`joyrl train`: start a training run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from joyrlinf_cli.options import (
    ConfigArgument,
    ConfigOption,
    ConsoleOption,
    JsonOption,
    MasterAddrOption,
    MasterPortOption,
    NnodesOption,
    NodeRankOption,
    PresetOption,
    RendezvousTimeoutOption,
    SetOption,
)

if TYPE_CHECKING:
    from joyrlinf_core.config.loader import LoadedConfig

DryRunOption = Annotated[
    bool,
    typer.Option("--dry-run", help="Print the plan and the torchrun command; start nothing."),
]


def train(
    argument: ConfigArgument = None,
    preset: PresetOption = None,
    config: ConfigOption = None,
    sets: SetOption = None,
    dry_run: DryRunOption = False,
    nnodes: NnodesOption = None,
    node_rank: NodeRankOption = None,
    master_addr: MasterAddrOption = None,
    master_port: MasterPortOption = None,
    rendezvous_timeout: RendezvousTimeoutOption = 300.0,
    console: ConsoleOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Train a policy with reinforcement learning.

    The first Ctrl-C finishes the step, saves and exits with code 75; the second stops at once.
    """
    if dry_run:
        from joyrlinf_cli.configs import resolve

        # What this version can't run, and files of another machine, can be planned all the same.
        loaded = resolve(argument, preset, config, sets, as_json=as_json, document_tells=True)
        _print_plan(loaded, as_json=as_json)
        return
    from joyrlinf_cli.job_command import finish, resolved_config
    from joyrlinf_core.launcher.nodes.settings import NodeOptions

    resolved = resolved_config(argument, preset, config, sets, job="train", as_json=as_json)
    finish(
        "train",
        lambda jobs: jobs.train(resolved),
        console=console,
        as_json=as_json,
        nodes=NodeOptions(nnodes, node_rank, master_addr, master_port, rendezvous_timeout),
    )


def _print_plan(loaded: LoadedConfig, *, as_json: bool) -> None:
    import os
    import sys

    from joyrlinf_cli.render.dry_run import dry_run_lines, unrunnable_lines
    from joyrlinf_cli.render.table import heading
    from joyrlinf_cli.render.text import Line, width_of, write_lines
    from joyrlinf_core.errors import ConfigError
    from joyrlinf_core.launcher.command import shell_line, torchrun_command, worker_environment
    from joyrlinf_core.launcher.jobs import needs_policy
    from joyrlinf_core.launcher.policy_cache import cached_policy
    from joyrlinf_core.plan.build import build_plan, check_loaded

    config, findings = loaded.config, check_loaded(loaded)
    if config is None:
        raise ConfigError(findings)
    refused = {one.code for one in check_loaded(loaded, "train") if one.severity == "error"}
    # A missing file is a warning here: the machine that runs it may have it.
    blockers = [one for one in findings if one.severity == "info" and one.code in refused]
    plan = build_plan(config, None)
    commands = [
        torchrun_command(plan, Path("RUN_DIR"), node_rank=node)
        for node in range(plan.placement.num_nodes)
    ]
    environment = worker_environment(plan, os.environ)
    policy = str(cached_policy(config)) if needs_policy(config) else None
    if as_json:
        document = {
            "schema": 1,
            "ok": True,
            "runnable": not blockers,
            "findings": [finding.to_json() for finding in findings],
            "plan": plan.model_dump(mode="json"),
            "torchrun": commands,
            "environment": environment,
            "sft_policy": policy,
        }
        print(json.dumps(document, indent=2))
        return
    lines: list[Line] = [*unrunnable_lines(blockers, width_of(sys.stdout)), *dry_run_lines(plan)]
    if policy is not None:
        there = "kept in" if Path(policy).exists() else "is made first by behaviour cloning, in"
        lines += [*heading("policy"), [(f"  {there} {policy}", "")]]
    lines += heading("torchrun, with RUN_DIR a run directory that holds plan.json")
    lines += [[(f"  {name}={value}", "")] for name, value in environment.items()]
    for node, command in enumerate(commands):
        if len(commands) > 1:
            lines.append([(f"  node {node}:", "bold")])
        lines.append([(f"  {shell_line(command)}", "")])
    if len(commands) > 1:
        lines += heading("start, on every node")
        nodes = f"--node-rank K --master-addr HOST, K in 0-{len(commands) - 1}, HOST that of node 0"
        lines.append([(f"  the same `joyrl train` with {nodes}", "")])
    write_lines(lines, sys.stdout)
