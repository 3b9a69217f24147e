"""What connects the ranks, and how fast it should be: from nvidia-smi and /sys. No torch."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

# NVIDIA names them so in `nvidia-smi topo -m`, by growing distance.
PCIE_PATHS = ("PIX", "PXB", "PHB", "NODE", "SYS")

_LANE_BYTES = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""PCIe generation -> bytes per second of one lane in one direction, line coding taken off."""

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_GPU = re.compile(r"GPU(\d+)\Z")
_NVLINKS = re.compile(r"NV(\d+)\Z")
_LINK_RATE = re.compile(r"Link \d+:\s*([\d.]+) GB/s")
_SMI_SECONDS = 15


@dataclass(frozen=True)
class Link:
    """What connects two ranks.

    Attributes:
        name: In words.
        bytes_per_second: In one direction, as the hardware says; None where it is unknown.
    """

    name: str
    bytes_per_second: float | None


UNKNOWN = Link("unknown", None)


@dataclass(frozen=True)
class Gpu:
    """A GPU as nvidia-smi lists it.

    Attributes:
        index: Its number there.
        uuid: Without the leading `GPU-`.
        pcie_generation: Largest that card and slot allow; 0 where unknown.
        pcie_width: Lanes; 0 where unknown.
        nvlinks: Bytes per second in one direction of each NVLink that is up.
    """

    index: int
    uuid: str
    pcie_generation: int = 0
    pcie_width: int = 0
    nvlinks: tuple[float, ...] = ()


@dataclass(frozen=True)
class NodeHardware:
    """What one machine has to send with.

    Attributes:
        gpus: GPUs.
        paths: Names as in `nvidia-smi topo -m` (NV18, PIX, SYS) by pair of GPU numbers, both ways.
        networks: Bytes per second of network interfaces that tell it.
        infiniband: Bytes per second of the fastest active InfiniBand or RoCE port; None without.
    """

    gpus: tuple[Gpu, ...] = ()
    paths: Mapping[tuple[int, int], str] = field(default_factory=dict)
    networks: Mapping[str, float] = field(default_factory=dict)
    infiniband: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return JSON-able values."""
        return {
            "gpus": [asdict(gpu) for gpu in self.gpus],
            "paths": [[*pair, name] for pair, name in self.paths.items()],
            "networks": dict(self.networks),
            "infiniband": self.infiniband,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> NodeHardware:
        """Read what `to_json` returned."""
        gpus = (Gpu(**{**gpu, "nvlinks": tuple(gpu["nvlinks"])}) for gpu in value["gpus"])
        paths = {(a, b): name for a, b, name in value["paths"]}
        return cls(tuple(gpus), paths, value["networks"], value["infiniband"])


def read_hardware(sys_class: Path = Path("/sys/class")) -> NodeHardware:
    """Ask this machine; what can't be found out is left out."""
    gpus = read_gpus()
    return NodeHardware(
        gpus=gpus,
        paths=parse_paths(_smi("topo", "-m")) if gpus else {},
        networks=network_speeds(sys_class / "net"),
        infiniband=infiniband_speed(sys_class / "infiniband"),
    )


def read_gpus() -> tuple[Gpu, ...]:
    """Return the GPUs of this machine; none without nvidia-smi."""
    fields = "index,uuid,pcie.link.gen.max,pcie.link.width.max"
    query = _smi(f"--query-gpu={fields}", "--format=csv,noheader,nounits")
    return parse_gpus(query, _smi("nvlink", "--status") if query else "")


def parse_gpus(query: str, nvlink_status: str) -> tuple[Gpu, ...]:
    """Return the GPUs of two outputs of nvidia-smi.

    Args:
        query: CSV lines: index, uuid, largest PCIe generation, largest PCIe width.
        nvlink_status: Output of `nvidia-smi nvlink --status`; may be empty.
    """
    links: dict[int, list[float]] = {}
    current: list[float] = []
    for line in nvlink_status.splitlines():
        if header := re.match(r"GPU (\d+):", line):
            current = links.setdefault(int(header[1]), [])
        elif rate := _LINK_RATE.search(line):
            current.append(float(rate[1]) * 1e9)
    gpus: list[Gpu] = []
    for line in query.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) < 4 or not cells[0].isdigit():
            continue
        index = int(cells[0])
        generation, width = (int(cell) if cell.isdigit() else 0 for cell in cells[2:4])
        uuid = cells[1].removeprefix("GPU-")
        gpus.append(Gpu(index, uuid, generation, width, tuple(links.get(index, ()))))
    return tuple(gpus)


