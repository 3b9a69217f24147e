"""What a launcher tells those of the other nodes, and hears from them."""

from __future__ import annotations

import os
import queue
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from joyrlinf_core.errors import ExitCode, JoyrlError, RunFailedError
from joyrlinf_core.launcher.nodes.wire import PROTOCOL, Message, Wire, WireError, gone

POLL_SECONDS = 0.05
TICK_SECONDS = 0.2


class NodeError(RunFailedError):
    """Another node can't go on; ends the command here with the same exit code.

    Args:
        message: Names the node.
        fix: What to do.
        code: Exit code of the other node.
    """

    def __init__(self, message: str, *, fix: str, code: int) -> None:
        super().__init__(message, fix=fix)
        known = code in list(ExitCode) and code != ExitCode.OK
        self.exit_code = ExitCode(code) if known else ExitCode.RUN_FAILED


@dataclass(frozen=True)
class Post:
    """A node told all nodes something.

    Attributes:
        node: Which one; perhaps this one.
        topic: What it is about.
        body: What it said.
    """

    node: int
    topic: str
    body: Message


@dataclass(frozen=True)
class Left:
    """A node has gone, or ended with an error.

    Attributes:
        node: Which one.
        error: Why; None if it said goodbye after its work.
    """

    node: int
    error: NodeError | None


@dataclass(frozen=True)
class Value:
    """What one node brought to an exchange.

    Attributes:
        value: The value; None where `left` is there.
        at: When it reached node 0, seconds since the epoch, on the clock of node 0.
        left: The node had gone.
    """

    value: Any
    at: float = 0.0
    left: Left | None = None


News = Post | Left


class Crew(Protocol):
    """The launchers of all nodes of a run, as one of them sees it."""

    node: int
    """This node."""

    hosts: Sequence[str]
    """Host of each node."""

    def put(self, label: str, value: Any, *, limit: float | None = None) -> None:
        """Bring a value to the next exchange; every node has to.

        Args:
            label: What the exchange is about.
            value: As JSON can hold it.
            limit: Seconds after which nodes that brought nothing count as gone.
        """
        ...

    def answer(self) -> list[Value] | None:
        """Return the values of all nodes, once `poll` has come upon them."""
        ...

    def post(self, topic: str, body: Message) -> None:
        """Tell all nodes something, this one too."""
        ...

    def poll(self) -> list[News]:
        """Return what is new, in the same order on all nodes.

        It stops at the end of an exchange until `answer` was called, so that all nodes agree on
        what was said before.
        """
        ...


class Alone:
    """The crew of a run on one node."""

    def __init__(self) -> None:
        self.node = 0
        self.hosts: Sequence[str] = (socket.gethostname(),)
        self._values: list[Value] | None = None
        self._news: list[News] = []

    def put(self, label: str, value: Any, *, limit: float | None = None) -> None:
        """See `Crew`."""
        del label, limit
        self._values = [Value(value, time.time())]

    def answer(self) -> list[Value] | None:
        """See `Crew`."""
        values, self._values = self._values, None
        return values

    def post(self, topic: str, body: Message) -> None:
        """See `Crew`."""
        self._news.append(Post(0, topic, body))

    def poll(self) -> list[News]:
        """See `Crew`."""
        news, self._news = self._news, []
        return news


def exchange(crew: Crew, label: str, value: Any) -> list[Any]:
    """Bring a value and wait for those of all nodes, in the order of the nodes.

    Raises:
        NodeError: A node can't go on.
    """
    crew.put(label, value)
    while True:
        # What is posted before an exchange is over is not meant for those who wait for it.
        for news in crew.poll():
            if isinstance(news, Left):
                raise news.error or _early(news.node)
        if (values := crew.answer()) is not None:
            break
        time.sleep(POLL_SECONDS)
    for one in values:
        if one.left is not None:
            raise one.left.error or _early(one.left.node)
    return [one.value for one in values]


