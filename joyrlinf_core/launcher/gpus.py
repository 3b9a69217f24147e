"""The GPUs of this machine, from nvidia-smi; and which of them CUDA_VISIBLE_DEVICES names.

A launcher imports no torch, and a process that has asked CUDA once can't be hidden from it again.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

VISIBLE = "CUDA_VISIBLE_DEVICES"
_FIELDS = "index,uuid,compute_mode,name"
_SECONDS = 30.0
"""nvidia-smi takes seconds where no process keeps the driver awake."""


@dataclass(frozen=True)
class Gpu:
    """A GPU, or a part of one (MIG), of which nvidia-smi lists no more than the name.

    Attributes:
        uuid: Its name in CUDA_VISIBLE_DEVICES, whatever its number there.
        index: Its number in nvidia-smi; -1 for a part of a GPU.
        compute_mode: `Default`, `Exclusive_Process` or `Prohibited`; empty for a part of a GPU.
        name: What it is.
    """

    uuid: str
    index: int = -1
    compute_mode: str = ""
    name: str = ""


def installed() -> tuple[Gpu, ...]:
    """Return the GPUs that nvidia-smi lists; none without it."""
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={_FIELDS}", "--format=csv,noheader"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return _parsed(done.stdout) if done.returncode == 0 else ()


def _parsed(listing: str) -> tuple[Gpu, ...]:
    gpus: list[Gpu] = []
    for line in listing.splitlines():
        cells = [cell.strip() for cell in line.split(",", maxsplit=3)]
        if len(cells) == 4 and cells[0].isdigit():
            gpus.append(Gpu(cells[1], int(cells[0]), cells[2], cells[3]))
    return tuple(gpus)


def visible(gpus: Sequence[Gpu], variable: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs that a process sees, in the order of its CUDA device numbers.

    Args:
        gpus: All of the machine.
        variable: Value of CUDA_VISIBLE_DEVICES; None where it is not set.
    """
    if variable is None:
        return tuple(gpus)
    seen: list[Gpu] = []
    for name in (part.strip() for part in variable.split(",")):
        if name.startswith("MIG-"):
            seen.append(Gpu(name))
            continue
        found = next((gpu for gpu in gpus if _is(gpu, name)), None)
        if found is None:
            break  # CUDA, too, takes what comes before the first name that it does not know
        seen.append(found)
    return tuple(seen)


def _is(gpu: Gpu, name: str) -> bool:
    """Say whether a part of CUDA_VISIBLE_DEVICES means this GPU: its number, or how it begins."""
    by_uuid = name.startswith("GPU-") and gpu.uuid.startswith(name)
    return by_uuid or (name.isdigit() and int(name) == gpu.index)
