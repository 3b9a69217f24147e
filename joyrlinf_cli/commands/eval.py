"""`joyrl eval`: success of a run's checkpoint or of a policy directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from joyrlinf_cli.options import (
    ConfigOption,
    ConsoleOption,
    JsonOption,
    LogPathOption,
    MasterAddrOption,
    MasterPortOption,
    NnodesOption,
    NodeRankOption,
    PresetOption,
    RendezvousTimeoutOption,
    SetOption,
)
from joyrlinf_core.errors import UsageError

if TYPE_CHECKING:
    from joyrlinf_core.config.schema import Config

TargetArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="Run directory, `latest`, a checkpoint in one, or (with a config) a policy directory "
        "or a checkpoint.",
    ),
]

CHECKPOINT = "global_step_"
"""Start of a checkpoint's name."""

EpisodesOption = Annotated[
    int | None,
    typer.Option(
        "--episodes", min=1, metavar="N", help="Held-out episodes to play.", show_default=False
    ),
]


def evaluate(
    target: TargetArgument,
    preset: PresetOption = None,
    config: ConfigOption = None,
    sets: SetOption = None,
    episodes: EpisodesOption = None,
    log_path: LogPathOption = "results",
    nnodes: NnodesOption = None,
    node_rank: NodeRankOption = None,
    master_addr: MasterAddrOption = None,
    master_port: MasterPortOption = None,
    rendezvous_timeout: RendezvousTimeoutOption = 300.0,
    console: ConsoleOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Measure success on fixed held-out episodes, with a confidence interval."""
    from joyrlinf_cli.job_command import finish, resolved_config, say
    from joyrlinf_core.launcher.nodes.settings import NodeOptions

    overrides = list(sets or ())
    if episodes is not None:
        overrides.append(f"env.eval.num_episodes={episodes}")
    if preset is not None or config is not None:
        resolved = resolved_config(None, preset, config, overrides, job="eval")
        policy, checkpoint = _under_config(Path(target).absolute(), resolved)
    else:
        policy, checkpoint, resolved = _of_run(target, Path(log_path), overrides)
    _check_policy(policy, resolved)
    say(f"measuring {checkpoint or policy}")
    finish(
        "eval",
        lambda jobs: jobs.evaluate(resolved, policy=policy, checkpoint=checkpoint),
        console=console,
        as_json=as_json,
        nodes=NodeOptions(nnodes, node_rank, master_addr, master_port, rendezvous_timeout),
    )


def _under_config(target: Path, config: Config) -> tuple[Path, Path | None]:
    """Return policy and checkpoint of a policy directory, or of a checkpoint.

    A checkpoint holds weights alone; what else makes up a policy comes from the directory that its
    run started from.
    """
    from joyrlinf_core.checkpoint.manifest import problems
    from joyrlinf_core.checkpoint.store import other_checkpoints
    from joyrlinf_core.launcher.run_directory import read_saved
    from joyrlinf_core.observability.run_dir import RunDir

    named = [place for place in (target, *target.parents) if place.name.startswith(CHECKPOINT)]
    if not named:
        return target, None
    checkpoint = named[0]
    if found := problems(checkpoint, checksums=True):
        raise UsageError(
            f"{target} is no whole checkpoint: {'; '.join(found)}",
            fix=other_checkpoints(checkpoint),
        )
    run_dir = RunDir(checkpoint.parents[1])
    policy = config.actor.model.model_path
    if policy is None and run_dir.plan.is_file():
        policy = read_saved(run_dir).config["actor"]["model"]["model_path"]
    if policy is None:
        raise UsageError(
            f"{checkpoint} lies in no run, so the policy that it started from is unknown",
            fix="--set actor.model.model_path=DIR with that policy directory",
        )
    return Path(policy).expanduser(), checkpoint


def _of_run(target: str, root: Path, overrides: list[str]) -> tuple[Path, Path | None, Config]:
    """Return policy, checkpoint and config of a run."""
    from joyrlinf_cli.job_command import resolved_config, say_skipped
    from joyrlinf_core.launcher.run_directory import find_checkpoint, find_run, job_of

    run_dir = find_run(target, root=root, job="train")
    resolved = resolved_config(None, None, run_dir.config, overrides, job="eval")
    args = json.loads(run_dir.plan.read_text(encoding="utf-8"))["args"]
    policy = args.get("policy") or resolved.actor.model.model_path
    if policy is None:
        raise UsageError(f"{run_dir.root} names no policy", fix="evaluate a policy directory")
    if job_of(run_dir) == "train" or CHECKPOINT in target:
        return Path(policy), find_checkpoint(target, run_dir, say_skipped), resolved
    # The run of an evaluation names what it evaluated; that of behaviour cloning has none.
    checkpoint = args.get("checkpoint")
    return Path(policy), Path(checkpoint) if checkpoint else None, resolved


def _check_policy(policy: Path, config: Config) -> None:
    lacking = config.actor.model.check_directory(policy)
    if lacking:
        raise UsageError(
            f"{policy} is no complete policy directory: {'; '.join(lacking)}",
            fix="name a run, or a directory that `joyrl sft --output DIR` wrote",
        )
