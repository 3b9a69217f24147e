"""Listens on the port where launchers meet; says who holds it where that is impossible."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from joyrlinf_core.errors import EnvironmentNotReadyError
from joyrlinf_core.launcher.nodes.interfaces import interfaces, listed

_LISTENING = "0A"
"""State of a socket in /proc/net/tcp."""


def resolved(host: str, port: int) -> tuple[socket.AddressFamily, str]:
    """Return the family and the IP address of a host; the first that the system names.

    Raises:
        OSError: The name is unknown.
    """
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return family, str(address[0])


def listen(host: str, port: int, backlog: int) -> socket.socket:
    """Return a socket that listens on this address of node 0, and on no other.

    Raises:
        EnvironmentNotReadyError: The address is not of this machine or reaches no other one, or
            the port is taken.
    """
    try:
        family, address = resolved(host, port)
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"the master address {host} is unknown here: {error.strerror or error}",
            fix=f"--master-addr with a name or an address of node 0; here: {_addresses()}",
        ) from error
    _check_reachable(host, address)
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(backlog)
    except OSError as error:
        listener.close()
        raise _no_listening(error, host, address, port) from error
    return listener


def free_port() -> int:
    """Return a port that nobody holds on any address of this machine."""
    with socket.create_server(("", 0)) as probe:
        return probe.getsockname()[1]


def holder(port: int) -> str:
    """Return process and command that listen on a port; empty where the system does not tell."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    for process in Path("/proc").glob("[0-9]*") if sockets else ():
        if not sockets.isdisjoint(_open_files(process)):
            return f"process {process.name} ({_command(process)})"
    return ""


def _addresses(*, loopback: bool = True) -> str:
    return listed([one for one in interfaces() if one.addresses and (loopback or not one.loopback)])


def _check_reachable(host: str, address: str) -> None:
    """Refuse a host name that means loopback here, as some systems have it for their own name."""
    loopback = address.startswith("127.") or address == "::1"
    if loopback and host not in (address, "localhost"):
        raise EnvironmentNotReadyError(
            f"the master address {host} is {address} on node 0 itself, which no other machine "
            "reaches",
            fix=f"--master-addr with one of the other addresses here: {_addresses(loopback=False)}",
        )


def _no_listening(error: OSError, host: str, address: str, port: int) -> EnvironmentNotReadyError:
    shown = host if host == address else f"{host} ({address})"
    if error.errno == errno.EADDRNOTAVAIL:
        return EnvironmentNotReadyError(
            f"this is node 0, but the master address {shown} is not of this machine",
            fix=f"--master-addr with one of its addresses: {_addresses()}; or --node-rank",
        )
    if error.errno == errno.EADDRINUSE:
        by = holder(port) or "a process of another user"
        return EnvironmentNotReadyError(
            f"port {port} of {shown} is taken by {by}",
            fix="end that process, or --master-port with another port on every node",
        )
    return EnvironmentNotReadyError(
        f"can't listen on port {port} of {shown}: {error.strerror or error}",
        fix="--master-port with another port on every node",
    )


def _open_files(process: Path) -> Iterator[str]:
    """Yield what the descriptors of a process lead to; nothing of another user's."""
    with suppress(OSError):
        for entry in (process / "fd").iterdir():
            with suppress(OSError):  # closed since
                yield str(entry.readlink())


def _command(process: Path) -> str:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return "gone by now"
    return b" ".join(words).decode(errors="replace").strip()[:120]


def _listening(port: int) -> Iterator[str]:
    """Yield the inodes of the sockets that listen on a port, as /proc numbers them."""
    for name in ("tcp", "tcp6"):
        try:
            lines = Path("/proc/self/net", name).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if words[3] == _LISTENING and int(words[1].rpartition(":")[2], 16) == port:
                yield words[9]
