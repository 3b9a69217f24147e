"""The program of each rank of `nccl-test`: `python -m joyrlinf_core.diagnostics.links.worker DIR`.

A worker like any other (`joyrlinf_core/worker.py`), with another job: no policy, no simulator. All
ranks go through the steps together, those outside of a step's group wait; before and after each
they say so in the event file, where the launcher watches them.
"""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joyrlinf_core.diagnostics.links.facts import BACKEND_VARIABLES, RankFacts, links_of
from joyrlinf_core.diagnostics.links.hardware import NodeHardware, read_hardware
from joyrlinf_core.diagnostics.links.journal import Journal, Row
from joyrlinf_core.diagnostics.links.relay import Relay
from joyrlinf_core.diagnostics.links.request import Request
from joyrlinf_core.diagnostics.links.steps import (
    FIRST_STEP,
    THE_END,
    LinkGroup,
    LinkStep,
    make_steps,
    without_repeats,
)
from joyrlinf_core.observability.events import Phase
from joyrlinf_core.observability.run_dir import RunDir
from joyrlinf_core.worker import run_worker

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from joyrlinf_core.comm.link_operations import LinkOperation
    from joyrlinf_core.engine.context import JobContext

WINDOW_SECONDS = 0.04
"""A size is called as often as fits in here, several times over."""

WINDOWS = 3
"""The fastest one counts: what else the machine does only makes the others slower."""

MAX_CALLS = 1000
PARTS = 3
"""Of a step: it began, the numbers were checked, the time was taken."""


