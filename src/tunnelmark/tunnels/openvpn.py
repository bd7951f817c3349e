"""OpenVPN 2.6, point to point: TLS or a static key, UDP or TCP, in user space or offloaded."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from secrets import token_hex
from types import MappingProxyType
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.host import Host, Need, Process
from tunnelmark.model.overhead import Encapsulation, Layer, ip_layer, tcp_layer, udp_layer
from tunnelmark.model.quantity import SizeBytes
from tunnelmark.model.tunnel import (
    DataPath,
    Endpoint,
    Negotiated,
    Site,
    TrafficPath,
    TunnelUp,
    WireRule,
)
from tunnelmark.tunnels import pki
from tunnelmark.tunnels.addressing import (
    check_inner_mtu,
    inner_addresses,
    outer_addresses,
    outer_version,
)
from tunnelmark.tunnels.base import Tunnel, TunnelParams
from tunnelmark.tunnels.openvpn_log import OpenVpnReport, last_words, read_log
from tunnelmark.tunnels.openvpn_wire import AEAD, data_channel
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

_UDP: Final = 17
_TCP: Final = 6
# A lost handshake packet is repeated after 2 s, 4 s, 8 s: this allows three losses in a row.
_HANDSHAKE_LIMIT_S: Final = 20
_BIND_LIMIT_S: Final = 15.0
_WAKE_LIMIT_S: Final = 2.0
_START_LIMIT_S: Final = 30.0
_START_LIMIT_PER_TUNNEL_S: Final = 2.0
_FIRST_PACKET_LIMIT_S: Final = 15.0
# At verb 4 a start writes about 350 lines; more than that is trouble, and trouble is at the end.
_LOG_LINES: Final = 1000
# The out-of-tree module of OpenVPN 2.6 (Debian: openvpn-dco-dkms); the "ovpn" that Linux has itself
# since 6.16 speaks to OpenVPN 2.7 only.
_OFFLOAD_MODULE: Final = "ovpn_dco_v2"
# Where a static key is in use: which half of it encrypts (openvpn(8), --secret file [direction]).
_DIRECTION: Final = {"server": "0", "client": "1"}


class OpenVpnParams(TunnelParams):
    """What a study can set."""

    cipher: Cipher = Field("AES-256-GCM", description="data channel cipher")
    auth: Literal["SHA1", "SHA256", "SHA512"] = Field(
        "SHA256", description="packet authentication of the CBC ciphers; AEAD ciphers ignore it"
    )
    compression: Literal["none", "lzo"] = Field(
        "none", description="lzo compresses every packet that gets smaller by it"
    )
    transport: Literal["udp", "tcp"] = Field(
        "udp", description="tcp carries packets in a stream: a lost segment holds up all behind it"
    )
    key_exchange: Literal["tls", "static"] = Field(
        "tls",
        description="static: one secret of the run on both ends, no handshake, no forward secrecy; "
        "CBC ciphers only",
    )
    control: Literal["plain", "tls-crypt"] = Field(
        "plain",
        description="tls-crypt encrypts the handshake with a key of the run; data packets are the "
        "same",
    )
    offload: Literal["off", "kernel"] = Field(
        "off", description="kernel: data packets pass through the kernel's data-channel offload"
    )
    mssfix: Literal["default", "off"] | Annotated[int, Field(ge=100, le=65535)] = Field(
        "default",
        description="largest packet on the link that a TCP connection inside should make, in "
        "bytes with encapsulation, by clamping its MSS; OpenVPN's own default is 1492 at an MTU "
        "of 1500, else the MTU itself without encapsulation; the kernel offload clamps nothing",
    )
    sndbuf: Annotated[SizeBytes, Field(ge=4096, le=1 << 28)] | None = Field(
        None, description="send buffer of OpenVPN's socket; without it the system's own"
    )
    rcvbuf: Annotated[SizeBytes, Field(ge=4096, le=1 << 28)] | None = Field(
        None, description="receive buffer of OpenVPN's socket; without it the system's own"
    )
    txqueuelen: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="packets that wait in the TUN interface; without it the system's own, 500",
    )
    mtu_bytes: int = Field(
        1500,
        ge=100,
        le=65535,
        description="MTU of the inner interface; OpenVPN's own default is 1500, so that packets "
        "of full size are fragmented outside",
    )

    @model_validator(mode="after")
    def _possible(self) -> Self:
        """Refuse what OpenVPN itself would refuse, before anything is made."""
        if self.key_exchange == "static":
            if self.cipher in AEAD:
                raise ValueError(
                    f"cipher {self.cipher} needs key_exchange tls; with a static key choose a CBC "
                    "cipher"
                )
            if self.control != "plain" or self.offload != "off":
                raise ValueError("key_exchange static has neither tls-crypt nor the kernel offload")
        if self.offload == "kernel" and (self.cipher not in AEAD or self.compression != "none"):
            raise ValueError(
                "offload kernel needs cipher AES-256-GCM or CHACHA20-POLY1305 and no compression"
            )
        return self


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
    deviations: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "--reneg-sec 0, --reneg-bytes 0, --reneg-pkts 0": "a new handshake would fall into "
            "some trials and not into others",
            "--hand-window 20": "a start that fails is told after 20 s, not after 60",
            "--remap-usr1 SIGTERM, --tls-exit": "a failure ends the process with its reason "
            "instead of a quiet restart",
            "--socket-flags TCP_NODELAY (transport tcp)": "Nagle's algorithm holds a packet back "
            "until the one before it is acknowledged, a round trip later",
            "--data-ciphers with one cipher": "what the study names is what runs, or nothing",
            "--disable-dco (offload off)": "where packets are handled is the study's choice",
        }
    )
    params: OpenVpnParams

    def __init__(self, params: TunnelParams) -> None:
        """Take the parameters of the study."""
        super().__init__(params)
        self._ends: list[_End] = []

    def need(self, host: Host) -> Need:  # noqa: ARG002 - the same on every host
        """Need OpenVPN and a TUN device, or the kernel's data-channel offload where asked for."""
        return Need(
            programs={"openvpn": "openvpn", "ip": "iproute2", "ping": "iputils-ping"},
            kernel=(_OFFLOAD_MODULE,) if self.params.offload == "kernel" else ("tun",),
        )

    def up(self, site: Site) -> TunnelUp:
        """Start all servers, then all clients; check what both ends of each say was agreed."""
        count = self.params.count
        limit_s = _START_LIMIT_S + _START_LIMIT_PER_TUNNEL_S * count
        check_inner_mtu(self.kind, self.params.inner, self.params.mtu_bytes)
        self._put_identities(site)
        # A client whose first packet finds no server waits for seconds: servers first, and bound.
        servers = [self._start(site, "server", number) for number in range(count)]
        for end in servers:
            self._wait_for([end], "bind its port", lambda r: r.bound, limit_s=_BIND_LIMIT_S)
        clients = [self._start(site, "client", number) for number in range(count)]
        paths, negotiated = [], []
        for client, server in zip(clients, servers, strict=True):
            path = self._path(site, client, server)
            if self.params.key_exchange == "static":
                self._wake(client, path)
            self._wait_for(
                [client, server],
                "agree on keys",
                lambda r: r.completed and bool(r.cipher),
                limit_s=limit_s,
            )
            agreed = self._agreed(client, server)
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
        tcp = self.params.transport == "tcp"
        return TunnelUp(
            paths=tuple(paths),
            negotiated=tuple(negotiated),
            wire=WireRule(
                encrypted=True,
                describe=f"{'TCP' if tcp else 'UDP'} to or from port {shown}",
                ip_protocols=(_TCP if tcp else _UDP,),
                udp_ports=() if tcp else ports,
                tcp_ports=ports if tcp else (),
                ip_version=outer_version(self.params),
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

    def check_agreed(self) -> None:
        """Read the logs again: keys are renegotiated, and the last word counts."""
        for end in self._ends:
            report = end.report()
            # What it said at its start may be too far back by now.
            told = {what for what in ("cipher", "auth", "compression") if getattr(report, what)}
            self._hold(end, report, told)

    def down(self) -> None:
        """Stop clients, then servers; their interfaces go with them."""
        while self._ends:
            self._ends.pop().process.stop()

    def encapsulation(self, agreed: Negotiated) -> Encapsulation:
        """Return the data channel's layers; with lzo those of a packet that does not compress."""
        params, tcp = self.params, self.params.transport == "tcp"

        def layers(inner_bytes: int) -> tuple[Layer, ...]:
            return (
                ip_layer(outer_version(params)),
                tcp_layer() if tcp else udp_layer(),
                *data_channel(
                    inner_bytes,
                    cipher=params.cipher,
                    auth=params.auth,
                    lzo=params.compression == "lzo",
                    static_key=params.key_exchange == "static",
                    tcp=tcp,
                ),
            )

        return Encapsulation(layers, agreed.mtu_bytes, outer_ip=outer_version(params), stream=tcp)

    def _arguments(self, side: Side) -> list[str]:
        """Return the options that both ends must agree on."""
        cipher = self.params.cipher
        options = [
            *("--cipher", cipher, "--auth", self.params.auth),
            *("--tun-mtu", str(self.params.mtu_bytes), *self._tuning()),
            *(("--disable-dco",) if self.params.offload == "off" else ()),
        ]
        if self.params.key_exchange == "tls":
            options += ["--data-ciphers", cipher, "--data-ciphers-fallback", cipher]
            options += ["--tls-server", "--dh", "none"] if side == "server" else ["--tls-client"]
            options += ["--remote-cert-tls", "client" if side == "server" else "server"]
        if cipher == "BF-CBC":
            options += ["--providers", "legacy", "default"]  # OpenSSL 3 has Blowfish only there
        if self.params.compression == "lzo":
            # Without "allow-compression yes" OpenVPN 2.6 only adds the header and never compresses.
            options += ["--comp-lzo", "yes", "--allow-compression", "yes"]
        return options

    def _tuning(self) -> list[str]:
        """Return what the study sets in place of the program's own defaults."""
        params = self.params
        mssfix = {"default": None, "off": 0}.get(str(params.mssfix), params.mssfix)
        set_ = {
            "--mssfix": mssfix,
            "--sndbuf": params.sndbuf,
            "--rcvbuf": params.rcvbuf,
            "--txqueuelen": params.txqueuelen,
        }
        return [
            word
            for option, value in set_.items()
            if value is not None
            for word in (option, str(value))
        ]

    def _put_identities(self, site: Site) -> None:
        secret = _secret()
        for host in (site.server.host, site.client.host):
            host.put(_folder(host) / "secret.key", secret)
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
        addresses = inner_addresses(site, number, self.params)
        port = str(FIRST_PORT + number)
        here, there = addresses if side == "client" else addresses[::-1]
        _, outer = outer_addresses(site, self.params)
        socket = (
            ["--nobind", "--remote", outer, port]
            if side == "client"
            else ["--local", outer, "--lport", port]
        )
        inner = (
            ["--ifconfig", here, there]
            if self.params.inner == "ipv4"
            else ["--ifconfig-ipv6", f"{here}/64", there]
        )
        process = endpoint.host.spawn(
            [
                *("openvpn", "--dev-type", "tun", "--dev", interface),
                *(*self._transport(side), *socket, *inner),
                *("--persist-tun", "--persist-key", "--script-security", "1"),
                # A failure ends the process with its reason instead of a quiet restart.
                *("--remap-usr1", "SIGTERM"),
                # Only from 4 on does it say what it clamps, and how control packets are encrypted.
                *("--verb", "4"),
                *self._keys(side, _folder(endpoint.host)),
                *self._arguments(side),
            ],
            name=daemon_name(f"openvpn-{side}-{number}"),
        )
        end = _End(side, number, endpoint, interface, process)
        self._ends.append(end)
        return end

    def _transport(self, side: Side) -> list[str]:
        version = outer_version(self.params)
        if self.params.transport == "udp":
            return ["--proto", f"udp{version}"]
        # Nagle's algorithm would hold a packet back until the one before it is acknowledged, a
        # round trip later.
        return ["--proto", f"tcp{version}-{side}", "--socket-flags", "TCP_NODELAY"]

    def _keys(self, side: Side, folder: PurePosixPath) -> list[str]:
        secret = str(folder / "secret.key")
        if self.params.key_exchange == "static":
            return ["--secret", secret, _DIRECTION[side]]
        return [
            *("--ca", str(folder / "ca.crt"), "--cert", str(folder / f"{side}.crt")),
            *("--key", str(folder / f"{side}.key")),
            *(("--tls-crypt", secret) if self.params.control == "tls-crypt" else ()),
            # No new keys in mid-run: a handshake would fall into some trials and not others.
            *("--reneg-sec", "0", "--reneg-bytes", "0", "--reneg-pkts", "0"),
            *("--hand-window", str(_HANDSHAKE_LIMIT_S), "--tls-exit"),
        ]

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
                # Nothing else tells: what the other end sends is dropped without an answer.
                secret = self.params.key_exchange == "static" or self.params.control == "tls-crypt"
                if secret and (refused := read_log(log).refused):
                    raise RefusedError(
                        f"{end.place} on {end.endpoint.host.name} has another secret than its "
                        f"peer: {refused}"
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

    def _wake(self, client: _End, path: TrafficPath) -> None:
        """Send something through an end that has no handshake.

        Left alone, both ends wait for a packet of the other, and the first is a check of options
        10 s after the start. Whether they agree, their logs say.
        """
        self._wait_for([client], "open its socket", lambda r: r.bound, limit_s=_BIND_LIMIT_S)
        first_packet(client.endpoint.host, path, limit_s=_WAKE_LIMIT_S)

    def _agreed(self, client: _End, server: _End) -> Negotiated:
        reports = {"client": client.report(), "server": server.report()}
        for end in (client, server):
            self._hold(end, reports[end.side], None)
            state = interfaces(end.endpoint.host).get(end.interface)
            if state is None or state.mtu_bytes != self.params.mtu_bytes:
                raise TunnelError(
                    f"{end.place}: interface {end.interface} has MTU "
                    f"{state.mtu_bytes if state else None}, the study asks for "
                    f"{self.params.mtu_bytes}"
                )
            quieten(end.endpoint.host, end.interface)
        of_client, of_server = reports["client"], reports["server"]
        versions = dict.fromkeys(r.version for r in (of_client, of_server) if r.version)
        return Negotiated(
            cipher=of_client.cipher,
            version=" / ".join(versions),
            implementation="openvpn",
            mtu_bytes=self.params.mtu_bytes,
            # One end that offloads is enough: its work is no process's.
            data_path=DataPath.KERNEL
            if of_client.kernel_offload or of_server.kernel_offload
            else DataPath.USER_SPACE,
            details={
                "data_channel_offload": "on" if of_client.kernel_offload else "off",
                "transport": self.params.transport
                + (", Nagle's algorithm off" if self.params.transport == "tcp" else ""),
                "key_exchange": self.params.key_exchange,
                "control_encryption": of_client.control_encryption or "none apart from TLS",
                "auth": of_client.auth or "in the AEAD cipher",
                "compression": of_client.compression or "unknown",
                "control_channel": of_client.control_channel or "unknown",
                "libraries": of_client.libraries or "unknown",
                "socket_buffers": of_client.socket_buffers or "unknown",
                "mssfix": "none, in the kernel"
                if of_client.kernel_offload
                else of_client.mssfix or "unknown",
                **{f"warning_{n}": text for n, text in enumerate(of_client.warnings, 1)},
            },
        )

    def _hold(self, end: _End, report: OpenVpnReport, about: Collection[str] | None) -> None:
        for what, is_, wanted in self._wanted(report):
            if (about is None or what in about) and is_ != wanted:
                raise RefusedError(
                    f"{end.place} on {end.endpoint.host.name} runs with {what} {is_!r}, "
                    f"the study asks for {wanted!r}"
                )

    def _wanted(self, report: OpenVpnReport) -> list[tuple[str, object, object]]:
        """Return (what, as negotiated, as asked for) of everything the study sets."""
        params = self.params
        wanted: list[tuple[str, object, object]] = [
            ("cipher", report.cipher, params.cipher),
            ("compression", report.compression, params.compression),
            ("MTU", report.mtu_bytes, params.mtu_bytes),
            ("kernel offload", report.kernel_offload, params.offload == "kernel"),
            ("tls-crypt", report.control_encryption is not None, params.control == "tls-crypt"),
            ("TLS", report.control_channel is not None, params.key_exchange == "tls"),
            ("transport", report.transport, params.transport),
        ]
        if params.cipher not in AEAD:
            wanted.append(("auth", report.auth, params.auth))
        return wanted

    def _path(self, site: Site, client: _End, server: _End) -> TrafficPath:
        client_address, server_address = inner_addresses(site, client.number, self.params)
        return TrafficPath(
            name=str(client.number),
            client_address=client_address,
            server_address=server_address,
            client_interface=client.interface,
            server_interface=server.interface,
            mtu_bytes=self.params.mtu_bytes,
        )


def _secret() -> bytes:
    """Return a new 2048-bit static key file, as ``openvpn --genkey secret`` writes it."""
    lines = [token_hex(16) for _ in range(16)]
    begin, end = (f"-----{word} OpenVPN Static key V1-----" for word in ("BEGIN", "END"))
    return "\n".join([begin, *lines, end, ""]).encode()


def _folder(host: Host) -> PurePosixPath:
    return host.work_dir / "openvpn"
