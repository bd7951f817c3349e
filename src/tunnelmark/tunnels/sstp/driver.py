"""SSTP: sstp-client against a server of our own (server.py) or SoftEther's; PPP in TLS."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from types import MappingProxyType
from typing import ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.host import Host, Need, Process
from tunnelmark.model.names import unique_name
from tunnelmark.model.overhead import Encapsulation, Layer, ip_layer, tcp_layer
from tunnelmark.model.tunnel import (
    CipherLibrary,
    Negotiated,
    ServerPorts,
    Side,
    Site,
    TrafficPath,
    TunnelUp,
    WireRule,
)
from tunnelmark.tunnels.addressing import alone, check_inner_mtu, client_ends
from tunnelmark.tunnels.base import TunnelParams
from tunnelmark.tunnels.pki import Identity, RunAuthority
from tunnelmark.tunnels.ppp import pppd
from tunnelmark.tunnels.ppp.call import LOG_LINES, Call, PppTunnel
from tunnelmark.tunnels.ppp.check import negotiated
from tunnelmark.tunnels.ppp.pppd import Compression, PppAccount, PppEnd, PppFraming, PppSetup
from tunnelmark.tunnels.protocols import TCP
from tunnelmark.tunnels.softether.log import Status
from tunnelmark.tunnels.softether.program import COMMAND, SERVER
from tunnelmark.tunnels.sstp import log as sstp_log
from tunnelmark.tunnels.sstp import softether
from tunnelmark.tunnels.sstp.softether import SoftEtherHubs
from tunnelmark.tunnels.support import first_problem, inner_interface, wait_until

PORT: Final = 443
"""MS-SSTP section 2.1."""

_START_LIMIT_S: Final = 30.0
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
_SERVER_PROGRAMS: Final = {
    "tunnelmark": {"python3": "python3"},
    # Not vpnserver, which Debian has and which cannot serve: the study gives one.
    "softether": {COMMAND: "softether-vpncmd", "ss": "iproute2"},
}


class SstpParams(TunnelParams):
    """What a study can set."""

    outer: Literal["ipv4"] = Field("ipv4", description="IP version outside; IPv4 only so far")
    tls: Literal["1.2", "1.3"] = Field(
        "1.3",
        description="version of TLS; both with AES-GCM, in whichever suite the ends agree on",
    )
    server: Literal["tunnelmark", "softether"] = Field(
        "tunnelmark",
        description="tunnelmark: our own server with pppd; softether: SoftEther VPN Server, which "
        "the study gives as program: Debian's answers no SSTP call. Of packets that it sends "
        "together, sstpc may keep the last for up to seconds (docs/design.md)",
    )
    compression: Compression = Field("none", description="compression of PPP inside TLS")
    mtu_bytes: int = Field(
        1400,
        ge=128,
        le=4000,
        description="MTU of the inner interface; with TLS 1.3, 1420 is the longest that fits one "
        "segment of 1500, with softether 1418",
    )

    def columns(self) -> dict[str, object]:
        """Return all values, the server only where a study names another: it is newer."""
        columns = super().columns()
        if self.server == "tunnelmark":
            del columns["server"]
        return columns

    @model_validator(mode="after")
    def _possible(self) -> Self:
        """Refuse what SoftEther's PPP or this driver has not, before anything is made."""
        if self.server == "tunnelmark":
            return self
        for what, is_, must in (
            ("inner", self.inner, "ipv4"),
            ("compression", self.compression, "none"),
            ("clients", self.clients, None),
        ):
            if is_ != must:
                remedy = "leave it out" if must is None else f"it must be {must}"
                raise ValueError(f"{what} is {is_}: with server softether {remedy}")
        if self.mtu_bytes > softether.MOST_MTU_BYTES:
            raise ValueError(
                f"mtu_bytes is {self.mtu_bytes}: SoftEther's PPP carries at most "
                f"{softether.MOST_MTU_BYTES}"
            )
        return self


