"""Tunnels whose ends are pppds: the calls, waiting for them, what must stay, hanging up."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import ClassVar, Final

from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.host import Host, Process
from tunnelmark.model.names import unique_name
from tunnelmark.model.tunnel import Endpoint, Side, Site, TrafficPath
from tunnelmark.tunnels.addressing import alone, inner_addresses, no_dad
from tunnelmark.tunnels.base import Tunnel, TunnelParams
from tunnelmark.tunnels.ppp import pppd
from tunnelmark.tunnels.ppp.check import check
from tunnelmark.tunnels.ppp.log import is_refusal, last_words
from tunnelmark.tunnels.ppp.pppd import PppEnd
from tunnelmark.tunnels.support import Watched, first_packet, first_problem, quieten, wait_until

LOG_LINES: Final = 200
"""As much of a daemon's log is looked at."""
# A lost packet of the negotiation is sent again after 1 s, of CCP after 3 s; ten times at most.
_CALL_LIMIT_S: Final = 45.0
_FIRST_PACKET_LIMIT_S: Final = 15.0


@dataclass(frozen=True)
class Call:
    """One end of one tunnel."""

    kind: ClassVar[str]
    """The tunnel's, for messages."""

    side: Side
    number: int
    endpoint: Endpoint
    ppp: PppEnd
    process: Process
    """What started the pppd; on the server that of all calls."""

    @property
    def place(self) -> str:
        """Return which end of which tunnel this is, for messages."""
        return f"{self.kind} {self.side} of tunnel {self.number} on {self.endpoint.host.name}"

    def last_words(self) -> str:
        """Return what pppd says itself, or what the daemon said before there was a pppd."""
        return last_words(self.ppp.log() or self.process.log_tail(LOG_LINES))

    def watched(self) -> Watched:
        """Return what must stay for the tunnel to be well."""
        return Watched(
            self.endpoint.host,
            self.ppp.setup.interface,
            self.process,
            lambda _process: self.last_words(),
        )


