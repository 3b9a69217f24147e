"""What a command prints when its job has ended: the result, or why it failed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from joyrlinf_cli.console import figures
from joyrlinf_core.launcher.digest import Digest
from joyrlinf_core.launcher.jobs import JobResult
from joyrlinf_core.observability.events import EvalResult
from joyrlinf_core.observability.reader import History, read_history


def result_json(finished: JobResult, job: str, seconds: float) -> dict[str, Any]:
    """Return the JSON document of a command.

    Args:
        finished: What the launcher returned.
        job: Job that the command is about.
        seconds: Wall time of the whole command.
    """
    history = _history(finished)
    before, after = _before_and_after(history)
    digest = finished.outcome.digest
    return {
        "schema": 1,
        "ok": finished.ok,
        "job": job,
        "state": finished.outcome.state,
        "exit_code": finished.outcome.exit_code,
        "seconds": round(seconds, 3),
        "steps": max(history.steps, default=0),
        "run_dir": str(finished.run_dir.root) if finished.run_dir else None,
        "policy": str(finished.policy) if finished.policy else None,
        "checkpoint": _checkpoint(finished, history),
        "before": asdict(before) if before else None,
        "after": asdict(after) if after else None,
        "error": _error_json(digest) if digest else None,
    }


def result_lines(finished: JobResult, job: str, seconds: float) -> list[str]:
    """Return the summary of a job that ended without an error, as lines."""
    history = _history(finished)
    lines = [f"{job} {finished.outcome.state} in {figures.duration(seconds)}"]
    if job == "train":
        # On disks of their own, the other nodes see no step.
        known = history.steps or not finished.speaker
        lines[0] += f", {max(history.steps, default=0)} steps" if known else ""
    before, after = _before_and_after(history)
    if before is not None and after is not None:
        lines.append(
            f"success {_rate(before)} -> {_rate(after)} on {after.episodes} held-out episodes "
            "(95 % interval)"
        )
    elif after is not None:
        lines.append(
            f"success {_rate(after)} on {after.episodes} held-out episodes (95 % interval)"
        )
    if after is not None and len(after.per_task) > 1:
        start = before.per_task if before is not None else {}
        for task, rate in after.per_task.items():
            earlier = f"{start[task]:.3f} -> " if task in start else ""
            lines.append(f"  {task}: {earlier}{rate:.3f}")
    if finished.run_dir is not None:
        lines.append(f"run     {finished.run_dir.root}")
    if job == "train" and history.checkpoints:
        lines.append(f"policy  {history.checkpoints[-1].path}")
    elif finished.checkpoint is not None:
        lines.append(f"of      {finished.checkpoint}")
    elif finished.policy is not None:
        lines.append(f"policy  {finished.policy}")
    if finished.speaker:
        lines.append(f"results on {finished.speaker}")
    if finished.outcome.state == "stopped" and finished.run_dir is not None:
        nodes = finished.plan.placement.num_nodes if finished.plan else 1
        where = ", on every node" if nodes > 1 else ""
        lines.append(f"go on with{where}: joyrl resume {finished.run_dir.root}")
    return lines


def failure_lines(digest: Digest) -> list[str]:
    """Return the first-failure digest as lines."""
    lines = [f"error: {digest.headline}"]
    lines += [f"  | {line}" for line in digest.detail.rstrip().splitlines()]
    if digest.fix:
        lines.append(f"  fix: {digest.fix}")
    if digest.resume:
        lines.append(f"  {digest.resume}")
    lines.append(f"  log: {f'{digest.host}:' if digest.host else ''}{digest.log}")
    lines += [f"  afterwards: {other}" for other in digest.also]
    return lines


def _error_json(digest: Digest) -> dict[str, Any]:
    return {**asdict(digest), "log": str(digest.log)}


def _checkpoint(finished: JobResult, history: History) -> str | None:
    """Return the checkpoint that was measured, or the last one that was saved."""
    if finished.checkpoint is not None:
        return str(finished.checkpoint)
    return history.checkpoints[-1].path if history.checkpoints else None


def _history(finished: JobResult) -> History:
    return read_history(finished.run_dir.events) if finished.run_dir else History()


def _before_and_after(history: History) -> tuple[EvalResult | None, EvalResult | None]:
    """Return the evaluation before the first step, if any, and the last one."""
    first = [result for result in history.evals if result.label == "start"]
    others = [result for result in history.evals if result.label != "start"]
    if not others:
        return None, first[-1] if first else None
    return first[-1] if first else None, others[-1]


def _rate(result: EvalResult) -> str:
    return f"{result.success_rate:.3f} ({result.ci_low:.3f}-{result.ci_high:.3f})"
