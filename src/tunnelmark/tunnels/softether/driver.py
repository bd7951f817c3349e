"""SoftEther VPN's own protocol: Ethernet in blocks in TLS over TCP, all in user space."""

from collections.abc import Mapping, Sequence
from secrets import token_hex
from types import MappingProxyType
from typing import ClassVar, Final, Literal

from pydantic import Field

from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.host import Host, Need, Process
from tunnelmark.model.names import unique_name
from tunnelmark.model.overhead import Encapsulation, Layer, ip_layer, tcp_layer
from tunnelmark.model.tunnel import (
    CipherLibrary,
    DataPath,
    Endpoint,
    Negotiated,
    ServerPorts,
    Side,
    Site,
    TunnelUp,
    WireRule,
)
from tunnelmark.tunnels.addressing import (
    check_inner_mtu,
    inner_addresses,
    outer_version,
    reached_addresses,
    with_port,
)
from tunnelmark.tunnels.base import TunnelParams
from tunnelmark.tunnels.daemon import (
    Daemon,
    DaemonTunnel,
    configure,
    introduce,
    prove_path,
    rename,
    traffic_path,
)
from tunnelmark.tunnels.protocols import TCP
from tunnelmark.tunnels.softether.log import SUITE, Status, last_words, read_status
from tunnelmark.tunnels.softether.program import (
    CLIENT,
    COMMAND,
    SERVER,
    START_LIMIT_S,
    STOP_LIMIT_S,
    USER,
    WAIT,
    SoftEtherProgram,
    hub_commands,
    server_config,
)
from tunnelmark.tunnels.support import (
    inner_interface,
    wait_until,
)

PORT: Final = 5555
"""What SoftEther's own clients try first."""

_CLIENT_PORT: Final = 9931
_LOGIN_LIMIT_S: Final = 40.0
_SAID: Final = WAIT.format('grep -rqsF -e "$2" -e "$3" "$1"')
_DETAILS: Final = (
    "/MAXTCP:1 /INTERVAL:1 /TTL:0 /HALF:no /BRIDGE:no /MONITOR:no /NOTRACK:yes /NOQOS:yes "
    "/DISABLEUDP:yes"
)
_BLOCK_BYTES: Final = 8


class SoftEtherParams(TunnelParams):
    """What a study can set."""

    cipher: Literal["AES-256-GCM"] = Field(
        "AES-256-GCM",
        description="cipher of TLS 1.3, which SoftEther 5.01 leaves to OpenSSL: what is set there "
        "counts for earlier versions of TLS alone",
    )
    mtu_bytes: int = Field(
        1500,
        ge=576,
        le=1500,
        description="MTU of the inner interface; in a stream, packets longer than the link's are "
        "not fragmented but cut into segments",
    )


