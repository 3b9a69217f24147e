"""Numbers as a person reads them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from joyrlinf_core.observability import metric_names as names
from joyrlinf_core.observability.events import EvalResult, Phase
from joyrlinf_core.observability.reader import History

SHOWN_METRICS: dict[str, str] = {
    names.SUCCESS_RATE: "success",
    names.RETURN_MEAN: "return",
    names.RATIO_MAX: "ratio max",
    names.APPROX_KL: "kl",
    names.CLIP_FRACTION: "clip",
    names.GRAD_NORM: "grad norm",
    names.SFT_LOSS: "loss",
    names.SFT_ACTION_ERROR: "action error",
    names.SFT_GRAD_NORM: "grad norm",
}
"""Step metrics on the consoles, and their short names there."""

PHASE_TEXT: dict[str, str] = {
    "start": "starting the workers",
    "load": "loading the policy",
    "simulators": "building simulators",
    "demos": "collecting demonstrations",
    "sft": "behaviour cloning",
    "rollout": "rollout",
    "update": "update",
    "wait_for_batch": "waiting for a batch",
    "wait_for_weights": "waiting for weights",
    "eval": "evaluating",
    "save": "saving",
}

SHARED_PHASES = frozenset({"demos", "eval"})
"""Phases whose total is that of all ranks, each of which does its share."""

ETA_STEPS = 20

_LEVELS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"


def sparkline(values: Sequence[float], width: int = 24) -> str:
    """Return the last `width` values as bars of eight heights; a gap for what is not finite."""
    recent = list(values)[-width:]
    finite = [value for value in recent if math.isfinite(value)]
    if not finite:
        return ""
    low, span = min(finite), (max(finite) - min(finite)) or 1.0
    return "".join(
        _LEVELS[round((value - low) / span * (len(_LEVELS) - 1))] if math.isfinite(value) else " "
        for value in recent
    )


def number(value: float) -> str:
    """Return a number in at most seven characters."""
    if not math.isfinite(value):
        return str(value)
    if value and (abs(value) < 1e-3 or abs(value) >= 1e5):
        return f"{value:.1e}"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.4g}"


def duration(seconds: float) -> str:
    """Return seconds as `4.1 s`, `5 min 12 s` or `3 h 07 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def evaluation_name(label: str) -> str:
    """Return what an evaluation is called: `eval start`; a job that only evaluates has `eval`."""
    return "eval" if label == "eval" else f"eval {label}"


def progress(history: History) -> tuple[int, int]:
    """Return (done, total) of the phase of rank 0; in a shared phase the work of all ranks."""
    latest = history.phases.get(0)
    if latest is None or not isinstance(latest.event, Phase):
        return 0, 0
    own = latest.event
    if own.phase not in SHARED_PHASES:
        return own.done, own.total
    events = [record.event for record in history.phases.values()]
    done = [e.done for e in events if isinstance(e, Phase) and e.phase == own.phase]
    return min(sum(done), own.total), own.total


def evaluation(result: EvalResult) -> str:
    """Return an evaluation as `0.652 (0.585-0.713), 210 episodes`."""
    return (
        f"{result.success_rate:.3f} ({result.ci_low:.3f}-{result.ci_high:.3f}), "
        f"{result.episodes} episodes"
    )


def eta(history: History, total_steps: int) -> str:
    """Return the time left, from the latest steps; empty before there is one."""
    if not history.steps:
        return ""
    latest = [history.steps[step] for step in sorted(history.steps)[-ETA_STEPS:]]
    # SFT logs once in many steps, so seconds are per step counted, not per event.
    first = max((s for s in history.steps if s < latest[0].step), default=_before(history))
    made = latest[-1].step - first
    left = total_steps - latest[-1].step
    if made <= 0 or left <= 0:
        return ""
    return duration(left * sum(step.seconds for step in latest) / made)


def _before(history: History) -> int:
    """Return the step from which the first known one counts."""
    return history.started.start_step if history.started else 0
