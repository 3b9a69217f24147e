"""What the user asked `nccl-test` for, and how it reaches the workers. No torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from joyrlinf_core.errors import UsageError

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_SIZE = re.compile(r"\s*(\d{1,12})\s*([KMG]?)(?:I?B)?\s*\Z", re.IGNORECASE)

CPU_SIZES = (2**10, 2**14, 2**18, 2**22, 2**26)
GPU_SIZES = (*CPU_SIZES, 2**30)

MIN_SIZE, MAX_SIZE = 4, 2**32


@dataclass(frozen=True)
class Request:
    """Options of a test.

    Attributes:
        sizes: Bytes, ascending; empty for the default of the device.
        per_pair: Measure every pair of ranks, not only neighbours.
        timeout: Seconds without progress of any rank after which the test gives up.
        plan_groups: Test the groups of the plan, not the world alone.
    """

    sizes: tuple[int, ...] = ()
    per_pair: bool = False
    timeout: float = 60.0
    plan_groups: bool = False

    def sizes_on(self, *, gpu: bool) -> tuple[int, ...]:
        """Return the sizes to measure."""
        return self.sizes or (GPU_SIZES if gpu else CPU_SIZES)

    def to_args(self) -> dict[str, str]:
        """Return it as `RunPlan.args`."""
        return {
            "sizes": ",".join(map(str, self.sizes)),
            "per_pair": str(self.per_pair),
            "timeout": repr(self.timeout),
            "plan_groups": str(self.plan_groups),
        }

    @classmethod
    def from_args(cls, args: Mapping[str, str]) -> Request:
        """Read what `to_args` wrote."""
        return cls(
            sizes=tuple(int(size) for size in args["sizes"].split(",") if size),
            per_pair=args["per_pair"] == "True",
            timeout=float(args["timeout"]),
            plan_groups=args["plan_groups"] == "True",
        )


def parse_sizes(text: str) -> tuple[int, ...]:
    """Return the sizes of a text such as `1K,64M,1GiB`, ascending, in bytes.

    Raises:
        UsageError: It can't be read, or a size is out of range.
    """
    sizes: set[int] = set()
    for part in text.split(","):
        match = _SIZE.match(part)
        size = int(match[1]) * _UNITS[match[2].upper()] if match else 0
        if not MIN_SIZE <= size <= MAX_SIZE:
            raise UsageError(
                f"--sizes: '{part.strip()}' is no size between 4 bytes and 4 GiB",
                fix="as in --sizes 1K,64K,1M,64M",
            )
        sizes.add(size)
    return tuple(sorted(sizes))