class LinkTest:
    """The job on one rank.

    Args:
        context: This worker.
    """

    def __init__(self, context: JobContext) -> None:
        from joyrlinf_core.comm.collectives import Collectives

        self._context = context
        self._request = Request.from_args(context.plan.args)
        self._world = Collectives()
        self._gpu = context.device.type == "cuda"
        # One rank of each machine writes what its launcher reads.
        writes = context.plan.ranks[context.rank].local_rank == 0
        self._journal = Journal(context.run_dir) if writes else None
        self._relay = Relay(context) if context.plan.placement.num_nodes > 1 else None
        self._groups: tuple[LinkGroup, ...] = ()
        self._handles: list[ProcessGroup | None] = []

    def run(self) -> str:
        """Test everything; return `completed`, also where numbers were wrong."""
        self._say(Phase("start", 0))
        facts, hardware = self._exchange_facts()
        self._make_groups()
        sizes = self._request.sizes_on(gpu=self._gpu)
        steps = make_steps(self._groups, sizes, per_pair=self._request.per_pair)
        if self._journal is not None:
            links = links_of(self._groups, steps, facts, hardware)
            self._journal.begin(facts, self._groups, steps, links)
        for step in steps:
            row = self._measure(step)
            if self._journal is not None:
                self._journal.add(row)
        self._say(Phase(THE_END, len(steps) + FIRST_STEP, PARTS, PARTS))
        return "completed"

    def _exchange_facts(self) -> tuple[list[RankFacts], dict[int, NodeHardware]]:
        plan, rank = self._context.plan, self._context.rank
        own = plan.ranks[rank]
        first = own.local_rank == 0
        told = {
            "facts": asdict(self._facts(own.node)),
            "hardware": read_hardware().to_json() if first else None,
        }
        every = self._world.gather_json(told)
        facts = [RankFacts(**one["facts"]) for one in every]
        hardware = {
            one["facts"]["node"]: NodeHardware.from_json(one["hardware"])
            for one in every
            if one["hardware"] is not None
        }
        return facts, hardware

    def _facts(self, node: int) -> RankFacts:
        import torch

        device, uuid, nccl = "CPU", "", ""
        if self._gpu:
            properties = torch.cuda.get_device_properties(self._context.device)
            device, uuid = properties.name, str(properties.uuid)
            nccl = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[attr-defined]
        variables = {name: os.environ[name] for name in BACKEND_VARIABLES if name in os.environ}
        variables |= {k: v for k, v in os.environ.items() if k.startswith("NCCL_")}
        return RankFacts(
            self._context.rank, node, socket.gethostname(), device, uuid, torch.__version__, nccl,
            variables,
        )  # fmt: skip

    def _make_groups(self) -> None:
        """List what is tested, and make the plan's groups on all ranks."""
        place = self._context.plan.placement
        every = tuple(range(place.world_size))
        found: list[tuple[LinkGroup, ProcessGroup | None]] = []
        if self._gpu and not self._request.plan_groups:
            found.append((LinkGroup("world", "nccl", True, every, 0), None))
        found.append((LinkGroup("world", "gloo", False, every, 0), None))
        if self._request.plan_groups:
            found += self._plan_groups()
        found = [pair for pair in found if len(pair[0].ranks) > 1]
        self._groups = without_repeats([group for group, _ in found])
        self._handles = [handle for _, handle in found]

    def _plan_groups(self) -> list[tuple[LinkGroup, ProcessGroup | None]]:
        from joyrlinf_core.comm.groups import group_specs, make_groups

        plan = self._context.plan
        made = make_groups(
            plan,
            device_backend="cpu:gloo,cuda:nccl" if self._gpu else "gloo",
            cpu_backend="gloo",
            # The launcher, which names the rank that others wait for, has to come first.
            timeout=timedelta(seconds=2 * self._request.timeout + 60),
        )
        found: list[tuple[LinkGroup, ProcessGroup | None]] = []
        for spec in group_specs(plan):
            source = plan.placement.metrics_rank
            root = source if spec.name == "weights" else spec.ranks[0]
            handle = made.get(spec.name)
            if self._gpu and spec.on_device:
                found.append((LinkGroup(spec.name, "nccl", True, spec.ranks, root), handle))
            found.append((LinkGroup(spec.name, "gloo", False, spec.ranks, root), handle))
        return found

    def _measure(self, step: LinkStep) -> Row:
        """Check and time one step; called on all ranks, returns the same on each."""
        self._tell(step, 0)
        self._world.barrier()
        operation = self._operation(step)
        told: dict[str, Any] = {"seconds": 0.0, "error": "", "nbytes": 0}
        if operation is not None:
            told = self._check(step, operation)
        every = self._world.gather_json(told)
        calls, seconds = 1, max(one["seconds"] for one in every)
        if step.operation != "connect":
            calls = max(1, min(MAX_CALLS, int(WINDOW_SECONDS / max(seconds, 1e-9))))
            seconds = self._best_window(step, operation, calls) / calls
        transfers = 2 if step.operation == "p2p" else 1
        return Row(
            step=step.index,
            nbytes=max(one["nbytes"] for one in every),
            seconds=seconds / transfers,
            calls=calls,
            errors={str(rank): one["error"] for rank, one in enumerate(every) if one["error"]},
        )

    def _check(self, step: LinkStep, operation: LinkOperation) -> dict[str, Any]:
        """Look whether the numbers arrive; time the first call of a group, else the second one."""
        from joyrlinf_core.comm.link_operations import timed

        device, connecting = self._device(step), step.operation == "connect"
        operation.fill()
        seconds = timed(operation, 1, device)
        error = operation.mismatch()
        operation.clear()
        self._tell(step, PARTS if connecting else 1)
        if not connecting:
            seconds = timed(operation, 1, device)
        return {"seconds": seconds, "error": error, "nbytes": operation.nbytes}

    def _best_window(self, step: LinkStep, operation: LinkOperation | None, calls: int) -> float:
        """Return the seconds of some calls, on the slowest rank in the fastest window."""
        from joyrlinf_core.comm.link_operations import timed

        self._tell(step, 2)
        windows = [0.0] * WINDOWS
        if operation is not None:
            windows = [timed(operation, calls, self._device(step)) for _ in windows]
        self._tell(step, PARTS)
        return min(map(max, zip(*self._world.gather_json(windows), strict=True)))

    def _tell(self, step: LinkStep, part: int) -> None:
        self._say(Phase(step.text, step.index, part, PARTS))

    def _say(self, phase: Phase) -> None:
        """Say how far this rank is; every time, since the launcher compares the ranks."""
        self._context.emitter.emit(phase)
        if self._relay is not None:
            self._relay.tell(phase)

    def _operation(self, step: LinkStep) -> LinkOperation | None:
        """Return what this rank does in a step; None if it takes no part."""
        from joyrlinf_core.comm import link_operations as operations

        rank = self._context.rank
        if rank not in step.ranks:
            return None
        group = self._groups[step.group]
        handle = self._handles[step.group]
        channel = operations.Channel(handle, group.ranks, rank, self._device(step))
        if step.operation == "p2p":
            return operations.PingPong(channel, step.nbytes, (step.ranks[0], step.ranks[1]))
        if step.operation == "all_to_all":
            return operations.AllToAll(channel, step.nbytes)
        if step.operation == "broadcast":
            return operations.Broadcast(channel, step.nbytes, group.root)
        return operations.AllReduce(channel, step.nbytes)

    def _device(self, step: LinkStep) -> Any:
        import torch

        on_device = self._groups[step.group].on_device
        return self._context.device if on_device else torch.device("cpu")


def run_job(context: JobContext) -> str:
    """Run the job on this rank."""
    return LinkTest(context).run()


def main() -> None:
    """Entry point of `python -m joyrlinf_core.diagnostics.links.worker RUN_DIR`."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m joyrlinf_core.diagnostics.links.worker RUN_DIR")
    sys.exit(run_worker(RunDir(Path(sys.argv[1])), lambda: run_job))


if __name__ == "__main__":
    main()
