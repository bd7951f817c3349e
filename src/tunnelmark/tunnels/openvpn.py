"""OpenVPN 2.6 in user space: TLS with certificates of the run, UDP, point to point."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import ClassVar, Final, Literal

from pydantic import Field

from tunnelmark.model.errors import TunnelError
from tunnelmark.model.host import Host, Need, Process
from tunnelmark.model.overhead import Encapsulation, Layer, ip_layer, udp_layer
from tunnelmark.model.tunnel import (
    Endpoint,
    Negotiated,
    Site,
    TrafficPath,
    TunnelUp,
    WireRule,
)
from tunnelmark.tunnels import pki
from tunnelmark.tunnels.base import Tunnel, TunnelParams
from tunnelmark.tunnels.openvpn_log import OpenVpnReport, last_words, read_log
from tunnelmark.tunnels.support import (
    Watched,
    daemon_name,
    first_packet,
    first_problem,
    inner_interface,
    interfaces,
    quieten,
    wait_until,
)

Cipher = Literal["BF-CBC", "AES-128-CBC", "AES-256-CBC", "AES-256-GCM", "CHACHA20-POLY1305"]
Side = Literal["client", "server"]

FIRST_PORT: Final = 1194
"""Tunnel i listens on this plus i (IANA: openvpn)."""

_AEAD: Final = frozenset({"AES-256-GCM", "CHACHA20-POLY1305"})
_BLOCK_BYTES: Final = {"BF-CBC": 8, "AES-128-CBC": 16, "AES-256-CBC": 16}
_HMAC_BYTES: Final = {"SHA1": 20, "SHA256": 32, "SHA512": 64}
_UDP: Final = 17
# Of both sockets, so that a burst waits in the kernel and is not lost there.
_SOCKET_BUFFER_BYTES: Final = 4 << 20
_TX_QUEUE_PACKETS: Final = 1000
# A lost handshake packet is repeated after 2 s, 4 s, 8 s: this allows three losses in a row.
_HANDSHAKE_LIMIT_S: Final = 20
_BIND_LIMIT_S: Final = 15.0
_START_LIMIT_S: Final = 30.0
_START_LIMIT_PER_TUNNEL_S: Final = 2.0
_FIRST_PACKET_LIMIT_S: Final = 15.0
# At verb 3 a start writes about 45 lines; more than that is trouble, and trouble is at the end.
_LOG_LINES: Final = 400


class OpenVpnParams(TunnelParams):
    """What a study can set."""

    cipher: Cipher = Field("AES-256-GCM", description="data channel cipher")
    auth: Literal["SHA1", "SHA256", "SHA512"] = Field(
        "SHA256", description="packet authentication of the CBC ciphers; AEAD ciphers ignore it"
    )
    compression: Literal["none", "lzo"] = Field(
        "none", description="lzo compresses every packet that gets smaller by it"
    )
    mtu_bytes: int = Field(
        1500,
        ge=100,
        le=65535,
        description="MTU of the inner interface; OpenVPN's own default is 1500, so that packets "
        "of full size are fragmented outside",
    )


@dataclass(frozen=True)
class _End:
    """One end of one tunnel while it comes up."""

    side: Side
    number: int
    endpoint: Endpoint
    interface: str
    process: Process

    @property
    def place(self) -> str:
        return f"openvpn {self.side} of tunnel {self.number}"

    def log(self) -> str:
        return self.process.log_tail(_LOG_LINES)

    def report(self) -> OpenVpnReport:
        return read_log(self.log())


class OpenVpnTunnel(Tunnel):
    """``count`` pairs of OpenVPN processes, each with a port and an inner network of its own."""

    kind: ClassVar[str] = "openvpn"
    title: ClassVar[str] = "OpenVPN"
    params_type: ClassVar[type[TunnelParams]] = OpenVpnParams

    def __init__(self, params: TunnelParams) -> None:
        """Take the parameters of the study."""
        super().__init__(params)
        if not isinstance(params, OpenVpnParams):
            raise TypeError(f"{type(params).__name__} are not the parameters of openvpn")
        self._params: OpenVpnParams = params
        self._ends: list[_End] = []

    def need(self, host: Host) -> Need:  # noqa: ARG002 - the same on every host
        """Need OpenVPN and a TUN device; the kernel's data-channel offload is not used."""
        return Need(
            programs={"openvpn": "openvpn", "ip": "iproute2", "ping": "iputils-ping"},
            kernel=("tun",),
        )

    def up(self, site: Site) -> TunnelUp:
        """Start all servers, then all clients; check what both ends of each say was agreed."""
        count = self._params.count
        limit_s = _START_LIMIT_S + _START_LIMIT_PER_TUNNEL_S * count
        self._put_identities(site)
        # A client whose first packet finds no server waits for seconds: servers first, and bound.
        servers = [self._start(site, "server", number) for number in range(count)]
        for end in servers:
            self._wait_for([end], "bind its port", lambda r: r.bound, limit_s=_BIND_LIMIT_S)
        clients = [self._start(site, "client", number) for number in range(count)]
        paths, negotiated = [], []
        for client, server in zip(clients, servers, strict=True):
            self._wait_for(
                [client, server],
                "agree on keys",
                lambda r: r.completed and bool(r.cipher),
                limit_s=limit_s,
            )
            agreed = self._agreed(client, server)
            path = self._path(site, client, server, agreed)
            if words := first_packet(site.client.host, path, limit_s=_FIRST_PACKET_LIMIT_S):
                raise TunnelError(
                    f"no echo through openvpn tunnel {client.number} within "
                    f"{_FIRST_PACKET_LIMIT_S:g} s: {words}; the client's last words: "
                    f"{last_words(client.log())}"
                )
            paths.append(path)
            negotiated.append(agreed)
        ports = tuple(FIRST_PORT + number for number in range(count))
        shown = str(ports[0]) if count == 1 else f"{ports[0]} to {ports[-1]}"
        return TunnelUp(
            paths=tuple(paths),
            negotiated=tuple(negotiated),
            wire=WireRule(
                encrypted=True,
                describe=f"UDP to or from port {shown}",
                ip_protocols=(_UDP,),
                udp_ports=ports,
            ),
            processes=tuple((end.endpoint.host.name, end.process) for end in self._ends),
        )

    def problem(self) -> str | None:
        """Return which daemon died or which interface vanished."""
        return first_problem(
            [
                Watched(
                    end.endpoint.host,
                    end.interface,
                    end.process,
                    lambda process: last_words(process.log_tail(_LOG_LINES)),
                )
                for end in self._ends
            ]
        )

    def down(self) -> None:
        """Stop clients, then servers; their interfaces go with them."""
        while self._ends:
            self._ends.pop().process.stop()

    def encapsulation(self, agreed: Negotiated) -> Encapsulation:
        """Return the data channel's layers; with lzo those of a packet that does not compress."""
        return Encapsulation(
            lambda inner_bytes: (ip_layer(4), udp_layer(), *self._data_channel(inner_bytes)),
            agreed.mtu_bytes,
        )

    def _data_channel(self, inner_bytes: int) -> tuple[Layer, ...]:
        params = self._params
        # src/openvpn/lzo.h: a packet that did not get smaller has one byte that says so.
        lzo = (Layer("compression header", 1, "openvpn lzo.h"),) * (params.compression == "lzo")
        opcode = Layer("opcode and peer id", 4, "openvpn-rfc, P_DATA_V2")
        packet_id = Layer("packet id", 4, "openvpn-rfc, data channel packet format")
        if params.cipher in _AEAD:
            tag = Layer("authentication tag", 16, "RFC 5116 section 5.1, RFC 8439 section 2.8")
            return (opcode, packet_id, tag, *lzo)
        block_bytes = _BLOCK_BYTES[params.cipher]
        encrypted = packet_id.bytes + len(lzo) + inner_bytes
        return (
            opcode,
            Layer("HMAC", _HMAC_BYTES[params.auth], f"RFC 2104 with {params.auth}, not truncated"),
            Layer("IV", block_bytes, "NIST SP 800-38A section 6.2"),
            packet_id,
            *lzo,
            # A full block when nothing is missing, so that the padding can be told apart.
            Layer("padding", block_bytes - encrypted % block_bytes, "RFC 5652 section 6.3"),
        )

    def _arguments(self, side: Side) -> list[str]:
        """Return the options that both ends must agree on."""
        cipher = self._params.cipher
        options = [
            *("--cipher", cipher, "--data-ciphers", cipher, "--data-ciphers-fallback", cipher),
            *("--auth", self._params.auth, "--tun-mtu", str(self._params.mtu_bytes)),
            *(("--tls-server", "--dh", "none") if side == "server" else ("--tls-client",)),
            *("--remote-cert-tls", "client" if side == "server" else "server"),
        ]
        if cipher == "BF-CBC":
            options += ["--providers", "legacy", "default"]  # OpenSSL 3 has Blowfish only there
        if self._params.compression == "lzo":
            # Without "allow-compression yes" OpenVPN 2.6 only adds the header and never compresses.
            options += ["--comp-lzo", "yes", "--allow-compression", "yes"]
        return options

    def _put_identities(self, site: Site) -> None:
        authority = pki.RunAuthority(site.prefix, datetime.now(UTC))
        sides: tuple[tuple[Side, Host], ...] = (
            ("server", site.server.host),
            ("client", site.client.host),
        )
        for side, host in sides:
            identity = authority.issue(f"{site.prefix} {side}", side)
            folder = _folder(host)
            host.put(folder / "ca.crt", authority.certificate)
            host.put(folder / f"{side}.crt", identity.certificate)
            host.put(folder / f"{side}.key", identity.key)

    def _start(self, site: Site, side: Side, number: int) -> _End:
        endpoint = site.client if side == "client" else site.server
        interface = inner_interface(site, "o", number, side)
        client_ipv4, server_ipv4 = site.inner_ipv4(number)
        port = str(FIRST_PORT + number)
        here, there = (client_ipv4, server_ipv4) if side == "client" else (server_ipv4, client_ipv4)
        socket = (
            ["--nobind", "--remote", site.server.ipv4, port]
            if side == "client"
            else ["--local", endpoint.ipv4, "--lport", port]
        )
        folder = _folder(endpoint.host)
        process = endpoint.host.spawn(
            [
                *("openvpn", "--dev-type", "tun", "--dev", interface, "--proto", "udp4"),
                *(*socket, "--ifconfig", here, there),
                *("--ca", str(folder / "ca.crt"), "--cert", str(folder / f"{side}.crt")),
                *("--key", str(folder / f"{side}.key")),
                *("--disable-dco", "--persist-tun", "--persist-key", "--script-security", "1"),
                *("--sndbuf", str(_SOCKET_BUFFER_BYTES), "--rcvbuf", str(_SOCKET_BUFFER_BYTES)),
                *("--txqueuelen", str(_TX_QUEUE_PACKETS)),
                # No new keys in mid-run: a handshake would fall into some trials and not others.
                *("--reneg-sec", "0", "--reneg-bytes", "0", "--reneg-pkts", "0"),
                # A failure ends the process with its reason instead of a quiet restart.
                *("--hand-window", str(_HANDSHAKE_LIMIT_S), "--tls-exit"),
                *("--remap-usr1", "SIGTERM", "--verb", "3"),
                *self._arguments(side),
            ],
            name=daemon_name(f"openvpn-{side}-{number}"),
        )
        end = _End(side, number, endpoint, interface, process)
        self._ends.append(end)
        return end

    def _wait_for(
        self,
        ends: Sequence[_End],
        what: str,
        reached: Callable[[OpenVpnReport], bool],
        *,
        limit_s: float,
    ) -> None:
        """Wait until all ends say so; the first of them that ends tells why it could not."""

        def ready() -> bool | None:
            # The status first: a process that ended after writing its log has written all of it.
            states = [(end, end.process.poll(), end.log()) for end in ends]
            for end, status, log in states:
                if status is not None:
                    raise TunnelError(
                        f"{end.place} on {end.endpoint.host.name} ended with status {status} "
                        f"before it could {what}: {last_words(log)}"
                    )
            return True if all(reached(read_log(log)) for _, _, log in states) else None

        def late() -> str:
            waiting = [end for end in ends if not reached(end.report())] or list(ends)
            end = waiting[0]
            return (
                f"{end.place} on {end.endpoint.host.name} did not {what} within {limit_s:g} s: "
                f"{last_words(end.log())}"
            )

        wait_until(ready, limit_s=limit_s, late=late)

    def _agreed(self, client: _End, server: _End) -> Negotiated:
        reports = {"client": client.report(), "server": server.report()}
        for end in (client, server):
            report = reports[end.side]
            for what, is_, wanted in self._wanted(report):
                if is_ != wanted:
                    raise TunnelError(
                        f"{end.place} on {end.endpoint.host.name} runs with {what} {is_!r}, "
                        f"the study asks for {wanted!r}"
                    )
            state = interfaces(end.endpoint.host).get(end.interface)
            if state is None or state.mtu_bytes != self._params.mtu_bytes:
                raise TunnelError(
                    f"{end.place}: interface {end.interface} has MTU "
                    f"{state.mtu_bytes if state else None}, the study asks for "
                    f"{self._params.mtu_bytes}"
                )
            quieten(end.endpoint.host, end.interface)
        of_client, of_server = reports["client"], reports["server"]
        versions = dict.fromkeys(r.version for r in (of_client, of_server) if r.version)
        return Negotiated(
            cipher=of_client.cipher,
            version=" / ".join(versions),
            implementation="openvpn",
            mtu_bytes=self._params.mtu_bytes,
            details={
                "data_path": "user space (data-channel offload disabled)",
                "auth": of_client.auth or "in the AEAD cipher",
                "compression": of_client.compression or "unknown",
                "control_channel": of_client.control_channel or "unknown",
                "libraries": of_client.libraries or "unknown",
                "socket_buffers": of_client.socket_buffers or "unknown",
                **{f"warning_{n}": text for n, text in enumerate(of_client.warnings, 1)},
            },
        )

    def _wanted(self, report: OpenVpnReport) -> list[tuple[str, object, object]]:
        """Return (what, as negotiated, as asked for) of everything the study sets."""
        params = self._params
        wanted: list[tuple[str, object, object]] = [
            ("cipher", report.cipher, params.cipher),
            ("compression", report.compression, params.compression),
            ("MTU", report.mtu_bytes, params.mtu_bytes),
            ("kernel offload", report.kernel_offload, False),
        ]
        if params.cipher not in _AEAD:
            wanted.append(("auth", report.auth, params.auth))
        return wanted

    def _path(self, site: Site, client: _End, server: _End, agreed: Negotiated) -> TrafficPath:
        client_ipv4, server_ipv4 = site.inner_ipv4(client.number)
        return TrafficPath(
            name=str(client.number),
            client_address=client_ipv4,
            server_address=server_ipv4,
            client_interface=client.interface,
            server_interface=server.interface,
            mtu_bytes=agreed.mtu_bytes,
        )


def _folder(host: Host) -> PurePosixPath:
    return host.work_dir / "openvpn"
