"""TensorBoard sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from joyrlinf_core.observability.events import Record, RunStarted
from joyrlinf_core.observability.run_dir import RunDir
from joyrlinf_core.observability.sinks.scalars import scalars

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter

FLUSH_SECONDS = 10


class TensorBoardSink:
    """Writes scalars to `tb/`.

    The writer opens at `RunStarted`: only then is it known from which step a resumed run goes on,
    and the steps that it repeats must be purged or the curves go back and forth.
    """

    def __init__(self, run_dir: RunDir) -> None:
        self._directory = run_dir.tensorboard
        self._writer: SummaryWriter | None = None

    def write(self, record: Record) -> None:
        """Write the scalars of one event."""
        if isinstance(record.event, RunStarted):
            self._open(record.event.start_step)
        step, values = scalars(record.event)
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step, walltime=record.time)

    def close(self) -> None:
        """Flush."""
        if self._writer is not None:
            self._writer.close()

    def _open(self, start_step: int) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        purge = start_step + 1 if start_step else None
        self._writer = SummaryWriter(
            str(self._directory), purge_step=purge, flush_secs=FLUSH_SECONDS
        )
