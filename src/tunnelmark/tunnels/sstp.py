"""SSTP: sstp-client against a server of our own (sstp_server.py); PPP in TLS in TCP."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import PurePosixPath
from typing import ClassVar, Final, Literal

from pydantic import Field

from tunnelmark.model.errors import TunnelError
from tunnelmark.model.host import Host, Need, Process
from tunnelmark.model.overhead import Encapsulation, Layer, ip_layer, tcp_layer
from tunnelmark.model.tunnel import Endpoint, Negotiated, Site, TrafficPath, TunnelUp, WireRule
from tunnelmark.tunnels import ppp, sstp_log
from tunnelmark.tunnels.base import Tunnel, TunnelParams
from tunnelmark.tunnels.pki import RunAuthority
from tunnelmark.tunnels.ppp import Compression, PppAccount, PppEnd, PppFraming, PppSetup, Side
from tunnelmark.tunnels.ppp_check import check, negotiated
from tunnelmark.tunnels.support import (
    Watched,
    daemon_name,
    first_packet,
    first_problem,
    inner_interface,
    quieten,
    wait_until,
)

PORT: Final = 443
"""MS-SSTP section 2.1."""

_TCP: Final = 6
_START_LIMIT_S: Final = 30.0
_CALL_LIMIT_S: Final = 45.0
_FIRST_PACKET_LIMIT_S: Final = 15.0
_LOG_LINES: Final = 100
_PLUGIN: Final = "sstp-pppd-plugin.so"
# sstpc gives up root and makes its socket in a directory that must be its user's own; /run is a
# private copy of the client's.
_WITH_SSTPC_DIRECTORY: Final = 'mkdir -p -m 755 /run/sstpc && chown sstpc /run/sstpc && exec "$@"'
_TLS_OVERHEAD: Final[dict[str, tuple[Layer, ...]]] = {
    "1.3": (
        Layer("TLS record header", 5, "RFC 8446 section 5.1"),
        Layer("TLS content type and tag", 17, "RFC 8446 section 5.2"),
    ),
    "1.2": (
        Layer("TLS record header", 5, "RFC 5246 section 6.2.1"),
        Layer("TLS nonce and tag", 24, "RFC 5288 section 3"),
    ),
}


class SstpParams(TunnelParams):
    """What a study can set."""

    tls: Literal["1.2", "1.3"] = Field(
        "1.3",
        description="version of TLS; both with AES-GCM, whichever of its suites they agree on",
    )
    compression: Compression = Field("none", description="compression of PPP inside TLS")
    mtu_bytes: int = Field(
        1400,
        ge=128,
        le=4000,
        description="MTU of the inner interface; with TLS 1.3, 1420 is the longest that fits one "
        "segment of 1500",
    )


@dataclass(frozen=True)
class _Call:
    """One end of one tunnel."""

    side: Side
    number: int
    endpoint: Endpoint
    ppp: PppEnd
    process: Process
    """The client's pppd, which starts sstpc; on the server that of all calls."""

    @property
    def place(self) -> str:
        return f"sstp {self.side} of tunnel {self.number} on {self.endpoint.host.name}"

    def last_words(self) -> str:
        """Return what says best what went wrong: TLS and SSTP before PPP, which only hangs up."""
        own = self.process.log_tail(_LOG_LINES)
        return sstp_log.last_words(self.ppp.log(), own, self.number)


