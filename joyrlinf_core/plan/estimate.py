"""Does a config fit a card, how fast may it run, and which key to turn where it does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from joyrlinf_core.config.schema import Config
from joyrlinf_core.errors import Finding
from joyrlinf_core.plan import advice
from joyrlinf_core.plan.build import build_plan
from joyrlinf_core.plan.hardware import CPU, GIB, Card
from joyrlinf_core.plan.memory import footprint_of
from joyrlinf_core.plan.placement import as_ranges
from joyrlinf_core.plan.roofline import Rates, Throughput, throughput
from joyrlinf_core.plan.rules.changes import told
from joyrlinf_core.plan.run_plan import MemoryPlan, RankMemory, RunPlan

DOES_NOT_FIT = "JR901"
"""Code of the finding that the memory does not suffice."""
UNKNOWN = "JR902"
"""Code of the finding that nothing can be estimated."""


@dataclass(frozen=True)
class Machine:
    """What the ranks run on.

    Attributes:
        card: Of every rank.
        host_memory: Bytes of one node; None is not checked.
    """

    card: Card
    host_memory: int | None = None

    def shortage(self, plan: RunPlan, memory: MemoryPlan) -> str:
        """Return what does not fit; empty if everything does."""
        ranks, need = self.fullest(plan, memory)
        if need > self.card.usable:
            who = f"rank {as_ranges(ranks)} needs" if len(ranks) == 1 else _together(ranks)
            return (
                f"{who} {gib(need)}, {self.card.name} has {gib(self.card.memory)}, of which "
                f"{gib(self.card.usable)} are to be planned with"
            )
        if self.host_memory is not None:
            nodes = range(plan.placement.num_nodes)
            held, node = max((host_bytes(plan, memory, node), -node) for node in nodes)
            if held > self.host_memory * 9 // 10:
                return (
                    f"rollouts on node {-node} take {gib(held)} of host memory, it has "
                    f"{gib(self.host_memory)}, of which nine tenths are to be planned with"
                )
        return ""

    def fullest(self, plan: RunPlan, memory: MemoryPlan) -> tuple[tuple[int, ...], int]:
        """Return the ranks of the fullest card, and the bytes that they take of it."""
        need = {rank: self.need_of(group) for group in memory.ranks for rank in group.ranks}
        cards: dict[tuple[int, int], list[int]] = {}
        for rank in plan.ranks:
            cards.setdefault((rank.node, rank.device), []).append(rank.rank)
        taken = {tuple(ranks): sum(need[rank] for rank in ranks) for ranks in cards.values()}
        return max(taken.items(), key=lambda pair: pair[1])

    def need_of(self, rank: RankMemory) -> int:
        """Return the bytes that a rank takes of its card; a CPU rank has one memory for all."""
        return rank.peak + (rank.host if self.card.name == CPU else 0)


@dataclass(frozen=True)
class Estimate:
    """A plan held against a machine.

    Attributes:
        plan: The plan.
        machine: The machine.
        throughput: None where the policy does not tell its costs.
        shortage: What does not fit; empty if everything does.
        findings: What the user is to be told.
    """

    plan: RunPlan
    machine: Machine
    throughput: Throughput | None
    shortage: str
    findings: tuple[Finding, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether nothing is known that does not fit."""
        return not self.shortage

    @property
    def need(self) -> int:
        """Bytes that are taken of the fullest card."""
        return self.machine.fullest(self.plan, self.plan.memory)[1] if self.plan.memory else 0


def estimate_all(config: Config, machines: Sequence[Machine], rates: Rates) -> list[Estimate]:
    """Hold the plan of a training run against machines.

    Only where the plan fits none of them is a fix looked for, on the one with the most memory.

    Args:
        config: The config.
        machines: What its ranks may run on; at least one.
        rates: Assumptions about speed.

    Raises:
        ConfigError: A rule finds an error.
    """
    plan, footprint = build_plan(config, None), footprint_of(config)
    if plan.memory is None or footprint is None:
        model = config.actor.model.model_type
        message = f"policies of `{model}` do not tell their sizes, so nothing can be estimated"
        fix = "a policy family tells them by `ModelConfig.footprint`"
        unknown = Finding(UNKNOWN, "warning", ("actor.model.model_type",), message, fix)
        return [Estimate(plan, machines[0], None, "", (unknown,))]
    estimates = [
        Estimate(
            plan,
            machine,
            throughput(plan, plan.memory, footprint, machine.card, rates),
            machine.shortage(plan, plan.memory),
        )
        for machine in machines
    ]
    if not any(one.fits for one in estimates):
        index = max(range(len(machines)), key=lambda i: machines[i].card.memory)
        estimates[index] = _with_fix(config, estimates[index])
    return estimates


def _with_fix(config: Config, one: Estimate) -> Estimate:
    """Return the estimate with a finding that says which keys to turn."""
    fixes = advice.find(config, lambda other: _fits(other, one.machine))
    fix = told(fixes) if fixes else advice.NOTHING_HELPS
    paths = tuple(fixes[0]) if fixes else ("actor.model",)
    finding = Finding(DOES_NOT_FIT, "error", paths, f"does not fit: {one.shortage}", fix)
    return replace(one, findings=(finding,))


def gib(nbytes: float) -> str:
    """Return bytes in GiB, with three digits or so."""
    size = nbytes / GIB
    return f"{size:.0f} GiB" if size >= 100 else f"{size:.3g} GiB"


def host_bytes(plan: RunPlan, memory: MemoryPlan, node: int) -> int:
    """Return the host memory that rollouts take on a node."""
    return sum(
        group.host
        for group in memory.ranks
        for rank in group.ranks
        if plan.placement.node_of(rank) == node
    )


def _together(ranks: tuple[int, ...]) -> str:
    return f"ranks {as_ranges(ranks)}, which share a card, need"


def _fits(config: Config, machine: Machine) -> bool:
    plan = build_plan(config, None)
    return plan.memory is not None and not machine.shortage(plan, plan.memory)
