"""What each rank of `nccl-test` says of itself, and what connects the ranks. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from joyrlinf_core.diagnostics.links.hardware import (
    UNKNOWN,
    Link,
    NodeHardware,
    gpu_link,
    interface_of,
    network_link,
)
from joyrlinf_core.diagnostics.links.steps import LinkGroup, LinkStep

GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"
NCCL_INTERFACE = "NCCL_SOCKET_IFNAME"
BACKEND_VARIABLES = (GLOO_INTERFACE, NCCL_INTERFACE)

LOOPBACK = Link("loopback", None)
SAME_MACHINE = Link("same machine", None)
IN_MEMORY = (LOOPBACK, SAME_MACHINE)
"""What is no link: the kernel copies."""

PairLinks = dict[tuple[int, int, str], Link]
"""By two ranks and the backend."""


@dataclass(frozen=True)
class RankFacts:
    """One rank.

    Attributes:
        rank: Global rank.
        node: Number of its machine.
        host: Name of its machine.
        device: Name of its GPU, or `CPU`.
        uuid: Of its GPU, without the leading `GPU-`; empty on CPU.
        torch: Version.
        nccl: Version; empty on CPU.
        variables: Environment variables of the backends that are set.
    """

    rank: int
    node: int
    host: str
    device: str
    uuid: str
    torch: str
    nccl: str
    variables: Mapping[str, str]


def links_of(
    groups: Sequence[LinkGroup],
    steps: Sequence[LinkStep],
    facts: Sequence[RankFacts],
    hardware: Mapping[int, NodeHardware],
) -> PairLinks:
    """Return what connects each pair that is measured.

    Args:
        groups: Tested groups.
        steps: All steps.
        facts: By rank.
        hardware: By node.
    """
    links: PairLinks = {}
    for step in steps:
        if step.operation == "p2p":
            backend = groups[step.group].backend
            first, second = step.ranks
            found = pair_link(facts[first], facts[second], hardware, backend)
            links[first, second, backend] = found
    return links


def pair_link(
    first: RankFacts, second: RankFacts, hardware: Mapping[int, NodeHardware], backend: str
) -> Link:
    """Return what connects two ranks."""
    here, there = hardware.get(first.node), hardware.get(second.node)
    if here is None or there is None:
        return UNKNOWN
    if first.node == second.node:
        if backend == "gloo":
            interface = interface_of(first.variables.get(GLOO_INTERFACE, ""))
            return LOOPBACK if interface in ("lo", "lo0") else SAME_MACHINE
        return gpu_link(here, first.uuid, second.uuid)
    variable = NCCL_INTERFACE if backend == "nccl" else GLOO_INTERFACE
    interfaces = [interface_of(one.variables.get(variable, "")) for one in (first, second)]
    allowed = first.variables.get("NCCL_IB_DISABLE", "0") == "0"
    return network_link(here, there, interfaces, infiniband=backend == "nccl" and allowed)