def parse_paths(topology: str) -> dict[tuple[int, int], str]:
    """Return the connections between GPUs in the output of `nvidia-smi topo -m`."""
    paths: dict[tuple[int, int], str] = {}
    columns: list[str] = []
    for line in _ESCAPE.sub("", topology).splitlines():
        words = line.split()
        if not words or not _GPU.match(words[0]):
            continue
        if not columns:  # the header names the columns; the first row names itself
            columns = [word for word in words if _GPU.match(word)]
            continue
        row = int(words[0].removeprefix("GPU"))
        for column, word in zip(columns, words[1:], strict=False):
            if word != "X":
                paths[row, int(column.removeprefix("GPU"))] = word
    return paths


def network_speeds(directory: Path) -> dict[str, float]:
    """Return the bytes per second of the interfaces in `/sys/class/net` that tell their speed."""
    speeds: dict[str, float] = {}
    for interface in sorted(directory.glob("*")):
        try:
            megabits = int((interface / "speed").read_text(encoding="ascii"))
        except (OSError, ValueError):  # loopback, bridges and unplugged cards have none
            continue
        if megabits > 0:
            speeds[interface.name] = megabits * 1e6 / 8
    return speeds


def infiniband_speed(directory: Path) -> float | None:
    """Return the bytes per second of the fastest active port; None if there is none."""
    speeds: list[float] = []
    for port in directory.glob("*/ports/*"):
        try:
            active = "ACTIVE" in (port / "state").read_text(encoding="ascii")
            rate = re.match(r"([\d.]+) Gb/sec", (port / "rate").read_text(encoding="ascii"))
        except OSError:
            continue
        if active and rate:
            speeds.append(float(rate[1]) * 1e9 / 8)
    return max(speeds, default=None)


def gpu_link(hardware: NodeHardware, first: str, second: str) -> Link:
    """Return what connects two GPUs of one machine.

    Args:
        hardware: The machine.
        first: Uuid of a GPU, without the leading `GPU-`.
        second: Uuid of another.
    """
    found = {gpu.uuid: gpu for gpu in hardware.gpus}
    a, b = found.get(first), found.get(second)
    path = hardware.paths.get((a.index, b.index)) if a and b else None
    if a is None or b is None or path is None:
        return UNKNOWN
    if links := _NVLINKS.match(path):
        count, rates = int(links[1]), (*a.nvlinks, *b.nvlinks)
        return Link(f"NVLink x{count}", count * min(rates) if rates else None)
    if path not in PCIE_PATHS:
        return Link(path, None)
    generation = min(a.pcie_generation, b.pcie_generation)
    width = min(a.pcie_width, b.pcie_width)
    if not generation or not width:
        return Link(f"PCIe ({path})", None)
    lane = _LANE_BYTES.get(generation)
    return Link(f"PCIe {generation} x{width} ({path})", lane * width if lane else None)


def network_link(
    first: NodeHardware, second: NodeHardware, interfaces: Sequence[str], *, infiniband: bool
) -> Link:
    """Return what connects two machines: the slower of both ends.

    Args:
        first: A machine.
        second: Another.
        interfaces: Interface that each of the two uses; empty where that is not known.
        infiniband: Whether the backend would use InfiniBand or RoCE.
    """
    if infiniband and first.infiniband and second.infiniband:
        return Link("InfiniBand", min(first.infiniband, second.infiniband))
    names = [name for name in interfaces if name]
    if len(names) < 2:
        return Link("network", None)
    ends = [first.networks.get(names[0]), second.networks.get(names[1])]
    told = [speed for speed in ends if speed is not None]
    return Link("-".join(dict.fromkeys(names)), min(told) if len(told) == 2 else None)


def interface_of(variable: str) -> str:
    """Return the one interface that GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME names, or empty."""
    name = variable.split(",")[0].removeprefix("=")
    return "" if name.startswith("^") else name


def _smi(*arguments: str) -> str:
    """Return what nvidia-smi prints; empty without it."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SMI_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
