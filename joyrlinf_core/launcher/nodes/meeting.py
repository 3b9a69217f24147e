"""The meeting: the launchers of all nodes find each other before any of them starts a worker."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from joyrlinf_core.errors import EnvironmentNotReadyError
from joyrlinf_core.launcher.nodes import interfaces, ports
from joyrlinf_core.launcher.nodes.crew import Alone, ConnectedCrew, Crew, described, exchange
from joyrlinf_core.launcher.nodes.hub import Hub
from joyrlinf_core.launcher.nodes.settings import NodeSettings
from joyrlinf_core.launcher.nodes.wire import WireError

RETRY_SECONDS = 0.5
CONNECT_SECONDS = 5.0
REMIND_SECONDS = 15.0
PATIENCE_SECONDS = 2.0
"""Node 0 may be there a moment later than the others without a word about it."""

GOODBYE_SECONDS = 5.0
"""How long node 0 stays for the goodbyes of the others."""


@dataclass(frozen=True)
class Team:
    """The nodes of a run that have met.

    Attributes:
        crew: The way to the other launchers.
        master: IP address of node 0; empty on one node.
        variables: Environment of this node's workers, beside what the plan gives.
    """

    crew: Crew = field(default_factory=Alone)
    master: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def alone(self) -> bool:
        """Whether the run has one node."""
        return not self.master


@contextmanager
def met(settings: NodeSettings | None, say: Callable[[str], None]) -> Iterator[Team]:
    """Meet the other nodes, and stay connected.

    An error inside is told to all nodes and ends the command on each of them.

    Args:
        settings: This node; None for a run on one node, where there is nobody to meet.
        say: Where short messages go.

    Raises:
        EnvironmentNotReadyError: This node can't get there: address, port, interface.
        NodeError: The nodes did not come together.
    """
    if settings is None:
        yield Team()
        return
    hub: Hub | None = None
    try:
        if settings.node_rank == 0:
            listener = ports.listen(settings.master_addr, settings.master_port, settings.nnodes)
            hub = Hub(listener, settings.nnodes, settings.timeout)
        with _joined(settings, say) as team:
            yield team
    finally:
        if hub is not None:
            hub.close(GOODBYE_SECONDS)


@contextmanager
def _joined(settings: NodeSettings, say: Callable[[str], None]) -> Iterator[Team]:
    place = f"{settings.master_addr}:{settings.master_port}"
    say(
        f"node {settings.node_rank} of {settings.nnodes}: meeting the others at {place}, for up to "
        f"{settings.timeout:.0f} s"
    )
    crew, master, variables = _Joining(settings, say).join()
    error: BaseException | None = None
    try:
        names = exchange(crew, "interface", variables[interfaces.GLOO])
        nodes = zip(crew.hosts, names, strict=True)
        say("nodes: " + ", ".join(f"{n} {host} ({name})" for n, (host, name) in enumerate(nodes)))
        yield Team(crew, master, variables)
    except BaseException as caught:
        error = caught
        raise
    finally:
        crew.leave(described(error) if error is not None else None)


class _Joining:
    """Tries to reach node 0 until it is there, or time is over."""

    def __init__(self, settings: NodeSettings, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._say = say
        self._deadline = time.monotonic() + settings.timeout
        self._told = ""
        self._told_at = 0.0

    def join(self) -> tuple[ConnectedCrew, str, dict[str, str]]:
        """Return the connection, the address of node 0 and the variables for the workers."""
        settings = self._settings
        while True:
            try:
                _, master = ports.resolved(settings.master_addr, settings.master_port)
                route = interfaces.route_to(master)
                chosen = interfaces.socket_variables(route, interfaces.interfaces(), os.environ)
                connection = socket.create_connection(
                    (master, settings.master_port), timeout=CONNECT_SECONDS
                )
                crew = ConnectedCrew(
                    connection, settings.node_rank, settings.nnodes, self._tell_missing
                )
            except WireError as error:
                reason = f"something answers there, but {error}"
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
            else:
                return crew, master, chosen
            self._wait(reason)

    def _wait(self, reason: str) -> None:
        """Wait a moment before the next try; raise once time is over."""
        settings, now = self._settings, time.monotonic()
        place = f"{settings.master_addr}:{settings.master_port}"
        if now > self._deadline:
            raise EnvironmentNotReadyError(
                f"node {settings.node_rank} did not reach node 0 at {place} within "
                f"{settings.timeout:.0f} s: {reason}",
                fix=_fix(settings),
            )
        early = now < self._deadline - settings.timeout + PATIENCE_SECONDS
        if not early and (reason != self._told or now - self._told_at > REMIND_SECONDS):
            self._told, self._told_at = reason, now
            left = self._deadline - now
            self._say(f"node 0 is not there yet ({place}: {reason}); trying on for {left:.0f} s")
        time.sleep(RETRY_SECONDS)

    def _tell_missing(self, nodes: Sequence[int]) -> None:
        left = max(0.0, self._deadline - time.monotonic())
        missing = ", ".join(map(str, nodes))
        self._say(f"waiting for node {missing}, for up to {left:.0f} s")


def _fix(settings: NodeSettings) -> str:
    try:
        _, address = ports.resolved(settings.master_addr, settings.master_port)
    except OSError:
        return "--master-addr with a name that this machine knows, or with the address of node 0"
    if address.startswith("127.") or address == "::1":
        return f"{address} is this very machine: --master-addr with the address of node 0"
    return (
        "start node 0 with the same --master-addr and --master-port; if it is there, see that no "
        "firewall closes the port (docs/multi-node.md)"
    )
