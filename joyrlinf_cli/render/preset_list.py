"""The list of presets as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from joyrlinf_core.config.schema import MetaConfig
    from joyrlinf_core.plan.catalogue import Entry

_RUNS = "*"


def preset_list(entries: Sequence[Entry]) -> str:
    """Return the presets under headings of simulator and model, one a line."""
    return "\n".join(_lines(entries))


def hardware(meta: MetaConfig) -> str:
    """Return what a preset needs, for example `8 x 24 GB`."""
    if meta.gpus == 0:
        return "CPU"
    if meta.gpu_memory_gb is None:
        return f"{meta.gpus} GPU" if meta.gpus == 1 else f"{meta.gpus} GPUs"
    return f"{meta.gpus} x {meta.gpu_memory_gb:g} GB"


def _lines(entries: Sequence[Entry]) -> Iterator[str]:
    name = max((len(entry.preset.name) for entry in entries), default=0)
    needs = max((len(hardware(entry.preset.meta)) for entry in entries), default=0)
    for (simulator, model), group in groupby(entries, lambda e: (e.simulator, e.model)):
        yield f"{simulator}, {model}"
        for entry in group:
            meta = entry.preset.meta
            mark = " " if entry.missing else _RUNS
            columns = (
                f"{entry.preset.name:<{name}}",
                f"{entry.mode:<5}",
                f"{hardware(meta):<{needs}}",
                meta.title,
            )
            yield f"{mark} {'  '.join(columns)}".rstrip()
        yield ""
    yield f"{_RUNS} runs in this version; the others can be validated, planned and estimated"
