"""`shape_check`: the batch code on synthetic rollouts of a plan's shapes, on the CPU.

No weights and no simulator: rollouts are made up (`shapes/script.py`, `shapes/synthetic.py`),
everything behind them is what trains (`shapes/run.py`). torch is imported when a check starts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from joyrlinf_core.diagnostics.shapes import sizes as shape_sizes
from joyrlinf_core.diagnostics.shapes.outcome import Mismatch, NotApplicableError
from joyrlinf_core.diagnostics.shapes.report import Check, ShapeReport, TensorRow
from joyrlinf_core.errors import JoyrlError

if TYPE_CHECKING:
    from joyrlinf_core.diagnostics.shapes.outcome import CheckFunction
    from joyrlinf_core.diagnostics.shapes.run import ShapeRun
    from joyrlinf_core.diagnostics.shapes.sizes import Stored
    from joyrlinf_core.plan.run_plan import RunPlan

Step = tuple[str, Callable[[], None] | None, list[tuple[str, "CheckFunction"]]]
"""What is made, how (None: nothing), and what is checked then."""


def shape_check(plan: RunPlan) -> ShapeReport:
    """Run rollout to loss on synthetic rollouts of a plan, and check shapes and values.

    Args:
        plan: A plan of a training run.
    """
    from joyrlinf_core.diagnostics.shapes.run import ShapeRun

    planned = shape_sizes.planned_sizes(plan)
    sizes = shape_sizes.sizes_to_run(planned)
    stored, note = shape_sizes.stored_by(plan)
    cut = shape_sizes.stored_to_run(stored, sizes)
    run = ShapeRun(plan, planned, sizes, cut)
    checks: list[Check] = []
    broken = ""
    for made, make, statements in _steps(run, stored):
        if make is not None and not broken:
            failure = _failure(make)
            if failure:
                checks.append(Check(f"{made} can be computed", "failed", failure))
                broken = made
        for name, function in statements:
            if broken:
                checks.append(Check(name, "skipped", f"there is no {broken}"))
            else:
                checks.append(_checked(name, partial(function, run)))
    notes = [shape_sizes.reduction(planned, sizes, stored, cut)]
    if note:
        notes.append(note)
    rows = tuple(_rows(run, stored))
    return ShapeReport(planned, sizes, tuple(notes), rows, tuple(checks))


def _steps(run: ShapeRun, stored: Stored) -> list[Step]:
    """Return the learner's steps and the checks behind each; `stored` is what is planned."""
    from joyrlinf_core.diagnostics.shapes import rollout_checks, rows, update_checks

    def layout(entries: Callable[..., object], *arguments: object) -> CheckFunction:
        return lambda run: rollout_checks.layout(entries(run, *arguments), run)  # type: ignore[arg-type]

    return [
        ("shard map", None, [("groups stay whole", rollout_checks.whole_groups)]),
        ("rollout", run.make_rollouts, [("rollout layout", layout(rows.rollout_entries, stored))]),
        (
            "mask",
            run.make_masks,
            [
                ("mask layout", layout(rows.mask_entries)),
                ("mask ends with the episode", rollout_checks.masks),
                ("scores of episodes and groups", rollout_checks.scores),
            ],
        ),
        (
            "advantage",
            run.make_advantages,
            [
                ("advantage layout", layout(rows.advantage_entries)),
                ("late rewards do not count", rollout_checks.rewards_after_the_end),
                ("reward filter", rollout_checks.filtered),
                ("masked entries are zero", rollout_checks.masked_entries),
                ("advantages of groups", rollout_checks.group_advantages),
            ],
        ),
        (
            "flat batch",
            run.make_flat,
            [
                ("flat layout", layout(rows.flat_entries, stored)),
                ("row order", update_checks.row_order),
                ("log-prob forms", update_checks.logprob_forms),
                ("log-prob level", update_checks.logprob_level),
                ("stored once", update_checks.stored_once),
            ],
        ),
        (
            "loss",
            run.make_micro_batch,
            [
                ("loss layout", layout(rows.loss_entries, stored)),
                ("minibatches", update_checks.minibatches),
                ("first ratio", update_checks.first_ratio),
                ("micro-batches add up", update_checks.micro_batches),
                ("optimizer steps add up", update_checks.optimizer_steps),
            ],
        ),
    ]


def _failure(make: Callable[[], None]) -> str:
    """Make something; return why it can't be made, empty if it can."""
    try:
        make()
    except Exception as error:
        return _told(error)
    return ""


def _checked(name: str, function: Callable[[], str]) -> Check:
    """Return the outcome of a check; whatever it raises is one."""
    try:
        return Check(name, "ok", function())
    except NotApplicableError as reason:
        return Check(name, "skipped", str(reason))
    except Mismatch as mismatch:
        return Check(name, "failed", str(mismatch))
    except Exception as error:
        return Check(name, "failed", _told(error))


def _told(error: Exception) -> str:
    """Return an exception as one line; a plug-in can raise anything."""
    if isinstance(error, JoyrlError):
        return f"{error.message}; fix: {error.fix}" if error.fix else error.message
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _rows(run: ShapeRun, stored: Stored) -> list[TensorRow]:
    """Return the tensors that were made, in order."""
    from joyrlinf_core.diagnostics.shapes import rows

    if not run.actors:
        return []
    rollout = list(rows.rollout_entries(run, stored))
    storages = {rows.address(entry.value) for entry in rollout} - {0}
    entries = [
        *rollout,
        *rows.mask_entries(run),
        *rows.advantage_entries(run),
        *rows.flat_entries(run, stored),
        *rows.loss_entries(run, stored),
    ]
    return [rows.table_row(entry, run, storages) for entry in entries]