class ConnectedCrew:
    """The crew of a run on several nodes: a connection to the hub of node 0.

    A thread reads it and shows that this launcher is alive.

    Args:
        connection: Connected to the hub.
        node: This node.
        nnodes: Number of nodes.
        on_waiting: Told of the nodes that are still missing.

    Raises:
        NodeError: The meeting has failed.
        WireError: The connection broke before the meeting was over.
    """

    def __init__(
        self,
        connection: socket.socket,
        node: int,
        nnodes: int,
        on_waiting: Callable[[Sequence[int]], None],
    ) -> None:
        self.node = node
        self._on_waiting = on_waiting
        self._wire = Wire(connection)
        self._heard: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._values: list[Value] | None = None
        self._news: list[News] = []
        self._closed = False
        self._brought: Any = None
        self._cut_off: Left | None = None
        hello = {"kind": "hello", "protocol": PROTOCOL, "node": node, "nnodes": nnodes}
        hello |= {"host": socket.gethostname(), "process": os.getpid()}
        try:
            self._wire.send(hello)
            self.hosts: Sequence[str] = self._wait_for_welcome()
        except BaseException:
            self._wire.close()
            raise
        self._thread = threading.Thread(target=self._listen, name="node-crew", daemon=True)
        self._thread.start()

    def put(self, label: str, value: Any, *, limit: float | None = None) -> None:
        """See `Crew`."""
        self._brought = value
        self._send({"kind": "put", "label": label, "value": value, "limit": limit})

    def answer(self) -> list[Value] | None:
        """See `Crew`."""
        values, self._values = self._values, None
        if values is None and self._cut_off is not None:
            # There is nobody left to exchange anything with.
            others = Value(None, left=self._cut_off)
            own = Value(self._brought, time.time())
            return [own if node == self.node else others for node in range(len(self.hosts))]
        return values

    def post(self, topic: str, body: Message) -> None:
        """See `Crew`."""
        self._send({"kind": "post", "topic": topic, "body": body})

    def poll(self) -> list[News]:
        """See `Crew`."""
        self._sort()
        news, self._news = self._news, []
        return news

    def leave(self, error: Message | None) -> None:
        """Say goodbye; with `message`, `fix` and `code` where this node can't go on."""
        self._send({"kind": "bye", "error": error})
        self._closed = True
        self._thread.join()
        self._wire.close()

    def _send(self, message: Message) -> None:
        try:
            self._wire.send(message)
        except WireError as error:
            self._heard.put({"kind": "cut", "reason": str(error)})

    def _wait_for_welcome(self) -> Sequence[str]:
        while True:
            for message in self._listen_once():
                if message["kind"] == "welcome":
                    return tuple(message["hosts"])
                if message["kind"] == "refused":
                    raise NodeError(message["message"], fix=message["fix"], code=message["code"])
                if message["kind"] == "waiting":
                    self._on_waiting(message["nodes"])

    def _listen(self) -> None:
        try:
            while not self._closed:
                for message in self._listen_once():
                    self._heard.put(message)
        except WireError as error:
            self._heard.put({"kind": "cut", "reason": str(error)})

    def _listen_once(self) -> list[Message]:
        readable, _, _ = select.select([self._wire], [], [], TICK_SECONDS)
        messages = self._wire.receive() if readable else []
        self._wire.check_alive()
        self._wire.beat()
        return messages

    def _sort(self) -> None:
        """Take what has been heard; stop at an answer until it was asked for."""
        while self._values is None and not self._heard.empty():
            message = self._heard.get()
            if message["kind"] == "all":
                self._values = [self._value(one) for one in message["values"]]
            elif message["kind"] == "post":
                self._news.append(Post(message["node"], message["topic"], message["body"]))
            elif message["kind"] == "left":
                self._news.append(self._left(message))
            elif message["kind"] == "cut":
                self._cut_off = self._left({"node": 0, "error": gone(message["reason"])})
                self._news.append(self._cut_off)

    def _value(self, one: Message) -> Value:
        if "left" in one:
            return Value(None, left=self._left(one["left"]))
        return Value(one["value"], one["at"])

    def _left(self, message: Message) -> Left:
        node, error = int(message["node"]), message["error"]
        if error is None:
            return Left(node, None)
        text = f"node {node}, {self.hosts[node]}: {error['message']}"
        return Left(node, NodeError(text, fix=error["fix"], code=int(error["code"])))


def described(error: BaseException) -> Message:
    """Return an error as other nodes are told of it."""
    if isinstance(error, JoyrlError):
        return {"message": error.message, "fix": error.fix, "code": int(error.exit_code)}
    if isinstance(error, KeyboardInterrupt):
        return {"message": "interrupted", "fix": "", "code": int(ExitCode.INTERRUPTED)}
    text = f"{type(error).__name__}: {error}"
    return {"message": text, "fix": "its terminal tells more", "code": int(ExitCode.BUG)}


def _early(node: int) -> NodeError:
    code = int(ExitCode.RUN_FAILED)
    return NodeError(f"node {node} has ended too early", fix="its terminal tells why", code=code)