class SoftEtherTunnel(DaemonTunnel):
    """One server with ``count`` hubs, one client with a connection to each."""

    kind: ClassVar[str] = "softether"
    title: ClassVar[str] = "SoftEther VPN"
    library: ClassVar[CipherLibrary] = "OpenSSL"
    params_type: ClassVar[type[TunnelParams]] = SoftEtherParams
    programs: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"vpnserver": SERVER, "vpnclient": CLIENT, "vpncmd": COMMAND}
    )
    deviations: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "DisableUdpAcceleration": "at some point during the session it would start to carry "
            "packets outside the stream, and one figure would mix two kinds of packets",
            "NAT traversal, dynamic DNS, keep-alive to the Internet off": "nothing leaves the lab",
            "one listener instead of four": "others are not used",
            "TLS 1.3 only": "what is negotiated is known",
        }
    )
    params: SoftEtherParams

    def __init__(self, params: TunnelParams) -> None:
        """Take the parameters of the study."""
        super().__init__(params)
        self._started: list[Process] = []
        self._pairs: list[tuple[Daemon, Daemon]] = []
        # What an earlier one of this run wrote there would be read again.
        self._name = unique_name("softether")

    def need(self, host: Host) -> Need:  # noqa: ARG002 - the same on every host
        """Need server, client, the command that sets both up, and TUN."""
        return Need(
            programs={
                "vpnserver": "softether-vpnserver",
                "vpnclient": "softether-vpnclient",
                "vpncmd": "softether-vpncmd",
                "mount": "mount",
                "unshare": "util-linux",
                "ss": "iproute2",
                "ip": "iproute2",
                "ping": "iputils-ping",
            },
            kernel=("tun",),
        )

    def bring_up(self, site: Site) -> TunnelUp:
        """Start both, make hubs and accounts, connect, check what both ends say."""
        params, numbers = self.params, range(self.params.count)
        mtu_bytes = params.mtu_bytes
        check_inner_mtu(self.kind, params.inner, mtu_bytes)
        passwords = [token_hex(16) for _ in numbers]
        server = self._start(site, "server")
        client = self._start(site, "client")
        self._program(site, "server").await_port(server.process, f"{server.place} of tunnel 0")
        self._command(site.server.host, "server", self._hubs(site, passwords))
        self._program(site, "server").check_configuration()
        self._program(site, "client").await_port(client.process, f"{client.place} of tunnel 0")
        self._command(site.client.host, "client", self._accounts(site, passwords))
        paths, negotiated = [], []
        for number in numbers:
            ends = [self._tunnel_end(site, end, number) for end in (client, server)]
            self._await_login(ends[0], number)
            for end, letters in zip(ends, ("vpn", "tap"), strict=True):
                # SoftEther begins the name as it likes.
                rename(end, f"{letters}_{_nic(site, number)}", limit_s=START_LIMIT_S)
            here, there = inner_addresses(site, number, params)
            configure(ends[0], here=here, there=there, mtu_bytes=mtu_bytes)
            configure(ends[1], here=there, there=here, mtu_bytes=mtu_bytes)
            introduce(ends[0], ends[1], there)
            introduce(ends[1], ends[0], here)
            self._pairs.append((ends[0], ends[1]))
            negotiated.append(self._agreed(ends[0], ends[1], number))
            path = traffic_path(site, number, ends[0], ends[1], params=params, mtu_bytes=mtu_bytes)
            prove_path(site, path, ends[0], ends[1])
            paths.append(path)
        return TunnelUp(
            paths=tuple(paths),
            negotiated=tuple(negotiated),
            wire=WireRule(
                encrypted=True,
                describe=f"TCP to or from port {PORT}",
                ip_protocols=(TCP,),
                tcp_ports=(PORT,),
                ip_version=outer_version(params),
            ),
            processes=(
                (site.client.host.name, client.process),
                (site.server.host.name, server.process),
            ),
        )

    def check_agreed(self) -> None:
        """Ask both ends again: a session lost and resumed may be another."""
        for number, (client, server) in enumerate(self._pairs):
            self._hold(client, server, number)

    def down(self) -> None:
        """Stop the client, then the server; their interfaces go with them."""
        self._daemons.clear()
        while self._started:
            self._started.pop().stop(grace_s=STOP_LIMIT_S)

    def encapsulation(self, agreed: Negotiated) -> Encapsulation:
        """Return the layers of one packet that finds the stream idle.

        Of packets that come together, SoftEther puts as many as there are into one TLS record: the
        fragments of a long datagram are smaller on the wire than this says.
        """
        layers = (
            ip_layer(outer_version(self.params)),
            tcp_layer(),
            Layer("TLS record header", 5, "RFC 8446 section 5.1"),
            Layer("number and length of blocks", _BLOCK_BYTES, "SoftEther Cedar/Connection.c"),
            Layer("inner Ethernet header", 14, "IEEE 802.3 section 3.1.1, without FCS"),
            Layer("TLS content type and tag", 17, "RFC 8446 section 5.2"),
        )
        return Encapsulation(
            lambda _inner_bytes: layers,
            agreed.mtu_bytes,
            outer_ip=outer_version(self.params),
            stream=True,
        )

    def _start(self, site: Site, side: Side) -> Daemon:
        endpoint = site.client if side == "client" else site.server
        config = server_config(PORT, "1.3") if side == "server" else None
        process = self._program(site, side).start(config)
        self._started.append(process)
        return self._daemon(endpoint, side, "", process, f"softether {side}")

    def _program(self, site: Site, side: Side) -> SoftEtherProgram:
        return self._on((site.client if side == "client" else site.server).host, side)

    def _on(self, host: Host, side: Side) -> SoftEtherProgram:
        port = PORT if side == "server" else _CLIENT_PORT
        return SoftEtherProgram(host, host.work_dir / self._name / side, side, port)

    def _daemon(
        self, endpoint: Endpoint, side: Side, interface: str, process: Process, place: str
    ) -> Daemon:
        # Both write nothing but their log files.
        def words(log: str) -> str:
            return last_words(f"{log}\n{self._on(endpoint.host, side).logs()}")

        return Daemon(place, endpoint, interface, process, words)

    def _tunnel_end(self, site: Site, daemon: Daemon, number: int) -> Daemon:
        side: Side = "client" if daemon.endpoint is site.client else "server"
        place = f"softether {side} of tunnel {number}"
        interface = inner_interface(site, "u", number, side)
        end = self._daemon(daemon.endpoint, side, interface, daemon.process, place)
        self._daemons.append(end)
        return end

    def _hubs(self, site: Site, passwords: Sequence[str]) -> list[str]:
        lines = []
        for number, password in enumerate(passwords):
            lines += hub_commands(f"t{number}", device=_nic(site, number), password=password)
            # It would carry the packets outside the stream from some moment on.
            lines.append("ExtOptionSet DisableUdpAcceleration /VALUE:1")
        return lines

    def forwarded(self) -> tuple[ServerPorts, ...]:
        """Return the server's one port."""
        return (ServerPorts("tcp", PORT),)

    def _accounts(self, site: Site, passwords: Sequence[str]) -> list[str]:
        _, reached = reached_addresses(site, self.params)
        lines = []
        for number, password in enumerate(passwords):
            names = f"/HUB:t{number} /USERNAME:{USER} /NICNAME:{_nic(site, number)}"
            lines += [
                f"NicCreate {_nic(site, number)}",
                f"AccountCreate t{number} /SERVER:{with_port(reached, PORT)} {names}",
                f"AccountPasswordSet t{number} /PASSWORD:{password} /TYPE:standard",
                f"AccountDetailSet t{number} {_DETAILS}",
                f"AccountRetrySet t{number} /NUM:0 /INTERVAL:5",
                f"AccountConnect t{number}",
            ]
        return lines

    def _command(self, host: Host, side: Side, lines: Sequence[str]) -> str:
        """Give commands to a daemon; raise ``TunnelError`` with its words if one is refused."""
        return self._on(host, side).command(lines)

    def _await_login(self, client: Daemon, number: int) -> None:
        host = client.endpoint.host
        begin = f'VPN Connection Setting "t{number}": '

        def connected() -> bool | None:
            if (status := client.process.poll()) is not None:
                raise TunnelError(
                    f"{client.place} on {host.name} ended with status {status} before it could "
                    f"log in: {client.last_words()}"
                )
            known = [f"{begin}{words}" for words in ("Now connected", "The connection has been")]
            log = str(self._on(host, "client").folder)
            host.run(["sh", "-c", _SAID, "wait", log, *known], check=False)
            said = [line for line in self._on(host, "client").logs().splitlines() if begin in line]
            for line in said:
                if "Cause: " in line:
                    raise TunnelError(
                        f"{client.place} on {host.name} could not log in: "
                        f"{line.partition('Cause: ')[2][:300]}"
                    )
            return True if any("Now connected" in line for line in said) else None

        wait_until(
            connected,
            limit_s=_LOGIN_LIMIT_S,
            late=lambda: (
                f"{client.place} on {host.name} did not log in within {_LOGIN_LIMIT_S:g} s: "
                f"{client.last_words()}"
            ),
        )

    def _hold(self, client: Daemon, server: Daemon, number: int) -> Status:
        """Raise unless both ends say that they run as asked for; return the client's words."""
        own = read_status(
            self._command(client.endpoint.host, "client", [f"AccountStatusGet t{number}"])
        )
        other = read_status(
            self._command(
                server.endpoint.host, "server", [f"Hub t{number}", f"SessionGet {own.session}"]
            )
        )
        for daemon, status in ((client, own), (server, other)):
            _check(daemon, status)
        return own

    def _agreed(self, client: Daemon, server: Daemon, number: int) -> Negotiated:
        own = self._hold(client, server, number)
        return Negotiated(
            cipher=self.params.cipher,
            version=f"SoftEther VPN {own.version}",
            implementation="vpnclient, vpnserver",
            mtu_bytes=self.params.mtu_bytes,
            data_path=DataPath.USER_SPACE,
            details={
                "transport": "TLS 1.3 over one TCP connection",
                "suite": SUITE,
                "auth": "in the AEAD cipher",
                "compression": "none",
                "udp_acceleration": "off",
                "login": "password; the server's certificate is not checked, SoftEther's default",
            },
        )


def _check(daemon: Daemon, status: Status) -> None:
    for what, is_, must in (
        ("suite", status.suite, SUITE),
        ("compression", status.compressed, False),
        ("UDP acceleration", status.udp, False),
    ):
        if is_ != must:
            raise RefusedError(
                f"{daemon.place} on {daemon.endpoint.host.name} runs with {what} {is_}, the study "
                f"asks for {must}"
            )


def _nic(site: Site, number: int) -> str:
    return f"{site.prefix}u{number}"
