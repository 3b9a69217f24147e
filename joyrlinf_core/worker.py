"""The process that torchrun runs, one per rank: reads `plan.json` and runs its job.

`python -m joyrlinf_core.worker RUN_DIR`, with the variables that torchrun sets. Everything that a
worker prints goes to its own log, and its outcome to `status_rankN.json`: the launcher decides by
these files, not by exit codes. A worker never outlives its launcher.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joyrlinf_core.errors import EnvironmentNotReadyError, ExitCode, JoyrlError, RunFailedError
from joyrlinf_core.observability import disk, worker_variables
from joyrlinf_core.observability.activity import waiting
from joyrlinf_core.observability.liveness import ProcessId
from joyrlinf_core.observability.rank_status import Failure, RankStatus
from joyrlinf_core.observability.run_dir import RunDir

if TYPE_CHECKING:
    import torch

    from joyrlinf_core.engine.context import JobContext
    from joyrlinf_core.observability.emitter import Emitter
    from joyrlinf_core.plan.run_plan import RunPlan

COLLECTIVE_TIMEOUT = timedelta(minutes=30)
"""Longer than any phase in which ranks wait for one another; a dead rank is noticed by the
launcher, not by this."""

WATCHDOG_SECONDS = 0.5

Job = Callable[["JobContext"], str]
"""Runs on every rank; returns `completed` or `stopped`."""


@dataclass(frozen=True)
class Place:
    """Where torchrun put this process."""

    rank: int
    local_rank: int
    world_size: int
    node: int

    @classmethod
    def from_environment(cls) -> Place:
        """Read torchrun's variables; a process without them is the only rank."""
        value = os.environ.get
        return cls(
            rank=int(value("RANK", "0")),
            local_rank=int(value("LOCAL_RANK", "0")),
            world_size=int(value("WORLD_SIZE", "1")),
            node=int(value("GROUP_RANK", "0")),
        )


def run_worker(run_dir: RunDir, load_job: Callable[[], Job]) -> int:
    """Run a job on this rank and leave its outcome behind.

    Args:
        run_dir: The run directory; exists.
        load_job: Returns the job; imports of the job happen inside, so that their errors are
            reported like any other.

    Returns:
        Exit code of the process.
    """
    place = Place.from_environment()
    _redirect_output(run_dir.rank_log(place.node, place.rank))
    reporter = _Reporter(run_dir.rank_status(place.rank), place.rank)
    reporter.running()
    _start_watchdog(reporter)
    stop = _StopFlag(run_dir.stop_request)
    try:
        state = _run(run_dir, place, load_job, stop, reporter)
    except BaseException as error:  # whatever ended the job must reach the status file
        code = reporter.failed(error)
        with suppress(OSError):  # on a full disk the log has no room either
            traceback.print_exc()
        return code
    reporter.ended(state)
    return 0


def _run(
    run_dir: RunDir,
    place: Place,
    load_job: Callable[[], Job],
    stop: _StopFlag,
    reporter: _Reporter,
) -> str:
    from joyrlinf_core.engine.context import JobContext
    from joyrlinf_core.observability.heartbeat import Heartbeat
    from joyrlinf_core.plan.run_plan import RunPlan

    plan_file = Path(os.environ.get(worker_variables.PLAN) or run_dir.plan)
    plan = RunPlan.model_validate_json(plan_file.read_text(encoding="utf-8"))
    if place.world_size != plan.placement.world_size:
        raise RunFailedError(
            f"torchrun started {place.world_size} ranks, the plan has {plan.placement.world_size}",
            fix="start the run with `joyrl train`, or with the command of `--dry-run`",
        )
    job = load_job()
    device = _set_device(plan, place)
    emitter = _open_emitter(run_dir, plan, place.rank)
    try:
        with Heartbeat(emitter, reporter.exit_with):
            emitter.phase("start", 0)
            _join_group(place, device)
            context = JobContext(
                plan=plan,
                run_dir=run_dir,
                rank=place.rank,
                world_size=place.world_size,
                device=device,
                emitter=emitter,
                stop_requested=stop.is_set,
                fail=reporter.exit_with,
            )
            state = job(context)
    except BaseException as error:
        # Before sinks are closed, which may wait for a network: the earliest failure counts.
        reporter.failed(error)
        raise
    finally:
        emitter.close()
    _leave_group(place)
    return state


def _set_device(plan: RunPlan, place: Place) -> torch.device:
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    wanted, shared = plan.config.cluster.device, plan.config.launcher.mps
    available = torch.cuda.is_available()
    # Who can't reach the MPS daemon sees no GPU; that must not become a run on the CPU.
    if wanted == "cpu" or (wanted == "auto" and not available and not shared):
        return torch.device("cpu")
    number, count = plan.ranks[place.rank].device, torch.cuda.device_count() if available else 0
    if number >= count:
        raise EnvironmentNotReadyError(
            f"rank {place.rank} needs CUDA device {number}, this machine shows {count}",
            fix="lower cluster.gpus_per_node, check CUDA_VISIBLE_DEVICES, or cluster.device: cpu",
        )
    device = torch.device("cuda", number)
    torch.cuda.set_device(device)
    return device


def _join_group(place: Place, device: torch.device) -> None:
    if place.world_size == 1:
        return
    import torch.distributed as dist

    store = None
    if path := os.environ.get(worker_variables.STORE):
        store = dist.FileStore(path, place.world_size)  # pyright: ignore[reportPrivateImportUsage]
    with waiting("the other ranks to start"):
        dist.init_process_group(
            "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl",
            store=store,
            rank=place.rank,
            world_size=place.world_size,
            timeout=COLLECTIVE_TIMEOUT,
        )


