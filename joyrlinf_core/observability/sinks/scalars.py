"""Names and values that an event has in a metric tracker; the same for every tracker."""

from __future__ import annotations

from joyrlinf_core.observability.events import EvalResult, Event, Step


def scalars(event: Event) -> tuple[int, dict[str, float]]:
    """Return (step, name -> value); no values for an event that has none to plot."""
    if isinstance(event, Step):
        timings = {f"time/{name}": seconds for name, seconds in event.timings.items()}
        return event.step, {**event.metrics, **timings, "time/step": event.seconds}
    if isinstance(event, EvalResult):
        values = {
            "eval/success_rate": event.success_rate,
            "eval/ci_low": event.ci_low,
            "eval/ci_high": event.ci_high,
            "eval/mean_steps": event.mean_steps,
        }
        if len(event.per_task) > 1:
            values |= {f"eval/task/{name}": rate for name, rate in event.per_task.items()}
        return event.step, values
    return 0, {}
