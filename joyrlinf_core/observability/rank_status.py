"""`status_rankN.json`: what became of one worker. Standard library alone."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

from joyrlinf_core.observability.atomic import write_json
from joyrlinf_core.observability.disk import is_full
from joyrlinf_core.observability.liveness import ProcessId

State = Literal["running", "failed", "completed", "stopped"]


@dataclass(frozen=True)
class Failure:
    """Why a worker failed."""

    type: str
    message: str
    fix: str
    traceback: str
    """Empty for an error whose message says everything a user needs."""


@dataclass(frozen=True)
class RankStatus:
    """State of one worker.

    Attributes:
        rank: Global rank.
        process: `ProcessId` as text.
        state: `running` until the job returned or raised.
        time: When the state was entered, seconds since the epoch.
        exit_code: Exit code of the process; None while running.
        failure: Only in state `failed`.
    """

    rank: int
    process: str
    state: State
    time: float
    exit_code: int | None = None
    failure: Failure | None = None

    def write(self, path: Path) -> None:
        """Write atomically; on a full disk, over the earlier status, whose space it takes.

        Raises:
            OSError: Not even that was possible.
        """
        try:
            write_json(path, asdict(self))
        except OSError as error:
            if not is_full(error) or not path.exists():
                raise
            with path.open("r+", encoding="utf-8") as file:
                file.write(json.dumps(asdict(self)))
                file.truncate()

    @classmethod
    def read(cls, path: Path) -> RankStatus | None:
        """Read a status; None if there is none, or the file is something else.

        Raises:
            OSError: The file is there and can't be read.
        """
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError, RecursionError):
            return None
        if not isinstance(value, dict):
            return None
        failure = value.pop("failure", None)
        try:
            status = cls(**value, failure=Failure(**failure) if failure else None)
            ProcessId.parse(status.process)
        except (TypeError, ValueError, AttributeError):
            return None
        sound = isinstance(status.rank, int) and status.state in get_args(State)
        return status if sound else None


def read_all(logs: Path) -> list[RankStatus]:
    """Return the statuses of all ranks that have one, by rank."""
    found = [RankStatus.read(path) for path in logs.glob("status_rank*.json")]
    return sorted((status for status in found if status is not None), key=lambda s: s.rank)
