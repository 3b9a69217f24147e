"""Makes run directories, and finds runs and checkpoints again."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from joyrlinf_core.checkpoint.manifest import problems
from joyrlinf_core.checkpoint.store import latest, other_checkpoints
from joyrlinf_core.config.dump import dump_config
from joyrlinf_core.errors import EnvironmentNotReadyError, JoyrlError, UsageError
from joyrlinf_core.launcher.space import OTHER_LOG_PATH, check_space
from joyrlinf_core.observability.atomic import write_text
from joyrlinf_core.observability.run_dir import RunDir
from joyrlinf_core.plan.run_plan import RunPlan

RUNS = "runs"


def parent_of(plan: RunPlan) -> Path:
    """Return where the run directories of a plan lie: `{log_path}/{experiment_name}/runs`."""
    logger = plan.config.runner.logger
    return Path(logger.log_path) / logger.experiment_name / RUNS


def create(plan: RunPlan, *, root: Path | None = None, name: str | None = None) -> RunDir:
    """Make a new run directory and write config and plan into it.

    Args:
        plan: The plan.
        root: Parent of the new directory. None: `parent_of(plan)`.
        name: Name of the new directory, which must not exist. None: after the time.

    Raises:
        EnvironmentNotReadyError: The place can't be written, or is nearly full; nothing is left
            behind.
    """
    parent = root or parent_of(plan)
    check_space(parent, what="a run", other_place=OTHER_LOG_PATH)
    run_dir: RunDir | None = None
    try:
        parent.mkdir(parents=True, exist_ok=True)
        if name is None:
            path = _make_unique(parent, datetime.now(UTC).astimezone())
        else:
            path = parent / name
            path.mkdir()
        run_dir = RunDir(path.resolve())
        run_dir.logs.mkdir()
        write_inputs(run_dir, plan)
    except OSError as error:
        if run_dir is not None:
            shutil.rmtree(run_dir.root, ignore_errors=True)
        raise EnvironmentNotReadyError(
            f"can't make a run directory in {parent.absolute()}: {error.strerror or error}",
            fix="--set runner.logger.log_path=DIR with a directory that you can write",
        ) from error
    return run_dir


def write_inputs(run_dir: RunDir, plan: RunPlan) -> None:
    """Write `config.yaml` and `plan.json` of a run."""
    write_text(run_dir.config, dump_config(plan.config))
    write_text(run_dir.plan, plan.model_dump_json(indent=2) + "\n")


def list_runs(root: Path) -> list[RunDir]:
    """Return all runs below a `log_path` directory, oldest first.

    A directory that can't be looked into counts: what is in it may be a run.
    """
    found = [path.resolve() for path in root.glob(f"*/{RUNS}/*") if _may_be_run(path)]
    return [RunDir(path) for path in sorted(found, key=lambda path: (path.name, str(path)))]


def _may_be_run(path: Path) -> bool:
    if not path.is_dir():
        return False
    return not os.access(path, os.R_OK | os.X_OK) or (path / "plan.json").exists()


@dataclass(frozen=True)
class SavedPlan:
    """What `plan.json` of a run says, unchecked by the config's own rules.

    Attributes:
        job: Name of the job.
        config: The config as JSON.
        args: Arguments of the job.
    """

    job: str
    config: Mapping[str, Any]
    args: Mapping[str, str]


def read_saved(run_dir: RunDir) -> SavedPlan:
    """Return what the plan of a run says.

    Raises:
        UsageError: The file is no plan.
        EnvironmentNotReadyError: The file can't be read.
    """
    try:
        value = json.loads(run_dir.plan.read_text(encoding="utf-8"))
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"can't read {run_dir.plan}: {error.strerror or error}", fix=_ANOTHER_RUN
        ) from error
    except (ValueError, RecursionError) as error:
        raise _damaged(run_dir, f"no JSON ({error})") from error
    if not isinstance(value, dict):
        raise _damaged(run_dir, "no JSON object")
    parts = {"job": str, "config": dict, "args": dict}
    wrong = [name for name, kind in parts.items() if not isinstance(value.get(name), kind)]
    if wrong:
        raise _damaged(run_dir, f"no {' and no '.join(wrong)} in it")
    args = value["args"]
    if not all(isinstance(one, str) for one in args.values()):
        raise _damaged(run_dir, "args holds something that is no text")
    return SavedPlan(value["job"], value["config"], args)


_ANOTHER_RUN = "name another run; `joyrl runs list` shows them"


def _damaged(run_dir: RunDir, reason: str) -> UsageError:
    return UsageError(f"{run_dir.plan} is damaged: {reason}", fix=_ANOTHER_RUN)


def job_of(run_dir: RunDir) -> str:
    """Return the job of a run; empty if its plan can't be read."""
    try:
        return read_saved(run_dir).job
    except JoyrlError:
        return ""


def find_run(text: str, *, root: Path, job: str = "train") -> RunDir:
    """Return the run that a user means.

    Args:
        text: `latest`, a run directory, or anything inside one (`checkpoints`,
            `global_step_<N>`, its `actor`).
        root: Where `latest` looks.
        job: Job of the run that `latest` means.

    Raises:
        UsageError: There is no such run.
    """
    if text == "latest":
        runs = [run_dir for run_dir in list_runs(root) if job_of(run_dir) == job]
        if not runs:
            raise UsageError(
                f"no {job} run below {root.absolute()}",
                fix="name the run's directory, or --log-path DIR",
            )
        return runs[-1]
    path = Path(text).resolve()
    for candidate in (path, *path.parents):
        if (candidate / "plan.json").is_file():
            return RunDir(candidate)
    hint = "no such path" if not path.exists() else "no plan.json in it or above it"
    raise UsageError(f"{text} is no run: {hint}", fix="`joyrl runs list` shows the runs here")


def find_checkpoint(text: str, run_dir: RunDir, on_skipped: Callable[[Path, str], None]) -> Path:
    """Return the `global_step_<N>` directory that a user means: the one named, else the newest.

    Its files are read to the end and compared with their checksums.

    Args:
        text: What the user named, see `find_run`.
        run_dir: The run.
        on_skipped: Told of each newer checkpoint that is not whole, and what is wrong with it.

    Raises:
        UsageError: The run has no whole checkpoint, or the named one is not whole.
    """
    named = [part for part in Path(text).parts if part.startswith("global_step_")]
    if named:
        path = run_dir.checkpoints / named[-1]
        found = problems(path, checksums=True)
        if found:
            raise UsageError(
                f"{text} is no whole checkpoint: {'; '.join(found)}", fix=other_checkpoints(path)
            )
        return path
    newest = latest(run_dir.checkpoints)
    for path, reason in newest.skipped:
        on_skipped(path, reason)
    if newest.path is None:
        fix = f"start the run again with `joyrl train {run_dir.config}`; a smaller "
        fix += "runner.save_interval loses less"
        cluster = read_saved(run_dir).config.get("cluster", {})
        if cluster.get("num_nodes", 1) > 1:
            fix = f"copy checkpoints/global_step_<N> here from the node that has it; or {fix}"
        raise UsageError(f"{run_dir.root} has no whole checkpoint", fix=fix)
    return newest.path


def _make_unique(parent: Path, now: datetime) -> Path:
    """Make a directory named after the time; `mkdir` decides between two launches in a second."""
    stamp = now.strftime("%Y%m%d_%H%M%S")
    for number in range(1000):
        path = parent / (f"{stamp}_{number}" if number else stamp)
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise EnvironmentNotReadyError(f"a thousand runs of {stamp} in {parent}", fix="try again")
