"""Nebula: a mesh of two with an authority of the run, Noise handshake, packets over UDP."""

import json
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import ClassVar, Final, Literal

from pydantic import Field

from tunnelmark.model.errors import LabError, TunnelError
from tunnelmark.model.host import Host, Need
from tunnelmark.model.names import unique_name
from tunnelmark.model.overhead import Encapsulation, Layer, ip_layer, udp_layer
from tunnelmark.model.tunnel import (
    CipherLibrary,
    DataPath,
    Negotiated,
    ServerPorts,
    Side,
    Site,
    TunnelUp,
    WireRule,
)
from tunnelmark.tunnels.addressing import (
    outer_addresses,
    outer_version,
    reached_addresses,
    with_port,
)
from tunnelmark.tunnels.base import TunnelParams
from tunnelmark.tunnels.daemon import (
    Daemon,
    DaemonTunnel,
    check_interface,
    last_complaint,
    prove_path,
    shown_ports,
    traffic_path,
    wait_for,
)
from tunnelmark.tunnels.protocols import UDP
from tunnelmark.tunnels.support import (
    inner_interface,
    quieten,
    wait_until,
)

FIRST_PORT: Final = 4242
"""Tunnel i listens on this plus i at the server, which is the lighthouse (Nebula's default)."""

_START_LIMIT_S: Final = 20.0
_SHOWN_LIMIT_S: Final = 10.0
_CERTIFICATE_LIMIT_S: Final = 30.0
_LIFETIME: Final = "720h"
_CIPHER: Final = {"AES-256-GCM": "aes", "CHACHA20-POLY1305": "chachapoly"}
# nebula.io, config reference: how often a host tells the lighthouse where it is; longer than runs.
_REPORT_INTERVAL_S: Final = 86_400
# Nebula 1.6 writes these first, 1.11 the interface and the addresses before them.
_ACTIVE: Final = re.compile(r'msg="Nebula interface is active" .{0,200}?\bbuild=(\S{1,40})')
_HANDSHAKE: Final = re.compile(
    r'msg="Handshake message received" .{0,200}?\bcertName="?([^" ]{1,80})"? '
)
_MESSAGE: Final = re.compile(
    r'level=(?P<level>\w+) msg=(?P<msg>"(?:[^"\\]|\\.){1,300}"|\S{1,300})'
    r'(?: error=(?P<error>"(?:[^"\\]|\\.){1,300}"|\S{1,300}))?'
)


class NebulaParams(TunnelParams):
    """What a study can set."""

    inner: Literal["ipv4"] = Field(
        "ipv4", description="IP version inside; Nebula 1.6 supports IPv4 only"
    )
    cipher: Literal["AES-256-GCM", "CHACHA20-POLY1305"] = Field(
        "AES-256-GCM", description="packet cipher; both ends must have the same"
    )
    mtu_bytes: int = Field(
        1300,
        ge=576,
        le=1440,
        description="MTU of the inner interface, 1300 is Nebula's own; more than 1440 would not "
        "pass an Ethernet, since Nebula's packets must not be fragmented",
    )


