"""`joyrl resume`: go on with a run, in its own directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from joyrlinf_cli.options import (
    ConsoleOption,
    JsonOption,
    LogPathOption,
    MasterAddrOption,
    MasterPortOption,
    NnodesOption,
    NodeRankOption,
    RendezvousTimeoutOption,
    SetOption,
)
from joyrlinf_core.errors import UsageError

if TYPE_CHECKING:
    from joyrlinf_core.config.schema import Config
    from joyrlinf_core.observability.run_dir import RunDir

RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="Run directory, `latest`, or a checkpoint (global_step_<N>) in one."
    ),
]

IGNORED = frozenset({"runner.resume_dir"})
"""Keys that differ by nature."""


def resume(
    run: RunArgument,
    sets: SetOption = None,
    log_path: LogPathOption = "results",
    nnodes: NnodesOption = None,
    node_rank: NodeRankOption = None,
    master_addr: MasterAddrOption = None,
    master_port: MasterPortOption = None,
    rendezvous_timeout: RendezvousTimeoutOption = 300.0,
    console: ConsoleOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Go on with a training run from its newest whole checkpoint.

    Prints first what differs from the run's saved config.
    """
    from joyrlinf_cli.job_command import finish, resolved_config, say, say_skipped
    from joyrlinf_core.launcher.nodes.settings import NodeOptions
    from joyrlinf_core.launcher.run_directory import find_checkpoint, find_run, read_saved

    run_dir = find_run(run, root=Path(log_path), job="train")
    saved = read_saved(run_dir)
    if saved.job != "train":
        raise UsageError(
            f"{run_dir.root} is a run of `joyrl {saved.job}`, only training can go on",
            fix=f"start it again with `joyrl {saved.job}`",
        )
    checkpoint = find_checkpoint(run, run_dir, say_skipped)
    config = resolved_config(None, None, run_dir.config, sets, job="train")
    _say_differences(saved.config, config)
    _check_unfinished(run_dir, checkpoint, config)
    say(f"going on from {checkpoint}")
    finish(
        "train",
        lambda jobs: jobs.resume(config, run_dir, checkpoint),
        console=console,
        as_json=as_json,
        nodes=NodeOptions(nnodes, node_rank, master_addr, master_port, rendezvous_timeout),
    )


def _say_differences(saved: Mapping[str, Any], config: Config) -> None:
    from joyrlinf_cli.job_command import say
    from joyrlinf_core.launcher.differences import differences

    found = differences(saved, config.model_dump(mode="json"))
    shown = [(key, old, new) for key, old, new in found if key not in IGNORED]
    for key, old, new in shown:
        say(f"differs from the saved config: {key}: {old} -> {new}")
    if not shown:
        say("same config as before")


def _check_unfinished(run_dir: RunDir, checkpoint: Path, config: Config) -> None:
    from joyrlinf_cli.job_command import say
    from joyrlinf_core.observability.reader import read_history

    step = int(checkpoint.name.removeprefix("global_step_"))
    if step == config.runner.max_steps and config.runner.eval_at_end:
        evals = read_history(run_dir.events).evals
        if not any((result.step, result.label) == (step, "end") for result in evals):
            say("all steps are made; the evaluation at the end is left")
            return
    if step >= config.runner.max_steps:
        raise UsageError(
            f"{checkpoint} is at step {step}, runner.max_steps is {config.runner.max_steps}: "
            "nothing is left to do",
            fix=f"--set runner.max_steps={step * 2}",
        )
