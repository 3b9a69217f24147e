"""What `shape-check` found: tensors, checks, and how much of the plan was run. No torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Status = Literal["ok", "failed", "skipped"]


@dataclass(frozen=True)
class TensorRow:
    """One tensor of one stage, as one actor holds it.

    Attributes:
        stage: Where it comes from.
        tensor: Its name; policy tensors are `inputs.<name>` and `replay.<name>`.
        axes: Letters of the leading axes, as in `batch/layout.py`; `m` is a micro-batch.
        shape: Shape in the planned run.
        dtype: Element type.
        nbytes: Bytes in the planned run.
        ran: Shape that was run here.
        is_view: It shares the memory of a rollout tensor, so it takes no bytes of its own.
    """

    stage: str
    tensor: str
    axes: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    ran: tuple[int, ...]
    is_view: bool


@dataclass(frozen=True)
class Check:
    """One statement that was tested.

    Attributes:
        name: What has to hold.
        status: `skipped` where something before it failed, or where it does not apply.
        detail: The numbers; for a failure, what was found and what was expected.
    """

    name: str
    status: Status
    detail: str


@dataclass(frozen=True)
class Sizes:
    """Letters of batch arithmetic, see `plan/batching.py`.

    Attributes:
        actors: W_a.
        epochs: R, rollout epochs of one training step.
        t: T_eff, chunk steps of one training step.
        columns: B, columns of one actor.
        group_size: G.
        chunk: C.
        action_dim: D.
        optimizer_steps: Optimizer steps of one update epoch.
        micro_batch: m, rows of a micro-batch.
    """

    actors: int
    epochs: int
    t: int
    columns: int
    group_size: int
    chunk: int
    action_dim: int
    optimizer_steps: int
    micro_batch: int

    @property
    def samples(self) -> int:
        """N, samples of one actor."""
        return self.t * self.columns

    @property
    def groups(self) -> int:
        """Groups of one actor."""
        return self.columns // self.group_size

    @property
    def step_rows(self) -> int:
        """Samples of one actor in one optimizer step."""
        return self.samples // self.optimizer_steps


@dataclass(frozen=True)
class ShapeReport:
    """Everything that one config gave.

    Attributes:
        planned: Sizes of the run.
        ran: Sizes that were run here.
        notes: What the reader has to know, for example how the second came from the first.
        rows: Tensors in the order in which they are made.
        checks: Checks in the order in which they were made.
    """

    planned: Sizes
    ran: Sizes
    notes: tuple[str, ...]
    rows: tuple[TensorRow, ...]
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return not any(check.status == "failed" for check in self.checks)

    def to_json(self) -> dict[str, object]:
        """Return the report as JSON-able values."""
        return {"ok": self.ok, **asdict(self)}