class NebulaTunnel(DaemonTunnel):
    """``count`` pairs of Nebula processes under one authority, each pair a network of its own."""

    kind: ClassVar[str] = "nebula"
    title: ClassVar[str] = "Nebula"
    library: ClassVar[CipherLibrary] = "Go"
    params_type: ClassVar[type[TunnelParams]] = NebulaParams
    programs: ClassVar[Mapping[str, str]] = MappingProxyType({"nebula": "nebula"})
    params: NebulaParams

    def __init__(self, params: TunnelParams) -> None:
        """Take the parameters of the study."""
        super().__init__(params)
        # nebula-cert writes over no file, not even of a tunnel that was here before.
        self._folder_name = unique_name("nebula")

    def need(self, host: Host) -> Need:  # noqa: ARG002 - the same on every host
        """Need Nebula and a TUN device."""
        return Need(
            programs={
                "nebula": "nebula",
                "nebula-cert": "nebula",
                "ip": "iproute2",
                "ping": "iputils-ping",
            },
            kernel=("tun",),
        )

    def bring_up(self, site: Site) -> TunnelUp:
        """Make an authority, start lighthouses, then the others; see the handshake on both ends."""
        numbers = range(self.params.count)
        self._put_authority(site)
        for number in numbers:
            self._put(site, number)
        servers = [self._start(site, "server", number) for number in numbers]
        wait_for(servers, "start", _is_active, limit_s=_START_LIMIT_S)
        clients = [self._start(site, "client", number) for number in numbers]
        wait_for(clients, "start", _is_active, limit_s=_START_LIMIT_S)
        paths, negotiated = [], []
        for number, client, server in zip(numbers, clients, servers, strict=True):
            for daemon in (client, server):
                quieten(daemon.endpoint.host, daemon.interface)
                check_interface(daemon, mtu_bytes=self.params.mtu_bytes)
            path = traffic_path(
                site, number, client, server, params=self.params, mtu_bytes=self.params.mtu_bytes
            )
            prove_path(site, path, client, server)
            for daemon, peer in ((client, "server"), (server, "client")):
                self._check(daemon, f"{peer}-{number}")
            paths.append(path)
            negotiated.append(self._negotiated(client, server))
        ports = tuple(FIRST_PORT + number for number in numbers)
        return TunnelUp(
            paths=tuple(paths),
            negotiated=tuple(negotiated),
            wire=WireRule(
                encrypted=True,
                describe=f"UDP to or from port {shown_ports(ports)}",
                ip_protocols=(UDP,),
                udp_ports=ports,
                ip_version=outer_version(self.params),
            ),
            processes=self.processes(),
        )

    def encapsulation(self, agreed: Negotiated) -> Encapsulation:
        """Return the layers of a message packet (header.go of Nebula)."""

        def layers(_inner_bytes: int) -> tuple[Layer, ...]:
            return (
                ip_layer(outer_version(self.params)),
                udp_layer(),
                Layer("Nebula header", 16, "nebula header/header.go, Len"),
                Layer("authentication tag", 16, "RFC 5116 section 5.1, RFC 8439 section 2.8"),
            )

        return Encapsulation(layers, agreed.mtu_bytes, outer_ip=outer_version(self.params))

    def _folder(self, host: Host) -> PurePosixPath:
        return host.work_dir / self._folder_name

    def _put_authority(self, site: Site) -> None:
        host = site.server.host
        # A file that is there makes its folder; nebula-cert makes none.
        host.put(self._folder(host) / "run", f"{site.prefix}\n".encode())
        self._nebula_cert(
            host,
            *("ca", "-name", f"{site.prefix} authority", "-duration", _LIFETIME),
            *_out(self._folder(host), "ca"),
        )
        certificate = host.get(self._folder(host) / "ca.crt", limit_bytes=1 << 16)
        client = site.client.host
        client.put(self._folder(client) / "ca.crt", certificate)

    def _put(self, site: Site, number: int) -> None:
        client_ipv4, server_ipv4 = site.inner_ipv4(number)
        host = site.server.host
        ends: tuple[tuple[Side, Host, str], ...] = (
            ("client", site.client.host, client_ipv4),
            ("server", host, server_ipv4),
        )
        for side, end, address in ends:
            name = f"{side}-{number}"
            self._nebula_cert(
                host,
                *("sign", "-ca-crt", str(self._folder(host) / "ca.crt")),
                *("-ca-key", str(self._folder(host) / "ca.key"), "-name", name),
                *("-ip", f"{address}/30", *_out(self._folder(host), name)),
            )
            for suffix in ("crt", "key"):
                data = host.get(self._folder(host) / f"{name}.{suffix}", limit_bytes=1 << 16)
                end.put(self._folder(end) / f"{name}.{suffix}", data)
            config = self._config(site, side, number)
            end.put(self._folder(end) / f"{name}.yml", json.dumps(config, indent=1).encode())

    def _nebula_cert(self, host: Host, *arguments: str) -> None:
        try:
            host.run(["nebula-cert", *arguments], timeout_s=_CERTIFICATE_LIMIT_S)
        except LabError as error:
            raise TunnelError(f"nebula-cert {arguments[0]}: {error}") from error

    def forwarded(self) -> tuple[ServerPorts, ...]:
        """Return the port of each server, which is also its tunnel's lighthouse."""
        return (ServerPorts("udp", FIRST_PORT, self.params.count),)

    def _config(self, site: Site, side: Side, number: int) -> dict[str, object]:
        """Return the configuration; YAML takes JSON as it is."""
        endpoint = site.client if side == "client" else site.server
        folder, name = self._folder(endpoint.host), f"{side}-{number}"
        _, server_ipv4 = site.inner_ipv4(number)
        own = dict(zip(("client", "server"), outer_addresses(site, self.params), strict=True))
        _, reached = reached_addresses(site, self.params)
        port = FIRST_PORT + number
        anyone = [{"port": "any", "proto": "any", "host": "any"}]
        lighthouse = side == "server"
        return {
            "pki": {
                "ca": str(folder / "ca.crt"),
                "cert": str(folder / f"{name}.crt"),
                "key": str(folder / f"{name}.key"),
            },
            "static_host_map": {} if lighthouse else {server_ipv4: [with_port(reached, port)]},
            "lighthouse": {
                "am_lighthouse": lighthouse,
                "interval": _REPORT_INTERVAL_S,
                "hosts": [] if lighthouse else [server_ipv4],
            },
            "listen": {"host": own[side], "port": port if lighthouse else 0},
            "punchy": {"punch": False},
            "cipher": _CIPHER[self._cipher(side)],
            "tun": {
                "disabled": False,
                "dev": inner_interface(site, "n", number, side),
                "mtu": self.params.mtu_bytes,
            },
            "logging": {"level": "info", "format": "text"},
            "firewall": {"outbound": anyone, "inbound": anyone},
        }

    def _cipher(self, side: Side) -> str:  # noqa: ARG002 - for drivers that want others by side
        return self.params.cipher

    def _start(self, site: Site, side: Side, number: int) -> Daemon:
        endpoint = site.client if side == "client" else site.server
        process = endpoint.host.spawn(
            ["nebula", "-config", str(self._folder(endpoint.host) / f"{side}-{number}.yml")],
            name=unique_name(f"nebula-{side}-{number}"),
        )
        daemon = Daemon(
            f"nebula {side} of tunnel {number}",
            endpoint,
            inner_interface(site, "n", number, side),
            process,
            last_words,
        )
        self._daemons.append(daemon)
        return daemon

    def _check(self, daemon: Daemon, peer: str) -> None:
        """Raise unless the daemon says that it finished a handshake with its peer's certificate."""
        wait_until(
            lambda: True if peer in _HANDSHAKE.findall(daemon.log()) else None,
            limit_s=_SHOWN_LIMIT_S,
            late=lambda: (
                f"{daemon.place} on {daemon.endpoint.host.name} reports no handshake with "
                f"{peer}: {daemon.last_words()}"
            ),
        )

    def _negotiated(self, client: Daemon, server: Daemon) -> Negotiated:
        versions = dict.fromkeys(
            match.group(1) for daemon in (client, server) if (match := _ACTIVE.search(daemon.log()))
        )
        return Negotiated(
            cipher=self.params.cipher,
            version=f"nebula {' / '.join(versions) or 'of unknown version'}",
            implementation="nebula",
            mtu_bytes=self.params.mtu_bytes,
            data_path=DataPath.USER_SPACE,
            details={
                # RFC-like: The Noise Protocol Framework, section 8, protocol names.
                "cipher_evidence": "part of the name of the Noise protocol, which both ends mix "
                "into the handshake: it fails unless they agree",
                "key_exchange": "Noise_IX_25519, certificates of the run",
            },
        )


def last_words(log: str) -> str:
    """Return the last complaint of a log of Nebula, without time and places."""
    said = [match for line in log.splitlines() if (match := _MESSAGE.search(line[:2000]))]
    complaints = [m for m in said if m["level"] in ("error", "fatal", "panic")]
    if not said:
        return last_complaint(log)
    last = (complaints or said)[-1]
    words = [part.strip('"') for part in (last["msg"], last["error"]) if part]
    return ": ".join(words)


def _is_active(log: str) -> bool:
    return _ACTIVE.search(log) is not None


def _out(folder: PurePosixPath, name: str) -> tuple[str, ...]:
    return ("-out-crt", str(folder / f"{name}.crt"), "-out-key", str(folder / f"{name}.key"))
