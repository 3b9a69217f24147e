"""Messages between launchers: one JSON object a line over TCP."""

from __future__ import annotations

import json
import socket
import threading
import time
from typing import Any

from joyrlinf_core.errors import ExitCode

PROTOCOL = 1
"""Raise it when launchers of different versions can no longer understand each other."""

MAX_BYTES = 8 * 2**20
"""Longest message; a config and a traceback are far below it."""

SEND_SECONDS = 5.0

BEAT_SECONDS = 2.0
"""How often a launcher shows that it is alive."""

LOST_SECONDS = 10.0
"""A launcher that was silent for so long is gone."""

Message = dict[str, Any]
"""Has a `kind`; the rest depends on it."""


class WireError(Exception):
    """A connection has ended, or carries something else than messages."""


class Wire:
    """One connection.

    Args:
        connection: Connected socket; closed with this object.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(SEND_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._rest = bytearray()
        self._lock = threading.Lock()
        self._beaten = time.monotonic()
        self.heard = time.monotonic()
        """When the last byte came."""

    def fileno(self) -> int:
        """Return the descriptor, for `select`."""
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        """Send a message; any thread may.

        Raises:
            WireError: The other end has gone.
        """
        line = json.dumps(message).encode() + b"\n"
        try:
            with self._lock:
                self._socket.sendall(line)
        except OSError as error:
            raise WireError(_told(error)) from error

    def receive(self) -> list[Message]:
        """Return the messages that are complete by now; call it when there is something to read.

        Raises:
            WireError: The other end has gone, or sent what is no message.
        """
        try:
            data = self._socket.recv(1 << 16)
        except OSError as error:
            raise WireError(_told(error)) from error
        if not data:
            raise WireError("it closed the connection")
        self.heard = time.monotonic()
        self._rest += data
        if b"\n" not in data:
            if len(self._rest) > MAX_BYTES:
                raise WireError(f"it sent more than {MAX_BYTES} bytes in one line")
            return []
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        return [_parse(line) for line in lines]

    def beat(self) -> None:
        """Show that this end is alive, if it is time to.

        Raises:
            WireError: The other end has gone.
        """
        if time.monotonic() - self._beaten >= BEAT_SECONDS:
            self._beaten = time.monotonic()
            self.send({"kind": "beat"})

    def check_alive(self) -> None:
        """Raise `WireError` if nothing came for too long."""
        if time.monotonic() - self.heard > LOST_SECONDS:
            raise WireError(f"no sign of life for {LOST_SECONDS:.0f} s")

    def close(self) -> None:
        """End the connection."""
        self._socket.close()


def gone(reason: str) -> Message:
    """Return the error of a node whose launcher went without a goodbye."""
    return {
        "message": f"its launcher is gone: {reason}",
        "fix": "look at that machine and at the terminal of its launcher",
        "code": int(ExitCode.RUN_FAILED),
    }


def _parse(line: bytes) -> Message:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
        raise WireError(f"it is no joyrl launcher: it sent {line[:40]!r}")
    return message


def _told(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return f"it took nothing for {SEND_SECONDS:.0f} s"
    return (error.strerror or str(error)).lower()
