"""One end of a tunnel that a daemon carries: waiting by its log, last words, addresses."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.host import Process
from tunnelmark.model.tunnel import Endpoint, Site, TrafficPath
from tunnelmark.tunnels.addressing import alone, inner_addresses, no_dad
from tunnelmark.tunnels.base import Tunnel, TunnelParams
from tunnelmark.tunnels.support import (
    Watched,
    first_problem,
    first_through,
    interfaces,
    quieten,
    wait_until,
)

LOG_LINES: Final = 1000
"""As much of a log's end is looked at; no daemon here writes more at its start."""
FIRST_PACKET_LIMIT_S: Final = 20.0
_POLL_S: Final = 0.01
"""How often logs are read: so late at most is a handshake seen to be done."""


@dataclass(frozen=True)
class Daemon:
    """A daemon at one end."""

    place: str
    """``tinc client of tunnel 0``, for messages."""
    endpoint: Endpoint
    interface: str
    process: Process
    words: Callable[[str], str]
    """Log to the line that says best what went wrong."""

    def log(self) -> str:
        """Return the end of its log."""
        return self.process.log_tail(LOG_LINES)

    def last_words(self) -> str:
        """Return the line of its log that says best what went wrong."""
        return self.words(self.log())

    def watched(self) -> Watched:
        """Return what must stay for the tunnel to be well."""
        return Watched(
            self.endpoint.host,
            self.interface,
            self.process,
            lambda process: self.words(process.log_tail(LOG_LINES)),
        )


class DaemonTunnel(Tunnel):
    """A tunnel that daemons at both ends carry; a driver enters them as it starts them."""

    def __init__(self, params: TunnelParams) -> None:
        """Take the parameters of the study."""
        super().__init__(params)
        self._daemons: list[Daemon] = []
        self._gateway_ends: list[Daemon] = []
        """Of a gateway that has an interface for each client: it, at the interface of each."""

    def problem(self) -> str | None:
        """Return which daemon died or which interface vanished."""
        return first_problem([end.watched() for end in (*self._daemons, *self._gateway_ends)])

    def down(self) -> None:
        """Stop clients, then servers; their interfaces go with them."""
        self._gateway_ends = []
        while self._daemons:
            self._daemons.pop().process.stop()

    def _stop_client(self, interface: str, *, gateway: str = "") -> None:
        """Stop the client at an interface, and watch the gateway's interface of it no longer."""
        (client,) = (end for end in self._daemons if end.interface == interface)
        client.process.stop()
        self._daemons.remove(client)
        self._gateway_ends = [end for end in self._gateway_ends if end.interface != gateway]

    def _gateway_end(self, gateway: Daemon, interface: str) -> Daemon:
        """Return a gateway at its interface for one client, which is watched from now on."""
        end = replace(gateway, interface=interface)
        self._gateway_ends.append(end)
        return end

    def processes(self) -> tuple[tuple[str, Process], ...]:
        """Return (host name, daemon) of both ends of all tunnels."""
        return tuple((daemon.endpoint.host.name, daemon.process) for daemon in self._daemons)


def wait_for(
    daemons: Sequence[Daemon],
    what: str,
    reached: Callable[[str], bool],
    *,
    limit_s: float,
    refused: Callable[[str], str | None] = lambda _log: None,
) -> None:
    """Wait until the logs of all daemons say that they reached ``what``.

    Raises ``TunnelError`` with the last words of the first that ends, that is ``refused``, or that
    is late.
    """

    def ready() -> bool | None:
        # The status first: a process that ended after writing its log has written all of it.
        states = [(daemon, daemon.process.poll(), daemon.log()) for daemon in daemons]
        for daemon, status, log in states:
            where = f"{daemon.place} on {daemon.endpoint.host.name}"
            if status is not None:
                raise TunnelError(
                    f"{where} ended with status {status} before it could {what}: "
                    f"{daemon.words(log)}"
                )
            if complaint := refused(log):
                raise RefusedError(f"{where} could not {what}: {complaint}")
        return True if all(reached(log) for _, _, log in states) else None

    def late() -> str:
        waiting = [daemon for daemon in daemons if not reached(daemon.log())] or [*daemons]
        daemon = waiting[0]
        return (
            f"{daemon.place} on {daemon.endpoint.host.name} did not {what} within {limit_s:g} s: "
            f"{daemon.last_words()}"
        )

    wait_until(ready, limit_s=limit_s, late=late, poll_s=_POLL_S)


