"""What more than one driver needs: waiting with a limit, interfaces, a first packet through."""

import contextlib
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import Any, Final, Literal, TypeVar

from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.host import Host, Process
from tunnelmark.model.together import together
from tunnelmark.model.tunnel import Milestone, Site, TrafficPath

T = TypeVar("T")

INTERFACE_NAME_LIMIT: Final = 15
"""IFNAMSIZ of Linux without the closing zero."""
_SOCKET_PATH_LIMIT: Final = 107
"""unix(7): sun_path has 108 bytes, the last is zero."""


@dataclass(frozen=True)
class Watched:
    """One end of one tunnel that is up: what must stay for the tunnel to be well."""

    host: Host
    interface: str
    process: Process | None
    """The daemon; None where the kernel carries the tunnel."""
    words: Callable[[Process], str]
    """How to find the daemon's own last words."""


@dataclass(frozen=True)
class InterfaceState:
    """What the kernel says of an interface."""

    mtu_bytes: int
    up: bool


def wait_until(
    ready: Callable[[], T | None],
    *,
    limit_s: float,
    late: Callable[[], str],
    poll_s: float = 0.02,
) -> T:
    """Ask ``ready`` until it returns something; raise ``TunnelError`` with ``late()`` at the limit.

    The condition is always asked once more after the limit, so a slow machine is not blamed for
    something that has come meanwhile.
    """
    deadline = time.monotonic() + limit_s
    while True:
        last = time.monotonic() >= deadline
        value = ready()
        if value is not None:
            return value
        if last:
            raise TunnelError(late())
        time.sleep(poll_s)


def inner_interface(site: Site, letter: str, number: int, side: Literal["client", "server"]) -> str:
    """Return the name of an inner interface, unique on the machine: ``tm3fa2c1o0c``."""
    name = f"{site.prefix}{letter}{number}{side[0]}"
    if len(name) > INTERFACE_NAME_LIMIT:
        raise ValueError(
            f"interface name {name!r} is longer than {INTERFACE_NAME_LIMIT} characters"
        )
    return name


def check_socket(place: str, path: PurePath, more: int = 0) -> None:
    """Raise ``RefusedError`` if a socket cannot have this path, with ``more`` characters behind it.

    Programs cut a longer one off or end with words about something else.
    """
    if len(str(path)) + more > _SOCKET_PATH_LIMIT:
        raise RefusedError(
            f"{place}: the path of its socket, {path}, is longer than {_SOCKET_PATH_LIMIT - more} "
            "characters (set TUNNELMARK_RUNTIME to a shorter folder)"
        )


def interfaces(host: Host) -> dict[str, InterfaceState]:
    """Return the interfaces of a host by name."""
    try:
        entries = json.loads(host.run(["ip", "-j", "link", "show"]).stdout)
    except ValueError as error:
        raise TunnelError(f"ip link on {host.name} wrote no JSON: {error}") from error
    states = {}
    for entry in entries if isinstance(entries, list) else []:
        state = _interface(entry)
        if state is not None:
            states[entry["ifname"]] = state
    return states


def quieten(host: Host, interface: str) -> None:
    """Keep the kernel from sending of its own accord (router solicitations, MLD) on an interface.

    A tunnel that carries nothing but the workload makes every packet on the link attributable.
    """
    host.run(["ip", "link", "set", "dev", interface, "addrgenmode", "none"])
    host.run(["ip", "-6", "address", "flush", "dev", interface, "scope", "link"])


def first_packet(client: Host, path: TrafficPath, *, limit_s: float) -> str | None:
    """Send echo requests through a path until one is answered; None when it was, else ping's words.

    ``limit_s`` is rounded up to whole seconds, which is what ping's ``-w`` takes. A daemon that
    does not know its peer's network yet answers that it cannot be reached, at which ping ends: it
    is asked again.
    """
    deadline = time.monotonic() + limit_s
    while True:
        left_s = max(1, math.ceil(deadline - time.monotonic()))
        done = client.run(
            [
                *("ping", "-n", "-q", "-c", "1", "-i", f"{_ECHO_S:g}", "-w", str(left_s)),
                *("-I", path.client_address, path.server_address),
            ],
            timeout_s=left_s + 10,
            check=False,
        )
        if done.returncode == 0:
            return None
        lines = (line.strip() for line in done.text().splitlines())
        words = next((line for line in lines if "transmitted" in line), done.last_words())
        if " errors," not in words or time.monotonic() + _ECHO_S >= deadline:
            return words
        time.sleep(_ECHO_S)


def first_through(site: Site, path: TrafficPath, *, limit_s: float) -> str | None:
    """Do what ``first_packet`` does, and tell the site of it."""
    site.reached(Milestone.PROBING)
    client = (path.client or site.client).host
    if words := first_packet(client, path, limit_s=site.patience(limit_s)):
        return words
    site.reached(Milestone.ANSWERED)
    return None


def first_problem(ends: Sequence[Watched]) -> str | None:
    """Return what is wrong with tunnels that were up, or None: daemons alive, interfaces up."""
    if any(_ended(end) for end in ends):
        return _all_ended(ends)
    hosts = {end.host.unique: end.host for end in ends}
    states = together(*(partial(interfaces, host) for host in hosts.values()))
    seen = dict(zip(hosts, states, strict=True))
    for end in ends:
        state = seen[end.host.unique].get(end.interface)
        if state is not None and state.up:
            continue
        # The interface of a dying daemon goes first; the daemon's end is the better reason.
        if end.process is not None:
            with contextlib.suppress(TimeoutError):
                end.process.wait(_DYING_LIMIT_S)
        if _ended(end):
            return _all_ended(ends)
        how = "vanished" if state is None else "is down"
        return f"interface {end.interface} on {end.host.name} {how}"
    return None


_ECHO_S: Final = 0.2
"""Between two echo requests."""
_DYING_LIMIT_S: Final = 1.0
_REPORTED: Final = 4
_SETTLE_S: Final = 0.3


def _all_ended(ends: Sequence[Watched]) -> str:
    # All of them: the end of one daemon may end its peer, and the order does not show the cause.
    # A peer may even be gone first: a killed process closes its sockets before it is reaped.
    time.sleep(_SETTLE_S)
    # Several ends may be one process's: a gateway has an interface for each client.
    ended = [*dict.fromkeys(problem for end in ends if (problem := _ended(end)))]
    more = f"; and {len(ended) - _REPORTED} more" if len(ended) > _REPORTED else ""
    return "; ".join(ended[:_REPORTED]) + more


def _ended(end: Watched) -> str | None:
    if end.process is None or (status := end.process.poll()) is None:
        return None
    words = end.words(end.process)
    return f"{end.process.name} on {end.host.name} ended with status {status}: {words}"


def _interface(entry: Any) -> InterfaceState | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("ifname"), str):
        return None
    mtu, flags = entry.get("mtu"), entry.get("flags")
    if not isinstance(mtu, int) or not isinstance(flags, list):
        return None
    return InterfaceState(mtu_bytes=mtu, up="UP" in flags)