class PppTunnel(Tunnel):
    """A server for all calls, a client for each; a driver starts them and reads what they say."""

    deviations: ClassVar[Mapping[str, str]] = pppd.DEVIATIONS

    def __init__(self, params: TunnelParams) -> None:
        """Take the parameters of the study."""
        super().__init__(params)
        self._server: Process | None = None
        self._calls: list[Call] = []
        self._addresses: dict[tuple[Side, int], tuple[str, str]] = {}
        """Own and peer's of each end that is up."""
        self._folder_name = unique_name(self.kind)

    def problem(self) -> str | None:
        """Return which daemon died or which interface vanished."""
        return first_problem(self._watched())

    def check_agreed(self) -> None:
        """Hold what pppd and the kernel say to the study again: MPPE and compression may end."""
        for end in self._calls:
            check(end.ppp, place=end.place, addresses=self._addresses[end.side, end.number])

    def down(self) -> None:
        """Hang up, then end the server; the interfaces go with their pppd."""
        served = [call.ppp for call in self._calls if call.side == "server"]
        while self._calls:
            call = self._calls.pop()
            if call.side == "client":
                pppd.hang_up(call.process, [call.ppp])
        if self._server is not None:
            pppd.hang_up(self._server, served)
            self._server = None

    def _watched(self) -> list[Watched]:
        # The server first: a client ends because its server did.
        calls = sorted(self._calls, key=lambda call: call.side, reverse=True)
        return [call.watched() for call in calls]

    def _folder(self, host: Host, what: str) -> PurePosixPath:
        """Return the folder of one daemon, this driver's alone.

        A pppd may outlive the xl2tpd that started it. What it then writes must not stand in the
        log of the pppd that the next attempt starts.
        """
        return host.work_dir / self._folder_name / what

    def _require_others(self, what: str) -> None:
        """Raise ``TunnelError`` if a program that the calls rest on ended before ``what``."""

    def _gave_up(self, call: Call) -> bool:  # noqa: ARG002 - what a driver overrides
        """Return whether an end has given up though its process is still there."""
        return False

    def _wait(self, calls: Sequence[Call], what: str, reached: Callable[[Call], bool]) -> None:
        """Wait until all ends say so; the first of them that ends says why it could not."""

        def said(call: Call, happened: str) -> str:
            others = [f"{other.side}: {other.last_words()}" for other in calls if other != call]
            return f"{call.place} {happened}: {'; '.join([call.last_words(), *others])}"

        def ready() -> bool | None:
            self._require_others(what)
            for call in calls:
                if (status := call.process.poll()) is not None:
                    happened = f"ended with status {status} before it could {what}"
                elif self._gave_up(call):
                    happened = f"did not {what}"
                else:
                    continue
                raise _error(call.last_words())(said(call, happened))
            return True if all(reached(call) for call in calls) else None

        def late() -> str:
            call = next((call for call in calls if not reached(call)), calls[0])
            return said(call, f"did not {what} within {_CALL_LIMIT_S:g} s")

        wait_until(ready, limit_s=_CALL_LIMIT_S, late=late, poll_s=0.1)

    def _settle(
        self, site: Site, client: Call, server: Call, *, link_address: str | None = None
    ) -> TrafficPath:
        """Wait until both ends agree, hold them to it, and send a packet; return the path."""
        self._wait([client, server], "agree on addresses", lambda end: end.ppp.report().up)
        if self.params.inner == "ipv6":
            self._wait([client, server], "agree on IPv6", lambda end: end.ppp.report().up_ipv6)
        agreed = site.inner_ipv4(client.number)
        inner = inner_addresses(site, client.number, self.params)
        for end, addresses, own in (
            (client, agreed, inner),
            (server, agreed[::-1], inner[::-1]),
        ):
            self._hold(end, addresses, own)
        return self._proved(site, client, server.ppp.setup.interface, link_address=link_address)

    def _hold(self, end: Call, addresses: tuple[str, str], inner: tuple[str, str]) -> None:
        """Hold an end that is up to the study, and give it its inner address where PPP has none.

        Both are this end's own address and the peer's: that agreed on by PPP, that of the traffic.
        """
        self._addresses[end.side, end.number] = addresses
        host, interface = end.endpoint.host, end.ppp.setup.interface
        # pppd takes MPPE's bytes off once for each time that both agree on it, which late
        # packets of the negotiation make twice.
        host.run(["ip", "link", "set", "dev", interface, "mtu", str(end.ppp.setup.mtu_bytes)])
        check(end.ppp, place=end.place, addresses=addresses)
        quieten(host, interface)
        if self.params.inner == "ipv6":
            own, remote = inner
            # RFC 5072 agrees on the lower half of a link-local address and on nothing more.
            address = ["ip", "address", "add", own, "peer", alone(remote), "dev", interface]
            host.run([*address, *no_dad(own)])

    def _proved(
        self, site: Site, client: Call, server_interface: str, *, link_address: str | None = None
    ) -> TrafficPath:
        """Send a packet from a client whose two ends are up; return the path."""
        inner = inner_addresses(site, client.number, self.params)
        path = TrafficPath(
            name=str(client.number),
            client_address=inner[0],
            server_address=inner[1],
            client_interface=client.ppp.setup.interface,
            server_interface=server_interface,
            mtu_bytes=client.ppp.setup.mtu_bytes,
            link_address=link_address,
            client=site.clients[client.number] if site.clients else None,
        )
        if words := first_packet(client.endpoint.host, path, limit_s=_FIRST_PACKET_LIMIT_S):
            raise TunnelError(
                f"no echo through {self.kind} tunnel {client.number} within "
                f"{_FIRST_PACKET_LIMIT_S:g} s: {words}; the client's last messages: "
                f"{client.last_words()}"
            )
        return path


def _error(words: str) -> type[TunnelError]:
    return RefusedError if is_refusal(words) else TunnelError