def configure(daemon: Daemon, *, here: str, there: str, mtu_bytes: int) -> None:
    """Give a daemon's interface its address, peer and MTU, bring it up, and see that it is.

    Raises ``TunnelError`` if the kernel shows something else afterwards.
    """
    host, interface = daemon.endpoint.host, daemon.interface
    quieten(host, interface)
    host.run(["ip", "link", "set", "dev", interface, "mtu", str(mtu_bytes), "up"])
    # Not before: of an interface that is down, IPv6 forgets the route to the peer.
    address = ["ip", "address", "replace", here, "peer", alone(there), "dev", interface]
    host.run([*address, *no_dad(here)])
    check_interface(daemon, mtu_bytes=mtu_bytes)


def rename(daemon: Daemon, made: str, *, limit_s: float) -> None:
    """Wait for the interface that a daemon makes, and give it the name of the run.

    Raises ``TunnelError`` with the daemon's last words if it does not come.
    """
    host = daemon.endpoint.host
    wait_until(
        lambda: True if made in interfaces(host) else None,
        limit_s=limit_s,
        late=lambda: (
            f"{daemon.place} on {host.name} did not make {made} within {limit_s:g} s: "
            f"{daemon.last_words()}"
        ),
    )
    if made != daemon.interface:
        host.run(["ip", "link", "set", "dev", made, "down"])
        host.run(["ip", "link", "set", "dev", made, "name", daemon.interface])


def introduce(end: Daemon, other: Daemon, address: str) -> None:
    """Tell an Ethernet interface where its peer's address is, so that nobody asks in a trial."""
    shown: Any = json.loads(
        other.endpoint.host.run(["ip", "-j", "link", "show", "dev", other.interface]).stdout
    )
    end.endpoint.host.run(
        [
            *("ip", "neighbour", "replace", address, "lladdr", str(shown[0]["address"])),
            *("dev", end.interface, "nud", "permanent"),
        ]
    )


def check_interface(daemon: Daemon, *, mtu_bytes: int) -> None:
    """Raise ``TunnelError`` unless the kernel shows the interface up with this MTU."""
    state = interfaces(daemon.endpoint.host).get(daemon.interface)
    if state is None or not state.up or state.mtu_bytes != mtu_bytes:
        raise TunnelError(
            f"{daemon.place}: interface {daemon.interface} is {state}, wanted up with MTU "
            f"{mtu_bytes}"
        )


def prove_path(site: Site, path: TrafficPath, client: Daemon, server: Daemon) -> None:
    """Send echo requests through a path; raise ``TunnelError`` with both last words if none is."""
    words = first_through(site, path, limit_s=FIRST_PACKET_LIMIT_S)
    if words:
        raise TunnelError(
            f"no echo through {client.place.split(' of ')[1]} of {client.place.split()[0]} within "
            f"{FIRST_PACKET_LIMIT_S:g} s: {words}; last messages of the client: "
            f"{client.last_words()}; of the server: {server.last_words()}"
        )


def traffic_path(
    site: Site,
    number: int,
    client: Daemon,
    server: Daemon,
    *,
    params: TunnelParams,
    mtu_bytes: int,
) -> TrafficPath:
    """Return where to send traffic through tunnel ``number``."""
    client_address, server_address = inner_addresses(site, number, params)
    return TrafficPath(
        name=str(number),
        client_address=client_address,
        server_address=server_address,
        client_interface=client.interface,
        server_interface=server.interface,
        mtu_bytes=mtu_bytes,
        client=site.clients[number] if site.clients else None,
    )


def last_complaint(log: str, *, noise: re.Pattern[str] | None = None) -> str:
    """Return the last line of a log that complains, else its last line; ``noise`` is passed over.

    Lines are cut at 300 characters.
    """
    lines = [line.strip()[:300] for line in log.splitlines()]
    lines = [line for line in lines if line and not (noise and noise.search(line))]
    complaints = [line for line in lines if _COMPLAINT.search(line)]
    return (complaints or lines or ["nothing in its log"])[-1]


def shown_ports(ports: Sequence[int]) -> str:
    """Return ports for a message: ``655`` or ``655 to 657``."""
    return str(ports[0]) if len(ports) == 1 else f"{ports[0]} to {ports[-1]}"


_COMPLAINT: Final = re.compile(
    r"error|fail|cannot|can't|could not|unable|unsupported|refused|invalid|denied|no such|in use"
    r"|mismatch|bad |bogus|intruder|not (?:found|supported|permitted|allowed)|no matching",
    re.IGNORECASE,
)
