"""Runs that go wrong on purpose: one run directory, one fault after another.

Every launch resumes from the last checkpoint, so each fault also shows that the run could go on
after the one before.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from joyrlinf_core.checkpoint.store import latest
from joyrlinf_core.config.schema import Config
from joyrlinf_core.launcher import supervisor, torchrun
from joyrlinf_core.launcher.digest import Digest
from joyrlinf_core.launcher.jobs import Jobs
from joyrlinf_core.launcher.nodes.endings import Outcome
from joyrlinf_core.launcher.run_directory import list_runs
from joyrlinf_core.observability.events import Record
from joyrlinf_core.observability.run_dir import RunDir
from tests.core.engine.harness import make_config
from tests.doubles import faulty, warm_start
from tests.doubles.faulty import Fault

END_SECONDS = 15.0
"""A run has ended so long after its failure was noticed."""

APART = {"env,rollout": "0-1", "actor": "2"}
STEPS = 10**6
"""More than any launch makes."""


class Listener:
    """Keeps what the launcher says."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.notices: list[str] = []

    def on_record(self, record: Record) -> None:
        self.records.append(record)

    def on_notice(self, text: str) -> None:
        self.notices.append(text)

    def on_tick(self) -> None:
        pass

    def close(self) -> None:
        pass

    def kinds(self, kind: str) -> list[Any]:
        return [record.event for record in self.records if record.event.kind == kind]


@dataclass
class Trial:
    """One launch.

    Attributes:
        run_dir: Its run directory.
        outcome: How it ended.
        heard: What the launcher said.
        ended: When, seconds since the epoch.
        mark: Written when the fault struck.
        left: Processes of the launch that still run.
    """

    run_dir: RunDir
    outcome: Outcome
    heard: Listener
    ended: float
    mark: Path
    left: list[int]

    @property
    def seconds(self) -> float:
        """From the fault to the end."""
        return self.ended - float(self.mark.read_text())


@dataclass
class Campaign:
    """Launches in one run directory.

    Args:
        mode: Name of the config.
        root: Where everything goes.
        policy: Policy directory.
        server: Socket of the warm start.
        config: Keys that differ from the base config.
    """

    mode: str
    root: Path
    policy: Path
    server: Path
    config: dict[str, Any]
    launches: list[torchrun.Started] = field(default_factory=list)
    count: int = 0

    def begin(self, **changes: Any) -> Trial:
        """Train from the start."""
        return self._launch(lambda jobs: jobs.train(self._config(changes)))

    def resume(
        self, fault: Fault | None = None, *, signals: Sequence[int] = (), **changes: Any
    ) -> Trial:
        """Go on from the newest whole checkpoint.

        Args:
            fault: What goes wrong.
            signals: Sent to the launcher, one a second, once the fault has struck.
            changes: Keys of the config.
        """
        run_dir, checkpoint = self.run_dir, self.newest
        config = self._config(changes)
        return self._launch(
            lambda jobs: jobs.resume(config, run_dir, checkpoint), fault, signals=signals
        )

    @property
    def run_dir(self) -> RunDir:
        """The run directory."""
        (run_dir,) = list_runs(self.root / "results")
        return run_dir

    @property
    def newest(self) -> Path:
        """The newest checkpoint; all are whole."""
        newest = latest(self.run_dir.checkpoints)
        assert newest.path is not None
        assert newest.skipped == ()
        return newest.path

    def finish(self, steps: int = 1, fault: Fault | None = None, **changes: Any) -> Trial:
        """Go on for so many steps, to the end."""
        last = int(self.newest.name.rpartition("_")[2]) + steps
        return self.resume(fault, runner__max_steps=last, **changes)

    def fault(self, place: str, what: str, rank: int, **more: Any) -> Fault:
        """Return a fault of the next launch."""
        return Fault(place, what, rank, str(self._mark(self.count + 1)), **more)

    def _mark(self, count: int) -> Path:
        return self.root / f"struck_{count}"

    def _config(self, changes: dict[str, Any]) -> Config:
        return make_config(
            **{
                "env__train__total_num_envs": 16,
                "algorithm__update_epoch": 1,
                "actor__micro_batch_size": 8,
                "actor__model__model_path": str(self.policy),
                "cluster__component_placement": APART,
                "runner__max_steps": STEPS,
                "runner__save_interval": 1,
                "runner__logger__log_path": str(self.root / "results"),
                "runner__logger__logger_backends": [],
            }
            | self.config
            | changes
        )

    def _launch(
        self,
        start: Callable[[Jobs], Any],
        fault: Fault | None = None,
        *,
        signals: Sequence[int] = (),
    ) -> Trial:
        self.count += 1
        mark, heard, left = self._mark(self.count), Listener(), len(self.launches)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(faulty.VARIABLE, fault.to_text() if fault else "")
            patch.setattr(torchrun, "torchrun_command", self._command)
            patch.setattr(supervisor, "start", self._start(torchrun.start))
            if signals:
                _send_later(mark, signals)
            result = start(Jobs(lambda *_: heard, lambda _: None))
        ended = time.time()
        alive = [pid for started in self.launches[left:] for pid in started.launch.alive()]
        return Trial(result.run_dir, result.outcome, heard, ended, mark, alive)

    def _command(self, plan: Any, run_dir: Path, **_: Any) -> list[str]:
        return warm_start.command(self.server, plan.placement.world_size, run_dir)

    def _start(self, original: Callable[..., torchrun.Started]) -> Callable[..., torchrun.Started]:
        def start(*args: Any, **kwargs: Any) -> torchrun.Started:
            self.launches.append(original(*args, **kwargs))
            return self.launches[-1]

        return start


def _send_later(mark: Path, signals: Sequence[int]) -> None:
    def send() -> None:
        deadline = time.monotonic() + 120
        while not mark.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        for number in signals:
            os.kill(os.getpid(), number)
            time.sleep(1.0)

    threading.Thread(target=send, daemon=True).start()


def check_failed(trial: Trial, rank: int, headline: str, *, within: float = END_SECONDS) -> Digest:
    """Check how a run ended that one rank has ruined; return what the user was told.

    Args:
        trial: The launch.
        rank: That rank.
        headline: A part of what is said of it.
        within: Seconds from the fault to the end.
    """
    digest = trial.outcome.digest
    assert trial.outcome.exit_code == 5, trial.outcome
    assert digest is not None
    assert digest.headline.startswith(f"rank {rank}"), digest
    assert headline in digest.headline, digest
    assert digest.log == trial.run_dir.rank_log(0, rank)
    assert trial.seconds < within
    check_left(trial)
    return digest


def check_left(trial: Trial) -> None:
    """Check that no process is left, and that the run can go on."""
    assert trial.left == []
    newest = latest(trial.run_dir.checkpoints)
    assert newest.path is not None
    assert newest.skipped == ()
