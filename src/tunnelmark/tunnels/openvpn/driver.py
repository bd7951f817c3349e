"""OpenVPN, point to point: TLS or a static key, UDP or TCP, in user space or offloaded."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import ClassVar, Final

from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.host import Host, Need
from tunnelmark.model.names import unique_name
from tunnelmark.model.overhead import Encapsulation, Layer, ip_layer, tcp_layer, udp_layer
from tunnelmark.model.tunnel import (
    CipherLibrary,
    DataPath,
    Milestone,
    Negotiated,
    ServerPorts,
    Side,
    Site,
    TrafficPath,
    TunnelUp,
    WireRule,
)
from tunnelmark.tunnels.addressing import (
    check_inner_mtu,
    inner_addresses,
    outer_addresses,
    outer_version,
    reached_addresses,
)
from tunnelmark.tunnels.base import TunnelParams
from tunnelmark.tunnels.daemon import Daemon, DaemonTunnel, traffic_path, wait_for
from tunnelmark.tunnels.openvpn.files import clients_dir, folder, put_files
from tunnelmark.tunnels.openvpn.gateway import LOG_LINES as GATEWAY_LOG_LINES
from tunnelmark.tunnels.openvpn.gateway import of_clients, server_words
from tunnelmark.tunnels.openvpn.groups import no_group
from tunnelmark.tunnels.openvpn.log import OpenVpnReport, last_words, read_log
from tunnelmark.tunnels.openvpn.offload import no_offload, offload_module
from tunnelmark.tunnels.openvpn.params import S_NS, OpenVpnParams
from tunnelmark.tunnels.openvpn.wire import AEAD, data_channel
from tunnelmark.tunnels.protocols import TCP, UDP
from tunnelmark.tunnels.support import (
    first_packet,
    first_through,
    inner_interface,
    interfaces,
    quieten,
    wait_until,
)

FIRST_PORT: Final = 1194
"""Tunnel i listens on this plus i (IANA: openvpn)."""

# As OpenVPN's sample configurations have it: --keepalive 10 60.
_SILENCES: Final = 6
# A lost handshake packet is repeated after 2 s, 4 s, 8 s: this allows three losses in a row.
_HANDSHAKE_LIMIT_S: Final = 20
_BIND_LIMIT_S: Final = 15.0
_WAKE_LIMIT_S: Final = 2.0
_START_LIMIT_S: Final = 30.0
_START_LIMIT_PER_TUNNEL_S: Final = 2.0
_FIRST_PACKET_LIMIT_S: Final = 15.0
_SHOWN_LIMIT_S: Final = 5.0
# Where a static key is in use: which half of it encrypts (openvpn(8), --secret file [direction]).
_DIRECTION: Final = {"server": "0", "client": "1"}


@dataclass(frozen=True)
class _End(Daemon):
    """One end of one tunnel."""

    side: Side
    number: int

    def report(self) -> OpenVpnReport:
        return read_log(self.log())


class OpenVpnTunnel(DaemonTunnel):
    """``count`` pairs of OpenVPN processes, each with a port and an inner network of its own.

    With ``clients`` one process that serves them all (``--server``), in one network.
    """

    kind: ClassVar[str] = "openvpn"
    title: ClassVar[str] = "OpenVPN"
    library: ClassVar[CipherLibrary] = "OpenSSL"
    params_type: ClassVar[type[TunnelParams]] = OpenVpnParams
    programs: ClassVar[Mapping[str, str]] = MappingProxyType({"openvpn": "openvpn"})
    deviations: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "--reneg-sec 0, --reneg-bytes 0, --reneg-pkts 0": "a new handshake would affect "
            "some trials and not others",
            "--hand-window 20": "a failed start is reported after 20 s, not after 60",
            "--remap-usr1 SIGTERM, --tls-exit": "a failure ends the process with its reason "
            "instead of a quiet restart",
            "--socket-flags TCP_NODELAY (transport tcp)": "Nagle's algorithm holds a packet back "
            "until the one before it is acknowledged, a round trip later",
            "--data-ciphers with one cipher": "exactly the cipher that the study names, or no "
            "tunnel",
            "--disable-dco (offload off)": "where packets are handled is the study's choice",
        }
    )
    gateway: ClassVar[bool] = True
    joins: ClassVar[bool] = True
    tells_set_up: ClassVar[bool] = True
    params: OpenVpnParams
    _epoch: bool = False
    """Whether both ends number packets by epochs of keys, as they say when they are up."""

    def need(self, host: Host) -> Need:
        """Need OpenVPN and a TUN device, or the kernel's data-channel offload where asked for."""
        return Need(
            programs={"openvpn": "openvpn", "ip": "iproute2", "ping": "iputils-ping"},
            kernel=(offload_module(host),) if self.params.offload == "kernel" else ("tun",),
        )

    def unavailable(self, host: Host) -> str | None:
        """Return also what its OpenVPN lacks: the module's interface, the key exchange's group."""
        if reason := super().unavailable(host):
            return reason
        own = self._tailored(host)
        if self.params.offload == "kernel" and (reason := no_offload(own)):
            return reason
        if self.params.tls_groups == "default":
            return None
        return no_group(own, self.params.tls_groups, datetime.now(UTC))

    def no_set_up(self) -> str | None:
        """Return also that there is no handshake, or that more than it is sent."""
        if self.params.key_exchange == "static":
            return "key_exchange static has no handshake: choose tls"
        if self.params.keepalive is not None:
            return "keepalive sends packets of its own during the handshake: leave it out"
        return super().no_set_up()

    def bring_up(self, site: Site) -> TunnelUp:
        """Start all servers, then all clients; check what both ends of each say was agreed."""
        count, gateway = self.params.paths, self.params.clients is not None
        limit_s = _START_LIMIT_S + _START_LIMIT_PER_TUNNEL_S * count
        check_inner_mtu(self.kind, self.params.inner, self.params.mtu_bytes)
        self._put_identities(site)
        # A client whose first packet finds no server waits for seconds: servers first, and bound.
        servers = [self._start(site, "server", number) for number in range(1 if gateway else count)]
        for end in servers:
            self._wait_for([end], "bind its port", lambda r: r.bound, limit_s=_BIND_LIMIT_S)
        site.reached(Milestone.DIALING)
        clients = [self._start(site, "client", number) for number in range(count)]
        paths, negotiated = [], []
        pairs = list(zip(clients, servers * count if gateway else servers, strict=True))
        for client, server in pairs:
            path = self._path(site, client, server)
            if self.params.key_exchange == "static":
                self._wake(client, path)
            self._wait_for(
                [client] if gateway else [client, server],
                "agree on keys",
                lambda r: r.has_keys,
                limit_s=site.patience(limit_s),
            )
            site.reached(Milestone.AGREED)
            paths.append(path)
        said = self._of_gateway(servers[0], clients) if gateway else {}
        for (client, server), path in zip(pairs, paths, strict=True):
            agreed = self._agreed(
                client, server, said[client.number] if gateway else server.report()
            )
            self._first_through(site, client, path)
            negotiated.append(agreed)
        ports = tuple(FIRST_PORT + number for number in range(len(servers)))
        shown = str(ports[0]) if len(ports) == 1 else f"{ports[0]} to {ports[-1]}"
        tcp = self.params.transport == "tcp"
        return TunnelUp(
            paths=tuple(paths),
            negotiated=tuple(negotiated),
            wire=WireRule(
                encrypted=True,
                describe=f"{'TCP' if tcp else 'UDP'} to or from port {shown}",
                ip_protocols=(TCP if tcp else UDP,),
                udp_ports=() if tcp else ports,
                tcp_ports=ports if tcp else (),
                ip_version=outer_version(self.params),
            ),
            processes=self.processes(),
        )

    def leave(self, site: Site, number: int) -> None:
        """Stop a client's process; the gateway forgets it when it comes again, by its name."""
        self._stop_client(inner_interface(site, "o", number, "client"))

    def start_client(self, site: Site, number: int) -> Callable[[], None]:
        """Start a client's process with the certificate that it had."""
        server = next(end for end in self._daemons if isinstance(end, _End))
        site.reached(Milestone.DIALING)
        client = self._start(site, "client", number)
        path = self._path(site, client, server)
        return lambda: self._joined(site, client, path)

    def _joined(self, site: Site, client: _End, path: TrafficPath) -> None:
        self._wait_for(
            [client],
            "agree on keys",
            lambda r: r.has_keys,
            limit_s=site.patience(_START_LIMIT_S),
        )
        site.reached(Milestone.AGREED)
        self._look_at(client, client.report())
        self._first_through(site, client, path)

    @property
    def modelled(self) -> bool:
        """Whether the sizes are known: OpenVPN's own fragments follow rules of their own."""
        return self.params.fragment is None and super().modelled

    def check_agreed(self) -> None:
        """Read the logs again: keys are renegotiated, and the last word counts."""
        for end in self._daemons:
            report = read_log(end.log())
            # What it said at its start may be too far back by now.
            reported = {what for what in ("cipher", "auth", "compression") if getattr(report, what)}
            self._hold(end, report, reported)

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
                    epoch=self._epoch,
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
            client = "--tls-client" if self.params.clients is None else "--client"
            options += ["--data-ciphers", cipher, "--data-ciphers-fallback", cipher]
            options += ["--tls-server", "--dh", "none"] if side == "server" else [client]
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
        seconds = None if params.keepalive is None else params.keepalive // S_NS
        groups = params.tls_groups
        set_ = {
            "--tls-groups": None if groups == "default" else groups,
            "--mssfix": mssfix,
            "--fragment": params.fragment,
            "--ping": seconds,
            "--ping-exit": None if seconds is None else _SILENCES * seconds,
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

    def forwarded(self) -> tuple[ServerPorts, ...]:
        """Return the server's port, or that of each pair."""
        return (ServerPorts(self.params.transport, FIRST_PORT, self.params.count),)

    def _put_identities(self, site: Site) -> None:
        put_files(site, self.params)

    def _start(self, site: Site, side: Side, number: int) -> _End:
        endpoint = site.client_of(number) if side == "client" else site.server
        gateway = self.params.clients is not None
        interface = inner_interface(site, "o", number, side)
        addresses = inner_addresses(site, number, self.params)
        port = str(FIRST_PORT + (0 if gateway else number))
        here, there = addresses if side == "client" else addresses[::-1]
        _, own = outer_addresses(site, self.params)
        _, reached = reached_addresses(site, self.params)
        socket = (
            ["--nobind", "--remote", reached, port]
            if side == "client"
            else ["--local", own, "--lport", port]
        )
        inner = (
            ["--ifconfig", here, there]
            if self.params.inner == "ipv4"
            else ["--ifconfig-ipv6", f"{here}/64", there]
        )
        if gateway:
            words = server_words(self.params.inner, clients_dir(endpoint.host))
            inner = words if side == "server" else []
        process = endpoint.host.spawn(
            [
                *("openvpn", "--dev-type", "tun", "--dev", interface),
                *(*self._transport(side), *socket, *inner),
                *("--persist-tun", "--persist-key", "--script-security", "1"),
                # A failure ends the process with its reason instead of a quiet restart.
                *("--remap-usr1", "SIGTERM"),
                # Only from 4 on does it say what it clamps, and how control packets are encrypted.
                *("--verb", "4"),
                *self._keys(side, folder(endpoint.host)),
                *self._arguments(side),
            ],
            name=unique_name(f"openvpn-{side}-{number}"),
        )
        place = f"openvpn {side} of tunnel {number}"
        end = _End(place, endpoint, interface, process, last_words, side, number)
        self._daemons.append(end)
        return end

    def _transport(self, side: Side) -> list[str]:
        version = outer_version(self.params)
        if self.params.transport == "udp":
            return ["--proto", f"udp{version}"]
        # Nagle's algorithm would hold a packet back until the one before it is acknowledged, a
        # round trip later.
        return ["--proto", f"tcp{version}-{side}", "--socket-flags", "TCP_NODELAY"]

    def _keys(self, side: Side, own: PurePosixPath) -> list[str]:
        secret = str(own / "secret.key")
        if self.params.key_exchange == "static":
            return ["--secret", secret, _DIRECTION[side]]
        return [
            *("--ca", str(own / "ca.crt"), "--cert", str(own / f"{side}.crt")),
            *("--key", str(own / f"{side}.key")),
            *self._control(side, own),
            # No new keys during the run: a handshake would fall into some trials and not others.
            *("--reneg-sec", "0", "--reneg-bytes", "0", "--reneg-pkts", "0"),
            *("--hand-window", str(_HANDSHAKE_LIMIT_S)),
            # A gateway stays when one of its clients fails.
            *(("--tls-exit",) if self.params.clients is None or side == "client" else ()),
        ]

    def _control(self, side: Side, own: PurePosixPath) -> tuple[str, ...]:
        files = {"plain": "", "tls-crypt": "secret.key", "tls-crypt-v2": f"{side}-v2.key"}
        control = self.params.control
        return () if control == "plain" else (f"--{control}", str(own / files[control]))

    def _wait_for(
        self,
        ends: Sequence[Daemon],
        what: str,
        reached: Callable[[OpenVpnReport], bool],
        *,
        limit_s: float,
    ) -> None:
        """Wait until all ends say so; the first of them that ends says why it could not."""

        def refused(log: str) -> str | None:
            # Nothing else shows it: what the other end sends is dropped without an answer.
            secret = self.params.key_exchange == "static" or self.params.control != "plain"
            words = read_log(log).refused if secret else None
            return None if words is None else f"its peer has another secret: {words}"

        wait_for(ends, what, lambda log: reached(read_log(log)), limit_s=limit_s, refused=refused)

    def _path(self, site: Site, client: _End, server: _End) -> TrafficPath:
        number, mtu_bytes = client.number, self.params.mtu_bytes
        return traffic_path(site, number, client, server, params=self.params, mtu_bytes=mtu_bytes)

    def _first_through(self, site: Site, client: _End, path: TrafficPath) -> None:
        if words := first_through(site, path, limit_s=_FIRST_PACKET_LIMIT_S):
            raise TunnelError(
                f"no echo through openvpn tunnel {client.number} within "
                f"{_FIRST_PACKET_LIMIT_S:g} s: {words}; the client's last messages: "
                f"{client.last_words()}"
            )

    def _wake(self, client: _End, path: TrafficPath) -> None:
        """Send something through an end that has no handshake.

        Left alone, both ends wait for a packet of the other, and the first is a check of options
        10 s after the start. Whether they agree, their logs say.
        """
        self._wait_for([client], "open its socket", lambda r: r.bound, limit_s=_BIND_LIMIT_S)
        first_packet(client.endpoint.host, path, limit_s=_WAKE_LIMIT_S)

    def _agreed(self, client: _End, server: _End, of_server: OpenVpnReport) -> Negotiated:
        reports = {"client": client.report(), "server": of_server}
        # The one interface of a gateway was looked at with its first client.
        seen = self.params.clients is not None and client.number > 0
        for end in (client,) if seen else (client, server):
            self._look_at(end, reports[end.side])
        of_client = reports["client"]
        self._epoch = of_client.epoch
        versions = dict.fromkeys(r.version for r in (of_client, of_server) if r.version)
        return Negotiated(
            cipher=of_client.cipher,
            version=" / ".join(versions),
            implementation="openvpn",
            mtu_bytes=self.params.mtu_bytes,
            # One end that offloads is enough: its work belongs to no process.
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

    def _look_at(self, end: _End, report: OpenVpnReport) -> None:
        """Hold an end and its interface to the study, and keep the kernel quiet there."""
        self._hold(end, report, None)
        state = interfaces(end.endpoint.host).get(end.interface)
        if state is None or state.mtu_bytes != self.params.mtu_bytes:
            raise TunnelError(
                f"{end.place}: interface {end.interface} has MTU "
                f"{state.mtu_bytes if state else None}, the study asks for {self.params.mtu_bytes}"
            )
        quieten(end.endpoint.host, end.interface)

    def _of_gateway(self, server: _End, clients: Sequence[_End]) -> Mapping[int, OpenVpnReport]:
        """Return what a gateway says of each client, by the client's number."""

        def said() -> dict[int, OpenVpnReport]:
            found = of_clients(server.process.log_tail(GATEWAY_LOG_LINES))
            # Names in certificates begin with the run's: what is left of one is the client's.
            known = {name.rpartition("-")[2]: one for name, one in found.items() if one.cipher}
            return {c.number: known[str(c.number)] for c in clients if str(c.number) in known}

        def all_said() -> Mapping[int, OpenVpnReport] | None:
            reports = said()
            return reports if len(reports) == len(clients) else None

        def late() -> str:
            reports = said()
            missing = next(
                (c.number for c in clients if c.number not in reports), clients[-1].number
            )
            return (
                f"{server.place} does not say what it agreed on with client {missing}: "
                f"{server.last_words()}"
            )

        return wait_until(all_said, limit_s=_SHOWN_LIMIT_S, late=late, poll_s=0.1)

    def _hold(self, end: Daemon, report: OpenVpnReport, about: Collection[str] | None) -> None:
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
            ("tls-crypt", report.control_encryption is not None, params.control != "plain"),
            ("TLS", report.control_channel is not None, params.key_exchange == "tls"),
            ("transport", report.transport, params.transport),
        ]
        if params.cipher not in AEAD:
            wanted.append(("auth", report.auth, params.auth))
        return wanted