def _leave_group(place: Place) -> None:
    """Only after success: with a peer gone, this could wait for the collective's time-out."""
    if place.world_size > 1:
        import torch.distributed as dist

        dist.destroy_process_group()


def _open_emitter(run_dir: RunDir, plan: RunPlan, rank: int) -> Emitter:
    from joyrlinf_core.observability.emitter import Emitter, Sink

    sinks: list[Sink] = []
    if rank == plan.placement.metrics_rank:
        from joyrlinf_core.observability.perf_summary import PerfSummary

        launched = os.environ.get(worker_variables.LAUNCHED_AT)
        sinks.append(PerfSummary(run_dir, launched_at=float(launched) if launched else None))
        logger = plan.config.runner.logger
        if "tensorboard" in logger.logger_backends:
            from joyrlinf_core.observability.sinks.tensorboard import TensorBoardSink

            sinks.append(TensorBoardSink(run_dir))
        if "wandb" in logger.logger_backends:
            from joyrlinf_core.observability.sinks.wandb import WandbSink

            config: dict[str, Any] = plan.config.model_dump(mode="json")
            sinks.append(WandbSink(run_dir, logger.experiment_name, config))
    place = plan.placement
    node, speaker = place.node_of(rank), place.node_of(place.metrics_rank)
    path = run_dir.events if node == speaker else run_dir.node_events(node)
    return Emitter(run_dir, rank, sinks, path=path)


def _redirect_output(log: Path) -> None:
    """Send standard output and error, also of C libraries and simulators, to this rank's log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(descriptor, stream.fileno())
    os.close(descriptor)
    faulthandler.enable()
    # The launcher asks for all stacks this way when a run has gone silent.
    faulthandler.register(signal.SIGUSR1, all_threads=True)


class _StopFlag:
    """Whether the job shall end after its current step.

    SIGTERM (a scheduler that ends the job) leaves the request file behind, so that all ranks see
    it; Ctrl-C is for the launcher alone.
    """

    def __init__(self, request: Path) -> None:
        self._request = request
        self._asked = False
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def is_set(self) -> bool:
        """Return whether a stop was requested."""
        return self._asked or self._request.exists()

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._asked = True
        with suppress(OSError):  # a full disk; the ranks agree on the flag of any of them
            self._request.touch()


class _Reporter:
    """Writes the status file of this rank."""

    def __init__(self, path: Path, rank: int) -> None:
        self._path = path
        self._rank = rank
        self._process = str(ProcessId.of(os.getpid()))
        self._lock = threading.Lock()
        self._final = False

    def running(self) -> None:
        self._write("running")

    def ended(self, state: str) -> None:
        if state not in ("completed", "stopped"):
            raise AssertionError(f"a job returned {state!r}, not completed or stopped")
        self._write(state, exit_code=0)

    def failed(self, error: BaseException) -> int:
        """Write why the job failed; return the exit code."""
        code = int(error.exit_code if isinstance(error, JoyrlError) else ExitCode.RUN_FAILED)
        if isinstance(error, JoyrlError):
            failure = Failure(type(error).__name__, error.message, error.fix, traceback="")
        elif isinstance(error, OSError) and disk.is_full(error):
            place = Path(error.filename) if isinstance(error.filename, str) else self._path
            message = f"{disk.no_space(place)}; can't write {place}"
            failure = Failure(type(error).__name__, message, "free space there", traceback="")
        else:
            lines = "".join(traceback.format_exception(error))
            failure = Failure(type(error).__name__, str(error), "", traceback=lines)
        self._write("failed", exit_code=code, failure=failure)
        return code

    def exit_with(self, error: BaseException) -> None:
        """Write why the job failed and end this process at once, from any thread."""
        code = self.failed(error)
        with suppress(OSError):
            traceback.print_exception(error)
            sys.stderr.flush()
        os._exit(code)

    def _write(
        self, state: Any, *, exit_code: int | None = None, failure: Failure | None = None
    ) -> None:
        status = RankStatus(self._rank, self._process, state, time.time(), exit_code, failure)
        with self._lock:
            # The first outcome counts; the watchdog may come by while the process ends.
            if not self._final:
                # Without room for either, the launcher looks at the disk of a rank that has died.
                with suppress(OSError):
                    status.write(self._path)
            self._final = state != "running"


def _start_watchdog(reporter: _Reporter) -> None:
    """End this process group, simulators included, once launcher or torchrun is gone."""
    named = os.environ.get(worker_variables.LAUNCHER)
    launcher = ProcessId.parse(named) if named else None
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent and (launcher is None or launcher.alive):
            time.sleep(WATCHDOG_SECONDS)
        gone = "torchrun" if os.getppid() != parent else "the launcher"
        try:
            reporter.failed(RunFailedError(f"{gone} died", fix="`joyrl resume` the run"))
        finally:
            _kill_own_group()

    threading.Thread(target=watch, name="watchdog", daemon=True).start()


def _kill_own_group() -> None:
    # torchrun makes each worker the leader of its own session; anything else must be spared.
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(int(ExitCode.RUN_FAILED))


def _load_job() -> Job:
    from joyrlinf_core.engine.jobs import run_job

    return run_job


def main() -> None:
    """Entry point of `python -m joyrlinf_core.worker RUN_DIR`."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m joyrlinf_core.worker RUN_DIR")
    sys.exit(run_worker(RunDir(Path(sys.argv[1])), _load_job))


if __name__ == "__main__":
    main()
