"""Network interfaces of this machine: which one leads to node 0, and whether a named one will do.

NCCL and Gloo each choose an interface by themselves, and on a machine with a container bridge or an
unused port often the wrong one; a run then hangs at its first collective.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import ipaddress
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from joyrlinf_core.errors import EnvironmentNotReadyError

NCCL, GLOO = "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"

_UP, _LOOPBACK, _RUNNING = 0x1, 0x8, 0x40


@dataclass(frozen=True)
class Interface:
    """A network interface.

    Attributes:
        name: As in `ip link`.
        addresses: Its IP addresses, as text.
        up: Whether it is switched on and has a carrier.
        loopback: Whether it leads nowhere but here.
    """

    name: str
    addresses: tuple[str, ...]
    up: bool
    loopback: bool

    def __str__(self) -> str:
        parts = [*self.addresses] or ["no address"]
        parts += [] if self.up else ["down"]
        parts += ["loopback"] if self.loopback else []
        return f"{self.name} ({', '.join(parts)})"


class _Address(ctypes.Structure):
    pass


_Address._fields_ = (
    ("next", ctypes.POINTER(_Address)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
)


def interfaces() -> list[Interface]:
    """Return the interfaces of this machine, those of this network namespace."""
    library = ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True)
    first = ctypes.POINTER(_Address)()
    if library.getifaddrs(ctypes.byref(first)):
        raise OSError(ctypes.get_errno(), "getifaddrs")
    flags: dict[str, int] = {}
    addresses: dict[str, list[str]] = {}
    entry = first
    while entry:
        name = entry.contents.name.decode()
        flags[name] = entry.contents.flags
        found = addresses.setdefault(name, [])
        if text := _as_text(entry.contents.address):
            found.append(text)
        entry = entry.contents.next
    library.freeifaddrs(first)
    running = _UP | _RUNNING
    return [
        Interface(name, tuple(addresses[name]), bits & running == running, bool(bits & _LOOPBACK))
        for name, bits in flags.items()
    ]


def _as_text(address: int | None) -> str:
    """Return an IP address of the C library; empty for any other kind."""
    if not address:
        return ""
    head = ctypes.string_at(address, 2)
    # The BSDs, macOS among them, have the structure's length in front.
    family = head[1] if sys.platform == "darwin" else int.from_bytes(head, sys.byteorder)
    if family == socket.AF_INET:
        return socket.inet_ntop(family, ctypes.string_at(address + 4, 4))
    if family == socket.AF_INET6:
        return socket.inet_ntop(family, ctypes.string_at(address + 8, 16))
    return ""


def listed(found: Sequence[Interface]) -> str:
    """Return interfaces as text for a message."""
    return ", ".join(str(one) for one in found) or "none"


def route_to(address: str) -> Interface:
    """Return the interface through which this machine reaches an IP address; sends nothing.

    Where the address is this machine's own, that is the interface which has it.

    Raises:
        EnvironmentNotReadyError: No interface leads there.
    """
    family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
    found = interfaces()
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            source = probe.getsockname()[0].partition("%")[0]
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"no interface of this machine leads to node 0 at {address}: {error.strerror}",
            fix=f"--master-addr with an address in reach; interfaces here: {listed(found)}",
        ) from error
    for one in found:
        if source in one.addresses:
            return one
    raise EnvironmentNotReadyError(
        f"the way to node 0 at {address} starts at {source}, which no interface has",
        fix=f"interfaces here: {listed(found)}",
    )


def socket_variables(
    route: Interface, found: Sequence[Interface], environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables that tell NCCL and Gloo which interface to use.

    Both get the interface that leads to node 0, unless the user named another for NCCL; Gloo goes
    along, with one concrete name, as it understands nothing else.

    Args:
        route: Interface that leads to node 0.
        found: All interfaces.
        environ: The environment.

    Raises:
        EnvironmentNotReadyError: A variable of the user names what is not there, not up, or leads
            nowhere.
    """
    # Only nodes on one machine can meet on its loopback interface, and then it will do.
    local = route.loopback
    wanted = environ.get(NCCL, "").strip()
    nccl = [route]
    if wanted:
        nccl = _usable(NCCL, wanted, _selected(wanted, found), found, route, local=local)
    named = environ.get(GLOO, "").strip()
    if named:
        if named.startswith(("^", "=")) or "," in named:
            raise EnvironmentNotReadyError(
                f"{GLOO} is {named!r}; Gloo takes the name of one interface, no list and no `^`",
                fix=f"export {GLOO}={_nearest(route, nccl).name}, or unset it; interfaces here: "
                f"{listed(found)}",
            )
        same = [one for one in found if one.name == named]
        gloo = _usable(GLOO, named, same, found, route, local=local)[0].name
    else:
        gloo = _nearest(route, nccl).name
    return {NCCL: wanted or _for_nccl(route, found), GLOO: gloo}


def _for_nccl(route: Interface, found: Sequence[Interface]) -> str:
    """Return what makes NCCL take one interface alone: to NCCL `ens1` means `ens1f0`, too."""
    alone = _selected(route.name, found) == [route]
    return route.name if alone else f"={route.name}"


def _selected(wanted: str, found: Sequence[Interface]) -> list[Interface]:
    """Return what NCCL takes: prefixes, `=` for exact names, `^` in front for all others."""
    exclude = wanted.startswith("^")
    text = wanted.removeprefix("^")
    exact = text.startswith("=")
    names = [name.strip() for name in text.removeprefix("=").split(",") if name.strip()]

    def matches(one: Interface) -> bool:
        return any(one.name == name if exact else one.name.startswith(name) for name in names)

    return [one for one in found if matches(one) != exclude]


def _usable(
    variable: str,
    value: str,
    chosen: Sequence[Interface],
    found: Sequence[Interface],
    route: Interface,
    *,
    local: bool,
) -> list[Interface]:
    """Return those of the chosen interfaces that reach other machines."""
    up = [one for one in chosen if one.up]
    usable = [one for one in up if local or not one.loopback]
    if usable:
        return usable
    problem = "no interface of this machine"
    if up:
        problem = "the loopback interface, which reaches no other machine"
    elif chosen:
        problem = f"{chosen[0].name}, which is down"
    raise EnvironmentNotReadyError(
        f"{variable} is {value!r}: {problem}",
        fix=f"export {variable}={route.name} (it leads to node 0), or unset it; interfaces here: "
        f"{listed(found)}",
    )


def _nearest(route: Interface, chosen: Sequence[Interface]) -> Interface:
    """Return the interface that leads to node 0 if it is among the chosen ones, else the first."""
    names = [one.name for one in chosen]
    return route if route.name in names else chosen[0]
