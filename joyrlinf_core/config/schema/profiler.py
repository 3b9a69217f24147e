"""`profiler`: torch.profiler windows."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from joyrlinf_core.config.schema.base import Section


class TorchProfilerConfig(Section):
    """What torch.profiler records."""

    contents: tuple[Literal["cuda", "cpu", "memory", "shapes", "stack"], ...] = ("cpu", "cuda")
    """Activities and details to record."""

    discrete: bool = True
    """Has no effect: phases are named ranges in the trace of their step."""

    compress: bool = True
    """Write `.json.gz`."""


class ToolConfig(Section):
    """Settings of each tool."""

    torch: TorchProfilerConfig = TorchProfilerConfig()
    """torch.profiler."""


class ProfilerConfig(Section):
    """When and where to profile."""

    enable: bool = False
    """Record traces."""

    tool: Literal["torch"] = "torch"
    """Profiler to use."""

    steps: tuple[int, ...] = (1,)
    """Training steps to record, counted from 1."""

    ranks: tuple[int, ...] = (0,)
    """Global ranks to record."""

    all_ranks: bool = False
    """Record every rank."""

    roles: tuple[Literal["sync", "rollout", "actor", "env"], ...] = ("sync",)
    """Roles to record; the ranks of a synchronous run, which do everything, are `sync`."""

    profile_continuous_steps: bool = Field(default=False)
    """Join consecutive steps in one trace."""

    save_path: str | None = None
    """Where traces go. None: `profiler/` of the run directory."""

    tool_config: ToolConfig = ToolConfig()
    """Settings of the tool."""