class _Call(Call):
    """One end of one tunnel; the client's process is its pppd, which starts sstpc."""

    kind: ClassVar[str] = "sstp"

    def last_words(self) -> str:
        """Return what says best what went wrong: TLS and SSTP before PPP, which only hangs up."""
        own = self.process.log_tail(LOG_LINES)
        return sstp_log.last_words(self.ppp.log(), own, self.number)


class SstpTunnel(PppTunnel):
    """One server process with ``count`` calls; each call has a connection of its own.

    With ``clients`` each client is on a host of its own, and the server has one inner address.
    """

    kind: ClassVar[str] = "sstp"
    title: ClassVar[str] = "SSTP"
    library: ClassVar[CipherLibrary] = "OpenSSL"
    params_type: ClassVar[type[TunnelParams]] = SstpParams
    gateway: ClassVar[bool] = True
    programs: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"vpnserver": SERVER, "vpncmd": COMMAND}
    )
    deviations: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            **pppd.DEVIATIONS,
            "SecureNAT with its DHCP alone (softether)": "SoftEther's PPP takes an address only "
            "where DHCP tells the rest of the network; its NAT is off and traffic does not pass it",
            "NAT traversal, dynamic DNS, keep-alive to the Internet off (softether)": "nothing "
            "leaves the lab",
            "one listener instead of four (softether)": "others are not used",
        }
    )
    params: SstpParams

    def __init__(self, params: TunnelParams) -> None:
        """Take the parameters of the study."""
        super().__init__(params)
        self._hubs: SoftEtherHubs | None = None
        own = PppFraming(0, 1, mppe=False)
        self._framing = own if self.params.server == "tunnelmark" else softether.FRAMING

    def need(self, host: Host) -> Need:  # noqa: ARG002 - the same on every host
        """Need sstpc, PPP, what compresses, and what the server runs with."""
        features = ("ppp", *pppd.KERNEL[self.params.compression])
        if self.params.server == "softether":
            features = (*features, "tun")
        return Need(
            programs={
                **pppd.PROGRAMS,
                "sstpc": "sstp-client",
                "ping": "iputils-ping",
                **_SERVER_PROGRAMS[self.params.server],
            },
            kernel=tuple(dict.fromkeys(features)),
        )

    def unavailable(self, host: Host) -> str | None:
        """Return why this tunnel cannot run on the host; Debian's SoftEther cannot serve."""
        if self.params.server == "softether" and "vpnserver" not in self._tailoring.programs:
            return f"{softether.TOO_OLD} ({softether.REMEDY})"
        return super().unavailable(host)

    def bring_up(self, site: Site) -> TunnelUp:
        """Start the server, call it from each client, check what both ends say was agreed."""
        check_inner_mtu(self.kind, self.params.inner, self.params.mtu_bytes)
        if self.params.server == "softether":
            return self._through_hubs(site)
        numbers = range(self.params.paths)
        accounts = [pppd.new_account(f"{site.prefix}-{number}") for number in numbers]
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
            paths.append(self._settle(site, client, call))
            agreed.append(self._negotiated(client, call))
        return self._result(site, server, [client for client, _ in ends], paths, agreed)

    def problem(self) -> str | None:
        """Return which daemon died or which interface vanished."""
        hubs = self._hubs.ends if self._hubs else []
        return first_problem([*(end.watched() for end in hubs), *self._watched()])

    def check_agreed(self) -> None:
        """Hold what both ends say to the study again."""
        super().check_agreed()
        if self._hubs is not None:
            for number in range(self.params.paths):
                self._hubs.agreed(number)

    def _through_hubs(self, site: Site) -> TunnelUp:
        """Do what ``bring_up`` says with SoftEther's server."""
        self._hubs = hubs = SoftEtherHubs(site, PORT, self.params.tls)
        accounts = [softether.account(number) for number in range(self.params.paths)]
        self._server = server = hubs.start()
        hubs.set_up(server, self._identity(site), accounts)
        clients = [self._call(site, number, one) for number, one in enumerate(accounts)]
        paths, agreed = [], []
        for number, client in enumerate(clients):
            self._wait([client], "agree on addresses", lambda end: end.ppp.report().up)
            inner = site.inner_ipv4(number)
            self._hold(client, (inner[0], softether.dhcp_address(site, number)), inner)
            end = hubs.settle(server, number, self.params.mtu_bytes)
            route = ["ip", "route", "replace", alone(inner[1]), "src", inner[0]]
            client.endpoint.host.run([*route, "dev", client.ppp.setup.interface])
            paths.append(self._proved(site, client, end.interface))
            agreed.append(self._agreed_with_hub(client, hubs.agreed(number)))
        return self._result(site, server, clients, paths, agreed)

    def _result(
        self,
        site: Site,
        server: Process,
        clients: Sequence[Call],
        paths: Sequence[TrafficPath],
        agreed: Sequence[Negotiated],
    ) -> TunnelUp:
        return TunnelUp(
            paths=tuple(paths),
            negotiated=tuple(agreed),
            wire=WireRule(
                encrypted=True,
                describe=f"TCP to or from port {PORT}",
                ip_protocols=(TCP,),
                tcp_ports=(PORT,),
                compresses=self.params.compression != "none",
            ),
            processes=(
                *((client.endpoint.host.name, client.process) for client in clients),
                (site.server.host.name, server),
            ),
        )

    def encapsulation(self, agreed: Negotiated) -> Encapsulation:
        """Return the layers of a packet that finds the connection idle.

        sstpc and our server put each packet of PPP into a packet of SSTP and a TLS record of its
        own; of packets that come together, SoftEther's puts as many as there are into one record.
        """
        record, protection = _TLS_OVERHEAD[self.params.tls]
        sstp = Layer("SSTP header", 4, "MS-SSTP section 2.2.1")
        layers = (ip_layer(4), tcp_layer(), record, sstp, *self._framing.layers(), protection)
        return Encapsulation(lambda _inner_bytes: layers, agreed.mtu_bytes, stream=True)

    def forwarded(self) -> tuple[ServerPorts, ...]:
        """Return the server's one port."""
        return (ServerPorts("tcp", PORT),)

    def _start_server(self, site: Site, accounts: list[PppAccount]) -> Process:
        host, folder = site.server.host, self._folder(site.server.host, "server")
        identity = self._identity(site)
        host.put(folder / "server.crt", identity.certificate)
        host.put(folder / "server.key", identity.key)
        pppd.put_etc(host, folder / "etc", accounts)
        for number, account in enumerate(accounts):
            setup = self._setup(site, "server", number)
            pppd.put_options(host, folder / f"options-{number}", setup, account)
        config = {
            "listen": site.server.ipv4,
            "port": PORT,
            "certificate": str(folder / "server.crt"),
            "key": str(folder / "server.key"),
            "tls": self.params.tls,
            "calls": [
                ["pppd", "file", str(folder / f"options-{number}")]
                for number in range(len(accounts))
            ],
        }
        host.put(folder / "config.json", json.dumps(config).encode())
        program = resources.files("tunnelmark.tunnels.sstp").joinpath("server.py").read_bytes()
        host.put(folder / "sstp_server.py", program)
        daemon = host.spawn(
            pppd.in_own_etc(
                folder / "etc",
                ["python3", "-I", str(folder / "sstp_server.py"), str(folder / "config.json")],
            ),
            name=unique_name("sstp-server"),
            private_dirs=("/run",),
        )
        self._server = daemon

        def words() -> str:
            return sstp_log.last_words("", daemon.log_tail(LOG_LINES), None)

        def ready() -> bool | None:
            if (status := daemon.poll()) is not None:
                raise TunnelError(
                    f"the sstp server on {host.name} ended with status {status} at its start: "
                    f"{words()}"
                )
            return True if "listening on " in daemon.log_tail(LOG_LINES) else None

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
        endpoint = site.client_of(number)
        host, folder = endpoint.host, self._folder(endpoint.host, f"client-{number}")
        setup = self._setup(site, "client", number)
        pppd.put_etc(host, folder / "etc", [])
        pppd.put_options(host, folder / "options", setup, account)
        words = ["pppd", "file", str(folder / "options")]
        process = host.spawn(
            pppd.in_own_etc(folder / "etc", ["sh", "-c", _WITH_SSTPC_DIRECTORY, "sstpc", *words]),
            name=unique_name(f"sstp-client-{number}"),
            private_dirs=("/run",),
        )
        call = _Call("client", number, endpoint, PppEnd(host, setup), process)
        self._calls.append(call)
        return call

    def _identity(self, site: Site) -> Identity:
        """Return the server's certificate; each client gets that of its authority."""
        authority = RunAuthority(site.prefix, datetime.now(UTC))
        for end, _ in client_ends(site):
            end.host.put(self._folder(end.host, "ca.crt"), authority.certificate, mode=0o644)
        return authority.issue(site.server.advertised("ipv4"), "server")

    def _setup(self, site: Site, side: Side, number: int) -> PppSetup:
        endpoint = site.client_of(number) if side == "client" else site.server
        client, server = site.inner_ipv4(number)
        if self.params.server == "softether":
            server = softether.dhcp_address(site, number)
        name = f"{site.prefix}-{number}"
        sstpc = (
            f"sstpc --nolaunchpppd --log-stderr --log-level 3 --ipparam {name} "
            f"--ca-cert {self._folder(endpoint.host, 'ca.crt')} "
            f"{site.server.advertised('ipv4')}"
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
            mtu_bytes=self.params.mtu_bytes,
            log=self._folder(endpoint.host, side) / f"pppd-{number}.log",
            compression=self.params.compression,
            ipv6=self.params.inner == "ipv6",
            more=more,
        )

    def _negotiated(self, client: _Call, server: _Call) -> Negotiated:
        tls = sstp_log.read_server_log(server.process.log_tail(LOG_LINES), server.number)
        wanted = f"TLSv{self.params.tls}"
        if tls.version != wanted or not tls.bound:
            raise RefusedError(
                f"{server.place} runs with {tls.version or 'no TLS'} and "
                f"{'a' if tls.bound else 'no'} crypto binding, the study asks for {wanted} and one"
            )
        return self._report(
            client,
            cipher=tls.cipher,
            carried_by="PPP in the kernel, SSTP and TLS in user space (sstpc; our own server)",
            details={
                "encryption": f"{tls.version} {tls.cipher}",
                "server": "tunnelmark's own SSTP server in Python; it compares nonce and "
                "certificate of the crypto binding, not its compound MAC",
            },
        )

    def _report(
        self, client: Call, *, cipher: str | None, carried_by: str, details: Mapping[str, str]
    ) -> Negotiated:
        """Return what the client's pppd says was agreed, and what the driver knows beside."""
        report = client.ppp.report()
        self._framing = pppd.framing(report)
        done = client.endpoint.host.run(["sstpc", "--version"], check=False)
        version = sstp_log.version(done.text() + done.stderr.decode("utf-8", "replace"))
        agreed = negotiated(
            client.ppp,
            report,
            programs=[f"sstp-client {version}"],
            carried_by=carried_by,
        )
        return Negotiated(
            cipher=cipher,
            version=agreed.version,
            implementation="sstpc, pppd",
            mtu_bytes=agreed.mtu_bytes,
            data_path=agreed.data_path,
            details={**agreed.details, **details},
        )

    def _agreed_with_hub(self, client: Call, status: Status) -> Negotiated:
        return self._report(
            client,
            cipher=status.suite,
            carried_by="PPP in the client's kernel; SSTP, TLS and the server's PPP in user space "
            "(sstpc; vpnserver)",
            details={
                "encryption": f"TLSv{self.params.tls} {status.suite}",
                "server": f"SoftEther VPN {status.version}, which does not check the crypto "
                "binding; the hub's virtual DHCP is on, its NAT is off",
            },
        )
