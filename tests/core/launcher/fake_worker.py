"""A worker with a job that needs no simulator and no policy; `plan.args["behave"]` says what it
does."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from joyrlinf_core import worker
from joyrlinf_core.errors import SimulatorCrashError
from joyrlinf_core.observability.activity import waiting
from joyrlinf_core.observability.events import (
    CheckpointSaved,
    EvalResult,
    Finished,
    RunStarted,
    Step,
)
from joyrlinf_core.observability.run_dir import RunDir
from joyrlinf_core.observability.timers import PhaseTimer
from tests.doubles.checkpoints import write_checkpoint


def job(context):
    behave = context.plan.args.get("behave", "steps:3")
    what, _, argument = behave.partition(":")
    start_step = int(context.plan.args.get("start", "0"))
    if what == "slow_start":
        (context.run_dir.root / f"ready_rank{context.rank}").touch()
        time.sleep(120)
    # Stands for a simulator process: lives in the worker's process group.
    simulator = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
    (context.run_dir.root / f"simulator_rank{context.rank}").write_text(str(simulator.pid))
    try:
        if context.rank == context.plan.placement.metrics_rank:
            context.emitter.emit(
                RunStarted("train", str(context.run_dir.root), context.world_size, start_step, 3)
            )
        if context.world_size > 1:
            import torch
            import torch.distributed as dist

            one = torch.ones(1)
            dist.all_reduce(one)
            assert one.item() == context.world_size
        return globals()[f"do_{what}"](context, argument, start_step)
    finally:
        simulator.kill()


def do_steps(context, count, start_step):
    for step in range(start_step + 1, int(count) + 1):
        context.emitter.phase("rollout", step - 1, done=1, total=2)
        if context.rank == context.plan.placement.metrics_rank:
            metrics = {"rollout/success_once": 0.1 * step, "env/steps": 100.0, "train/samples": 8.0}
            context.emitter.emit(Step(step, metrics, {"rollout": 0.006, "update": 0.002}, 0.01))
    if context.rank == context.plan.placement.metrics_rank:
        save(context, int(count))
        context.emitter.emit(EvalResult(int(count), "end", 200, 0.9, 0.85, 0.93, {"a": 0.9}, 40, 1))
        context.emitter.emit(Finished("completed", int(count), 0.03))
    return "completed"


def do_until_stopped(context, argument, _start):
    (context.run_dir.root / f"ready_rank{context.rank}").touch()
    while not context.stop_requested():
        context.emitter.phase("rollout", 0)
        time.sleep(0.05)
    if argument == "save" and context.rank == context.plan.placement.metrics_rank:
        save(context, 1)
    return "stopped"


def do_ignore_stop(context, _argument, _start):
    (context.run_dir.root / f"ready_rank{context.rank}").touch()
    time.sleep(120)
    return "completed"


def do_raise(context, rank, _start):
    if context.rank == int(rank):
        time.sleep(0.2)
        raise ValueError("the fake job broke")
    wait_for_peer(context)
    return "completed"


def do_joyrl_error(_context, _argument, _start):
    raise SimulatorCrashError("simulator 3 crashed", fix="look at its log")


def do_kill(context, rank, _start):
    if context.rank == int(rank):
        os.kill(os.getpid(), signal.SIGKILL)
    wait_for_peer(context)
    return "completed"


def do_hang(context, rank, _start):
    context.emitter.phase("rollout", 11, done=3, total=6)
    if context.rank == int(rank):
        with PhaseTimer()("rollout/env_wait"):
            time.sleep(120)
    with waiting("other ranks"):
        wait_for_peer(context)
    return "completed"


def do_all_wait(context, _argument, _start):
    with waiting("a batch" if context.rank else "weights"):
        time.sleep(120)
    return "completed"


def wait_for_peer(context):
    import torch
    import torch.distributed as dist

    if context.world_size > 1:
        dist.all_reduce(torch.ones(1))


def save(context, step):
    step_dir = context.run_dir.checkpoint(step)
    write_checkpoint(step_dir)
    context.emitter.emit(CheckpointSaved(step, str(step_dir), 0.01))


if __name__ == "__main__":
    sys.exit(worker.run_worker(RunDir(Path(sys.argv[1])), lambda: job))