class SstpTunnel(Tunnel):
    """One server process with ``count`` calls; each call has a connection of its own."""

    kind: ClassVar[str] = "sstp"
    title: ClassVar[str] = "SSTP"
    params_type: ClassVar[type[TunnelParams]] = SstpParams

    def __init__(self, params: TunnelParams) -> None:
        """Take the parameters of the study."""
        super().__init__(params)
        if not isinstance(params, SstpParams):
            raise TypeError(f"{type(params).__name__} are not the parameters of sstp")
        self._params: SstpParams = params
        self._server: Process | None = None
        self._calls: list[_Call] = []
        self._framing = PppFraming(0, 1, mppe=False)

    def need(self, host: Host) -> Need:  # noqa: ARG002 - the same on every host
        """Need sstpc, a Python for the server, PPP, and what compresses."""
        features = ("ppp", *ppp.KERNEL[self._params.compression])
        return Need(
            programs={
                **ppp.PROGRAMS,
                "sstpc": "sstp-client",
                "python3": "python3",
                "ping": "iputils-ping",
            },
            kernel=tuple(dict.fromkeys(features)),
        )

    def up(self, site: Site) -> TunnelUp:
        """Start the server, call it ``count`` times, check what both ends say was agreed."""
        count = self._params.count
        accounts = [ppp.new_account(f"{site.prefix}-{number}") for number in range(count)]
        server = self._start_server(site, accounts)
        ends = []
        for number, account in enumerate(accounts):
            client = self._call(site, number, account)
            answer = self._setup(site, "server", number)
            call = _Call("server", number, site.server, PppEnd(site.server.host, answer), server)
            self._calls.append(call)
            # The server gives its calls to clients in the order in which they come.
            self._wait([client, call], "be answered", lambda end: bool(end.ppp.log()))
            ends.append((client, call))
        paths, agreed = [], []
        for client, call in ends:
            self._wait([client, call], "agree on addresses", lambda end: end.ppp.report().up)
            for end in (client, call):
                addresses = site.inner_ipv4(end.number)
                own_first = addresses if end.side == "client" else addresses[::-1]
                check(end.ppp, place=end.place, addresses=(own_first[0], own_first[1]))
                quieten(end.endpoint.host, end.ppp.setup.interface)
            path = self._path(site, client)
            if words := first_packet(site.client.host, path, limit_s=_FIRST_PACKET_LIMIT_S):
                raise TunnelError(
                    f"no echo through sstp tunnel {client.number} within "
                    f"{_FIRST_PACKET_LIMIT_S:g} s: {words}; the client's last words: "
                    f"{client.last_words()}"
                )
            paths.append(path)
            agreed.append(self._negotiated(client, call))
        return TunnelUp(
            paths=tuple(paths),
            negotiated=tuple(agreed),
            wire=WireRule(
                encrypted=True,
                describe=f"TCP to or from port {PORT}",
                ip_protocols=(_TCP,),
                tcp_ports=(PORT,),
                compresses=self._params.compression != "none",
            ),
            processes=(
                *((site.client.host.name, client.process) for client, _ in ends),
                (site.server.host.name, server),
            ),
        )

    def problem(self) -> str | None:
        """Return which daemon died or which interface vanished."""
        # The server first: a client ends because its server did.
        calls = sorted(self._calls, key=lambda call: call.side, reverse=True)
        return first_problem(
            [
                Watched(
                    call.endpoint.host,
                    call.ppp.setup.interface,
                    call.process,
                    lambda _process, call=call: call.last_words(),  # type: ignore[misc]
                )
                for call in calls
            ]
        )

    def down(self) -> None:
        """Hang up, then end the server; the interfaces go with their pppd."""
        served = [call.ppp for call in self._calls if call.side == "server"]
        while self._calls:
            call = self._calls.pop()
            if call.side == "client":
                ppp.hang_up(call.process, [call.ppp])
        if self._server is not None:
            ppp.hang_up(self._server, served)
            self._server = None

    def encapsulation(self, agreed: Negotiated) -> Encapsulation:
        """Return the layers of a packet that finds the connection idle.

        Both programs put each packet of PPP into a packet of SSTP and a TLS record of its own.
        """
        record, protection = _TLS_OVERHEAD[self._params.tls]
        sstp = Layer("SSTP header", 4, "MS-SSTP section 2.2.1")
        layers = (ip_layer(4), tcp_layer(), record, sstp, *self._framing.layers(), protection)
        return Encapsulation(lambda _inner_bytes: layers, agreed.mtu_bytes, stream=True)

    def _start_server(self, site: Site, accounts: list[PppAccount]) -> Process:
        host, folder = site.server.host, _folder(site.server.host, "server")
        authority = RunAuthority(site.prefix, datetime.now(UTC))
        identity = authority.issue(site.server.ipv4, "server")
        host.put(folder / "server.crt", identity.certificate)
        host.put(folder / "server.key", identity.key)
        site.client.host.put(_folder(site.client.host, "ca.crt"), authority.certificate, mode=0o644)
        ppp.put_etc(host, folder / "etc", accounts)
        for number, account in enumerate(accounts):
            setup = self._setup(site, "server", number)
            ppp.put_options(host, folder / f"options-{number}", setup, account)
        config = {
            "listen": site.server.ipv4,
            "port": PORT,
            "certificate": str(folder / "server.crt"),
            "key": str(folder / "server.key"),
            "tls": self._params.tls,
            "calls": [
                ["pppd", "file", str(folder / f"options-{number}")]
                for number in range(len(accounts))
            ],
        }
        host.put(folder / "config.json", json.dumps(config).encode())
        program = resources.files("tunnelmark.tunnels").joinpath("sstp_server.py").read_bytes()
        host.put(folder / "sstp_server.py", program)
        daemon = host.spawn(
            ppp.in_own_etc(
                folder / "etc",
                ["python3", "-I", str(folder / "sstp_server.py"), str(folder / "config.json")],
            ),
            name=daemon_name("sstp-server"),
            private_dirs=("/run",),
        )
        self._server = daemon

        def words() -> str:
            return sstp_log.last_words("", daemon.log_tail(_LOG_LINES), None)

        def ready() -> bool | None:
            if (status := daemon.poll()) is not None:
                raise TunnelError(
                    f"the sstp server on {host.name} ended with status {status} at its start: "
                    f"{words()}"
                )
            return True if "listening on " in daemon.log_tail(_LOG_LINES) else None

        wait_until(
            ready,
            limit_s=_START_LIMIT_S,
            poll_s=0.05,
            late=lambda: (
                f"the sstp server on {host.name} does not listen on port {PORT} after "
                f"{_START_LIMIT_S:g} s: {words()}"
            ),
        )
        return daemon

    def _call(self, site: Site, number: int, account: PppAccount) -> _Call:
        host, folder = site.client.host, _folder(site.client.host, f"client-{number}")
        setup = self._setup(site, "client", number)
        ppp.put_etc(host, folder / "etc", [])
        ppp.put_options(host, folder / "options", setup, account)
        pppd = ["pppd", "file", str(folder / "options")]
        process = host.spawn(
            ppp.in_own_etc(folder / "etc", ["sh", "-c", _WITH_SSTPC_DIRECTORY, "sstpc", *pppd]),
            name=daemon_name(f"sstp-client-{number}"),
            private_dirs=("/run",),
        )
        call = _Call("client", number, site.client, PppEnd(host, setup), process)
        self._calls.append(call)
        return call

    def _setup(self, site: Site, side: Side, number: int) -> PppSetup:
        endpoint = site.client if side == "client" else site.server
        client, server = site.inner_ipv4(number)
        name = f"{site.prefix}-{number}"
        sstpc = (
            f"sstpc --nolaunchpppd --log-stderr --log-level 3 --ipparam {name} "
            f"--ca-cert {_folder(site.client.host, 'ca.crt')} {site.server.ipv4}"
        )
        more = (
            (
                *("nodetach", f"{client}:{server}", f'pty "{sstpc}"'),
                *(f"plugin {_PLUGIN}", f"sstp-sock /run/sstpc/sstpc-{name}", f"ipparam {name}"),
            )
            if side == "client"
            else ("nodetach", "local", f"{server}:{client}")
        )
        return PppSetup(
            side=side,
            interface=inner_interface(site, "s", number, side),
            mtu_bytes=self._params.mtu_bytes,
            log=_folder(endpoint.host, side) / f"pppd-{number}.log",
            compression=self._params.compression,
            more=more,
        )

    def _wait(self, calls: list[_Call], what: str, reached: Callable[[_Call], bool]) -> None:
        """Wait until all ends say so; the first of them that ends tells why it could not."""

        def ready() -> bool | None:
            for call in calls:
                if (status := call.process.poll()) is not None:
                    raise TunnelError(
                        f"{call.place} ended with status {status} before it could {what}: "
                        f"{call.last_words()}"
                    )
            return True if all(reached(call) for call in calls) else None

        def late() -> str:
            call = next((call for call in calls if not reached(call)), calls[0])
            return f"{call.place} did not {what} within {_CALL_LIMIT_S:g} s: {call.last_words()}"

        wait_until(ready, limit_s=_CALL_LIMIT_S, late=late, poll_s=0.1)

    def _path(self, site: Site, client: _Call) -> TrafficPath:
        client_ipv4, server_ipv4 = site.inner_ipv4(client.number)
        return TrafficPath(
            name=str(client.number),
            client_address=client_ipv4,
            server_address=server_ipv4,
            client_interface=client.ppp.setup.interface,
            server_interface=inner_interface(site, "s", client.number, "server"),
            mtu_bytes=self._params.mtu_bytes,
        )

    def _negotiated(self, client: _Call, server: _Call) -> Negotiated:
        tls = sstp_log.read_server_log(server.process.log_tail(_LOG_LINES), server.number)
        wanted = f"TLSv{self._params.tls}"
        if tls.version != wanted or not tls.bound:
            raise TunnelError(
                f"{server.place} runs with {tls.version or 'no TLS'} and "
                f"{'a' if tls.bound else 'no'} crypto binding, the study asks for {wanted} and one"
            )
        report = client.ppp.report()
        self._framing = ppp.framing(report)
        done = client.endpoint.host.run(["sstpc", "--version"], check=False)
        version = sstp_log.version(done.text() + done.stderr.decode("utf-8", "replace"))
        agreed = negotiated(
            client.ppp,
            report,
            programs=[f"sstp-client {version}"],
            data_path="PPP in the kernel, SSTP and TLS in user space (sstpc; our own server)",
        )
        return Negotiated(
            cipher=tls.cipher,
            version=agreed.version,
            implementation="sstpc, pppd",
            mtu_bytes=agreed.mtu_bytes,
            details={
                **agreed.details,
                "encryption": f"{tls.version} {tls.cipher}",
                "server": "tunnelmark's own SSTP server in Python; it compares nonce and "
                "certificate of the crypto binding, not its compound MAC",
            },
        )


def _folder(host: Host, what: str) -> PurePosixPath:
    return host.work_dir / "sstp" / what
