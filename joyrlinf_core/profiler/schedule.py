"""`StepProfiler`: records the training steps that `profiler` names, on the ranks that it names."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from joyrlinf_core.profiler.ranges import set_recording

if TYPE_CHECKING:
    from joyrlinf_core.config.schema import ProfilerConfig

TRACE_NAME = "rank{rank}_step{first}{last}.json{suffix}"


class StepProfiler:
    """Call `begin` before and `end` after each training step, inside a `with` block.

    Leaving the block writes a trace that is still being recorded, as where a run is stopped or
    joined steps reach beyond its last one; an error drops it, so that nothing delays its report.

    Args:
        config: The `profiler` section.
        directory: Where traces go unless `save_path` is set.
        rank: Global rank.
        role: What this rank does, as `roles` calls it.
        use_cuda: This rank computes on a GPU.
    """

    def __init__(
        self, config: ProfilerConfig, directory: Path, rank: int, *, role: str, use_cuda: bool
    ) -> None:
        chosen = (config.all_ranks or rank in config.ranks) and role in config.roles
        self._steps = frozenset(config.steps) if config.enable and chosen else frozenset()
        self._join = config.profile_continuous_steps
        self._contents = frozenset(config.tool_config.torch.contents)
        self._suffix = ".gz" if config.tool_config.torch.compress else ""
        self._directory = Path(config.save_path) if config.save_path else directory
        self._rank = rank
        self._use_cuda = use_cuda
        self._profile: Any = None
        self._first = self._last = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._profile is None:
            return
        if error_type is None:
            self._write()
        else:
            self._stop()

    def begin(self, step: int) -> None:
        """Start recording if `step`, counted from 1, is to be recorded."""
        if step not in self._steps:
            return
        self._last = step
        if self._profile is not None:
            return
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU]
        if self._use_cuda and "cuda" in self._contents:
            activities.append(ProfilerActivity.CUDA)
        self._profile = profile(
            activities=activities,
            record_shapes="shapes" in self._contents,
            profile_memory="memory" in self._contents,
            with_stack="stack" in self._contents,
        )
        self._first = step
        set_recording(on=True)
        self._profile.start()

    def end(self, step: int) -> Path | None:
        """Stop recording and write the trace if the recorded window ends with `step`.

        Returns:
            The trace file, or None where none was written.
        """
        goes_on = self._join and step + 1 in self._steps
        if self._profile is None or goes_on:
            return None
        return self._write()

    def _stop(self) -> Any:
        recorded, self._profile = self._profile, None
        recorded.stop()
        set_recording(on=False)
        return recorded

    def _write(self) -> Path:
        recorded = self._stop()
        self._directory.mkdir(parents=True, exist_ok=True)
        last = f"-{self._last}" if self._last > self._first else ""
        name = TRACE_NAME.format(rank=self._rank, first=self._first, last=last, suffix=self._suffix)
        path = self._directory / name
        recorded.export_chrome_trace(str(path))
        return path
