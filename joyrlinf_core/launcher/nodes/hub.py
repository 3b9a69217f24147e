"""The hub: a thread on node 0 through which the launchers of all nodes talk.

Every launcher, that of node 0 too, is connected to it. It passes messages on in one order for all,
so that launchers that act on them in turn come to the same decision. It knows no job.

Before the start it waits for every node; a late or second one ends the meeting for all. After that
a launcher that goes away, or is silent for too long, is reported to the others.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from joyrlinf_core.errors import ExitCode
from joyrlinf_core.launcher.nodes.wire import PROTOCOL, Message, Wire, WireError, gone

POLL_SECONDS = 0.2
HELLO_SECONDS = 10.0
"""How long a new connection may take to say who it is."""

REMIND_SECONDS = 15.0
"""How often those who wait are told for whom."""


@dataclass
class _Guest:
    """One connection.

    Attributes:
        wire: The connection.
        since: When it came.
        node: Its number; -1 until it said so.
        host: Its host.
        process: Its process id.
    """

    wire: Wire
    since: float
    node: int = -1
    host: str = ""
    process: int = 0

    @property
    def name(self) -> str:
        """Who it is, for messages."""
        return f"{self.host} (process {self.process})"


@dataclass
class _Round:
    """One exchange: a value of each node.

    Attributes:
        values: What came, by node, with the time at which it came.
        labels: What each node takes this exchange for.
        deadline: When nodes that sent nothing count as gone.
    """

    values: dict[int, dict[str, Any]] = field(default_factory=dict)
    labels: dict[int, str] = field(default_factory=dict)
    deadline: float | None = None


class Hub:
    """Passes messages between the launchers of a run.

    Args:
        listener: Listening socket; closed at the end.
        nnodes: Number of nodes.
        timeout: How long to wait for all of them, seconds.
    """

    def __init__(self, listener: socket.socket, nnodes: int, timeout: float) -> None:
        self._listener = listener
        self._nnodes = nnodes
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout
        self._reminded = time.monotonic()
        self._met = False
        self._over = False
        self._refusal: tuple[str, str] | None = None
        self._guests: list[_Guest] = []
        self._nodes: dict[int, _Guest] = {}
        self._left: dict[int, Message] = {}
        self._round = _Round()
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._run, name="node-hub", daemon=True)
        self._thread.start()

    def close(self, wait_seconds: float) -> None:
        """End it once every node has said goodbye, or after some time; a meeting at once."""
        self._thread.join(wait_seconds if self._met else 0.0)
        self._over = True
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._over:
                for key, _ in self._selector.select(POLL_SECONDS):
                    self._accept() if key.data is None else self._read(key.data)
                if not self._met:
                    self._wait_for_all()
                self._check_guests()
                self._check_round()
        finally:
            for guest in self._guests:
                guest.wire.close()
            self._listener.close()
            self._selector.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return  # it went away again
        guest = _Guest(Wire(connection), time.monotonic())
        self._guests.append(guest)
        self._selector.register(guest.wire, selectors.EVENT_READ, guest)

    def _read(self, guest: _Guest) -> None:
        try:
            if guest in self._guests:
                for message in guest.wire.receive():
                    self._take(guest, message)
        except WireError as error:
            self._lose(guest, str(error))
        except (KeyError, TypeError, ValueError) as error:
            self._lose(guest, f"it sent what no launcher sends ({error!r})")

    def _take(self, guest: _Guest, message: Message) -> None:
        kind = message["kind"]
        if guest not in self._guests:
            return  # an earlier message was its last
        if guest.node < 0:
            if kind == "hello":
                self._greet(guest, message)
            else:
                self._drop(guest)
        elif kind == "put":
            self._round.values[guest.node] = {"at": time.time(), "value": message["value"]}
            self._round.labels[guest.node] = str(message["label"])
            if limit := message.get("limit"):
                wanted = time.monotonic() + float(limit)
                self._round.deadline = min(self._round.deadline or wanted, wanted)
        elif kind == "post":
            self._tell_all({**message, "node": guest.node})
        elif kind == "bye":
            self._leave(guest, message["error"])

    def _greet(self, guest: _Guest, hello: Message) -> None:
        """Take in a launcher, or end the meeting over it."""
        node, nnodes = int(hello["node"]), int(hello["nnodes"])
        if node < 0:
            raise ValueError(node)
        guest.host, guest.process = str(hello["host"]), int(hello["process"])
        if self._met:
            self._refuse([guest], "the run goes on already, with all its nodes", _ONE_RUN)
            return
        guest.node = node
        other = self._nodes.setdefault(node, guest)
        if hello["protocol"] != PROTOCOL:
            message = f"node {node}, {guest.name}, has another version of joyrl than node 0"
            self._fail(message, "install the same version on every node")
        elif nnodes != self._nnodes:
            message = (
                f"nnodes is {nnodes} on node {node}, {guest.name}, and {self._nnodes} on node 0"
            )
            self._fail(message, "start the same command on every node")
        elif other is not guest:
            message = f"node rank {node} came twice: from {other.name} and from {guest.name}"
            self._fail(message, "give each node its own --node-rank, counted from 0")

    def _wait_for_all(self) -> None:
        if self._refusal is not None:
            # The launcher of node 0 is about to connect, too, and has to hear it.
            if any(guest.node == 0 and guest.process == os.getpid() for guest in self._guests):
                self._refuse(list(self._guests), *self._refusal)
                self._over = True
            return
        missing = [node for node in range(self._nnodes) if node not in self._nodes]
        now = time.monotonic()
        if not missing:
            self._met = True
            hosts = [self._nodes[node].host for node in range(self._nnodes)]
            self._tell_all({"kind": "welcome", "hosts": hosts})
        elif now > self._deadline:
            self._fail(self._not_come(missing), _START_THERE)
        elif now - self._reminded > REMIND_SECONDS:
            self._reminded = now
            self._tell_all({"kind": "waiting", "nodes": missing})

    def _not_come(self, missing: list[int]) -> str:
        there = [f"node {node}, {guest.name}" for node, guest in sorted(self._nodes.items())]
        numbers = ", ".join(map(str, missing))
        return (
            f"node {numbers} of 0-{self._nnodes - 1} did not come within {self._timeout:.0f} s; "
            f"there are {', '.join(there) or 'none'}"
        )

    def _fail(self, message: str, fix: str) -> None:
        """End the meeting for all; the first reason counts."""
        self._refusal = self._refusal or (message, fix)

    def _refuse(self, guests: list[_Guest], message: str, fix: str) -> None:
        code = int(ExitCode.ENVIRONMENT_NOT_READY)
        refusal = {"kind": "refused", "message": message, "fix": fix, "code": code}
        for guest in guests:
            with suppress(WireError):
                guest.wire.send(refusal)
            self._drop(guest)

    def _check_guests(self) -> None:
        for guest in list(self._guests):
            try:
                if guest.node < 0 and time.monotonic() - guest.since > HELLO_SECONDS:
                    self._drop(guest)
                    continue
                guest.wire.check_alive()
                guest.wire.beat()
            except WireError as error:
                self._lose(guest, str(error))

    def _lose(self, guest: _Guest, reason: str) -> None:
        """Note that a launcher has gone without a goodbye; before the start it may come back."""
        if not self._met:
            self._drop(guest)
            if self._nodes.get(guest.node) is guest:
                del self._nodes[guest.node]
            return
        self._leave(guest, gone(reason))

    def _leave(self, guest: _Guest, error: Message | None) -> None:
        self._drop(guest)
        if guest.node < 0 or self._nodes.get(guest.node) is not guest:
            return
        left = {"kind": "left", "node": guest.node, "error": error}
        self._left[guest.node] = left
        self._tell_all(left)
        if len(self._left) == self._nnodes:
            self._over = True

    def _drop(self, guest: _Guest) -> None:
        if guest in self._guests:
            self._guests.remove(guest)
            self._selector.unregister(guest.wire)
            guest.wire.close()

    def _check_round(self) -> None:
        """End the exchange once every node that is still there has sent its value."""
        done = self._round
        if not done.values:
            return
        present = {guest.node for guest in self._guests if guest.node >= 0}
        if done.deadline is not None and time.monotonic() > done.deadline:
            for guest in [g for g in self._guests if g.node in present - done.values.keys()]:
                self._lose(guest, "its launcher did not end in time")
            present &= done.values.keys()
        if not present <= done.values.keys():
            return
        self._round = _Round()
        labels = sorted(set(done.labels.values()))
        values = [
            done.values.get(node) or {"left": self._left.get(node)} for node in range(self._nnodes)
        ]
        self._tell_all({"kind": "all", "label": " / ".join(labels), "values": values})

    def _tell_all(self, message: Message) -> None:
        lost: list[tuple[_Guest, str]] = []
        for guest in self._guests:
            if guest.node < 0:
                continue
            try:
                guest.wire.send(message)
            except WireError as error:
                lost.append((guest, str(error)))
        # Only now, so that all hear of it after this message.
        for guest, reason in lost:
            self._lose(guest, reason)


_ONE_RUN = "another run has this address and port: choose another --master-port for one of them"
_START_THERE = (
    "start the same command there, with its --node-rank and the same --master-addr and "
    "--master-port; --rendezvous-timeout waits longer"
)
