"""OpenSSH as a tunnel (``ssh -w``): IP packets in a channel of an encrypted TCP stream."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import ClassVar, Final, Literal

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field

from tunnelmark.model.errors import RefusedError
from tunnelmark.model.host import Host, Need
from tunnelmark.model.names import unique_name
from tunnelmark.model.overhead import Encapsulation, Layer, ip_layer, tcp_layer
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
    client_ends,
    inner_addresses,
    outer_addresses,
    outer_version,
    reached_addresses,
    with_port,
)
from tunnelmark.tunnels.base import TunnelParams
from tunnelmark.tunnels.daemon import (
    Daemon,
    DaemonTunnel,
    configure,
    prove_path,
    rename,
    shown_ports,
    traffic_path,
    wait_for,
)
from tunnelmark.tunnels.protocols import TCP
from tunnelmark.tunnels.ssh_tun.log import (
    WAYS,
    has_device,
    last_words,
    logged_in,
    no_exchange,
    read_agreed,
    read_exchange,
    read_versions,
)
from tunnelmark.tunnels.support import inner_interface

FIRST_PORT: Final = 2222
"""Tunnel i has a server of its own on this plus i; a gateway has this one."""
GATEWAY_LOG_LINES: Final = 30_000
"""sshd writes some 100 lines of each client."""

_START_LIMIT_S: Final = 15.0
_LOGIN_LIMIT_S: Final = 30.0
_LOGIN_LIMIT_PER_CLIENT_S: Final = 1.0
_DEVICE_LIMIT_S: Final = 10.0
_SIDES: Final[tuple[Side, Side]] = ("client", "server")
_USER: Final = "root"  # who else may make an interface
_CIPHER: Final = {
    "CHACHA20-POLY1305": "chacha20-poly1305@openssh.com",
    "AES-128-GCM": "aes128-gcm@openssh.com",
    "AES-256-GCM": "aes256-gcm@openssh.com",
    "AES-128-CTR": "aes128-ctr",
    "AES-256-CTR": "aes256-ctr",
}
_EXCHANGE: Final = {
    "mlkem768x25519-sha256": "mlkem768x25519-sha256",
    "sntrup761x25519-sha512": "sntrup761x25519-sha512@openssh.com",
    "curve25519-sha256": "curve25519-sha256",
    "ecdh-sha2-nistp256": "ecdh-sha2-nistp256",
}
_MAC: Final = "hmac-sha2-256-etm@openssh.com"
_MAC_BYTES: Final = {"AES-128-CTR": 32, "AES-256-CTR": 32}
_TAG_BYTES: Final = 16
_CHACHA_BLOCK_BYTES: Final = 8
_AES_BLOCK_BYTES: Final = 16
_LEAST_PADDING_BYTES: Final = 4


class SshTunParams(TunnelParams):
    """What a study can set."""

    cipher: Literal[
        "CHACHA20-POLY1305", "AES-128-GCM", "AES-256-GCM", "AES-128-CTR", "AES-256-CTR"
    ] = Field(
        "CHACHA20-POLY1305",
        description="cipher of the stream, the first is OpenSSH's own choice; CTR is authenticated "
        "by HMAC-SHA2-256 (encrypt then MAC)",
    )
    key_exchange: Literal[
        "default",
        "mlkem768x25519-sha256",
        "sntrup761x25519-sha512",
        "curve25519-sha256",
        "ecdh-sha2-nistp256",
    ] = Field(
        "default",
        description="how keys are agreed; default is OpenSSH's first choice: from 9.0 on "
        "sntrup761 with X25519, from 10.0 on ML-KEM-768 with X25519, both against quantum "
        "computers too. What ssh does not have (ssh -Q kex) is refused",
    )
    mtu_bytes: int = Field(
        1500,
        ge=576,
        le=9000,
        description="MTU of the inner interface; in a stream, packets longer than the link's are "
        "not fragmented but cut into segments",
    )


class SshTunTunnel(DaemonTunnel):
    """``count`` pairs of sshd and ssh, each with a TUN device at both ends.

    With ``clients`` one sshd, which has a process and a TUN device for each client.
    """

    kind: ClassVar[str] = "ssh_tun"
    title: ClassVar[str] = "OpenSSH tunnel"
    library: ClassVar[CipherLibrary] = "OpenSSL"
    params_type: ClassVar[type[TunnelParams]] = SshTunParams
    programs: ClassVar[Mapping[str, str]] = MappingProxyType({"ssh": "ssh", "sshd": "sshd"})
    deviations: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "sshd -d": "it serves one connection in one process, which is watched, and says what "
            "was agreed; a gateway is sshd -D with LogLevel DEBUG1",
            "MaxStartups 1000 (gateway)": "all clients log in at the same time",
            "Ciphers, MACs with one each": "exactly what the study names, or no tunnel",
        }
    )
    lead: ClassVar[frozenset[str]] = frozenset({"ssh"})
    gateway: ClassVar[bool] = True
    joins: ClassVar[bool] = True
    tells_set_up: ClassVar[bool] = True
    params: SshTunParams

    def need(self, host: Host) -> Need:  # noqa: ARG002 - the same on every host
        """Need OpenSSH, both ends of it, and a TUN device."""
        return Need(
            programs={
                "ssh": "openssh-client",
                "sshd": "openssh-server",
                "ip": "iproute2",
                "ping": "iputils-ping",
            },
            kernel=("tun",),
        )

    def unavailable(self, host: Host) -> str | None:
        """Return also which key exchange the host's ssh does not have."""
        if reason := super().unavailable(host):
            return reason
        if (wanted := _EXCHANGE.get(self.params.key_exchange)) is None:
            return None
        return no_exchange(self._tailored(host), wanted)

    def bring_up(self, site: Site) -> TunnelUp:
        """Start servers with a configuration of their own, log in, address the devices."""
        numbers = range(self.params.paths)
        each = self.params.clients or 1
        check_inner_mtu(self.kind, self.params.inner, self.params.mtu_bytes)
        self._put(site)
        servers = [self._start_server(site, number) for number in range(len(self._ports))]
        wait_for(
            servers, "listen", lambda log: "Server listening on" in log, limit_s=_START_LIMIT_S
        )
        site.reached(Milestone.DIALING)
        clients = [self._start_client(site, number) for number in numbers]
        usual_s = _LOGIN_LIMIT_S + _LOGIN_LIMIT_PER_CLIENT_S * each
        for what, reached in (
            ("log in and agree on keys", logged_in),
            ("open its device", has_device),
        ):
            limit_s = site.patience(usual_s)
            wait_for([*clients, *servers], what, partial(reached, each), limit_s=limit_s)
        site.reached(Milestone.AGREED)
        of_servers = [self._held(server, each) for server in servers]
        if self.params.clients is not None:
            servers = [
                self._gateway_end(servers[0], inner_interface(site, "h", number, "server"))
                for number in numbers
            ]
            of_servers *= len(numbers)
        paths, negotiated = [], []
        for number, client, server in zip(numbers, clients, servers, strict=True):
            path = self._addressed(site, number, client, server)
            negotiated.append(self._agreed(client, of_servers[number]))
            prove_path(site, path, client, server)
            paths.append(path)
        return TunnelUp(
            paths=tuple(paths),
            negotiated=tuple(negotiated),
            wire=WireRule(
                encrypted=True,
                describe=f"TCP to or from port {shown_ports(self._ports)}",
                ip_protocols=(TCP,),
                tcp_ports=self._ports,
                ip_version=outer_version(self.params),
            ),
            processes=self.processes(),
        )

    def leave(self, site: Site, number: int) -> None:
        """End a client's connection; the gateway's process of it ends by itself."""
        client, server = (inner_interface(site, "h", number, side) for side in _SIDES)
        self._stop_client(client, gateway=server)

    def start_client(self, site: Site, number: int) -> Callable[[], None]:
        """Log a client in again."""
        (gateway,) = (end for end in self._daemons if isinstance(end, _Gateway))
        server = self._gateway_end(gateway, inner_interface(site, "h", number, "server"))
        site.reached(Milestone.DIALING)
        client = self._start_client(site, number)
        return lambda: self._joined(site, number, client, server)

    def _joined(self, site: Site, number: int, client: Daemon, server: Daemon) -> None:
        limit_s = site.patience(_LOGIN_LIMIT_S)
        wait_for([client], "open its device", partial(has_device, 1), limit_s=limit_s)
        site.reached(Milestone.AGREED)
        path = self._addressed(site, number, client, server)
        self._held(client)
        prove_path(site, path, client, server)

    def _addressed(self, site: Site, number: int, client: Daemon, server: Daemon) -> TrafficPath:
        """Name and address the devices of one tunnel."""
        mtu_bytes = self.params.mtu_bytes
        for daemon in (client, server):
            # ssh can only call it so.
            rename(daemon, f"tun{number}", limit_s=_DEVICE_LIMIT_S)
        here, there = inner_addresses(site, number, self.params)
        configure(client, here=here, there=there, mtu_bytes=mtu_bytes)
        configure(server, here=there, there=here, mtu_bytes=mtu_bytes)
        return traffic_path(site, number, client, server, params=self.params, mtu_bytes=mtu_bytes)

    def check_agreed(self) -> None:
        """Read the logs again: keys are exchanged again after every so many bytes."""
        for daemon in self._daemons:
            # What was said at the start may be too far back by now.
            for way, all_said in read_agreed(daemon.log()).items():
                for said in dict.fromkeys(all_said):
                    self._hold(daemon, way, said)

    def encapsulation(self, agreed: Negotiated) -> Encapsulation:
        """Return the layers of a binary packet with one packet of the tunnel in it."""
        cipher = self.params.cipher
        block = _CHACHA_BLOCK_BYTES if "CHACHA" in cipher else _AES_BLOCK_BYTES

        def layers(inner_bytes: int) -> tuple[Layer, ...]:
            length = Layer("packet length", 4, "RFC 4253 section 6")
            padding_length = Layer("padding length", 1, "RFC 4253 section 6")
            channel = Layer("channel data header", 9, "RFC 4254 section 5.2")
            tunnel = Layer("address family", 4, "OpenSSH PROTOCOL section 2.3")
            # The packet length is not encrypted with the rest by any of these ciphers.
            encrypted = padding_length.bytes + channel.bytes + tunnel.bytes + inner_bytes
            filled = block - encrypted % block
            filled += block if filled < _LEAST_PADDING_BYTES else 0
            return (
                ip_layer(outer_version(self.params)),
                tcp_layer(),
                length,
                padding_length,
                channel,
                tunnel,
                Layer("padding", filled, "RFC 4253 section 6"),
                Layer("HMAC", _MAC_BYTES[cipher], "RFC 6668 section 2, not truncated")
                if cipher in _MAC_BYTES
                else Layer("authentication tag", _TAG_BYTES, "RFC 5647 section 5, RFC 8439"),
            )

        return Encapsulation(
            layers, agreed.mtu_bytes, outer_ip=outer_version(self.params), stream=True
        )

    def forwarded(self) -> tuple[ServerPorts, ...]:
        """Return the port of each server."""
        return (ServerPorts("tcp", FIRST_PORT, self.params.count),)

    @property
    def _ports(self) -> tuple[int, ...]:
        """Those of the servers."""
        return tuple(range(FIRST_PORT, FIRST_PORT + self.params.count))

    def _put(self, site: Site) -> None:
        server, machine = site.server.host, self._key("server")
        server.put(_folder(server) / "host_key", _private(machine))
        _, reached = reached_addresses(site, self.params)
        known = b"".join(
            b"[%s]:%d %s\n" % (reached.encode(), port, _public(machine)) for port in self._ports
        )
        users = b""
        for endpoint, _ in client_ends(site):
            client, user = endpoint.host, self._key("client")
            users += _public(user) + b"\n"
            client.put(_folder(client) / "id", _private(user))
            client.put(_folder(client) / "known_hosts", known)
        server.put(_folder(server) / "authorized_keys", users)

    def _key(self, side: Side) -> Ed25519PrivateKey:  # noqa: ARG002 - for drivers that want others
        return Ed25519PrivateKey.generate()

    def _cipher(self, side: Side) -> str:  # noqa: ARG002 - for drivers that want others by side
        return _CIPHER[self.params.cipher]

    def _start_server(self, site: Site, number: int) -> Daemon:
        host = site.server.host
        folder = _folder(host)
        gateway = self.params.clients is not None
        _, outer = outer_addresses(site, self.params)
        lines = [
            f"ListenAddress {with_port(outer, FIRST_PORT + number)}",
            f"HostKey {folder / 'host_key'}",
            f"AuthorizedKeysFile {folder / 'authorized_keys'}",
            f"AllowUsers {_USER}",
            "PermitRootLogin prohibit-password",
            "PermitTunnel point-to-point",
            "AuthenticationMethods publickey",
            "AllowTcpForwarding no",
            "AllowAgentForwarding no",
            "X11Forwarding no",
            "UsePAM no",
            "UseDNS no",
            # The folder of the run is its owner's alone, whoever that is to sshd.
            "StrictModes no",
            "PidFile none",
            "Compression no",
            f"Ciphers {self._cipher('server')}",
            f"MACs {_MAC}",
            *self._exchange_line(),
            *(("LogLevel DEBUG1", "MaxStartups 1000") if gateway else ()),
        ]
        config = folder / f"sshd-{number}.conf"
        host.put(config, "\n".join([*lines, ""]).encode())
        # It starts itself again for each connection and so wants its full path; with -d it serves
        # one connection in one process, which is watched, and says what was agreed. With -D it has
        # a process for each.
        program = host.has("sshd") or "/usr/sbin/sshd"
        process = host.spawn(
            [program, "-D" if gateway else "-d", "-e", "-f", str(config)],
            name=unique_name(f"ssh-server-{number}"),
            # sshd insists on an empty directory /run/sshd, which only its service makes.
            private_dirs=("/run", "/run/sshd"),
        )
        return self._keep(site, "server", number, process)

    def _start_client(self, site: Site, number: int) -> Daemon:
        host = site.client_of(number).host
        folder = _folder(host)
        _, reached = reached_addresses(site, self.params)
        lines = [
            f"HostName {reached}",
            f"Port {FIRST_PORT + (number if self.params.clients is None else 0)}",
            f"User {_USER}",
            f"IdentityFile {folder / 'id'}",
            "IdentitiesOnly yes",
            "IdentityAgent none",
            f"UserKnownHostsFile {folder / 'known_hosts'}",
            "GlobalKnownHostsFile none",
            "StrictHostKeyChecking yes",
            "BatchMode yes",
            "PreferredAuthentications publickey",
            "Tunnel point-to-point",
            f"TunnelDevice {number}:{number}",
            "ExitOnForwardFailure yes",
            "SessionType none",
            "RequestTTY no",
            "ControlMaster no",
            "Compression no",
            f"Ciphers {self._cipher('client')}",
            f"MACs {_MAC}",
            *self._exchange_line(),
            "LogLevel DEBUG1",
        ]
        config = folder / f"ssh-{number}.conf"
        host.put(config, "\n".join([*lines, ""]).encode())
        process = host.spawn(
            ["ssh", "-F", str(config), "server"], name=unique_name(f"ssh-client-{number}")
        )
        return self._keep(site, "client", number, process)

    def _keep(self, site: Site, side: Side, number: int, process: object) -> Daemon:
        gateway = self.params.clients is not None and side == "server"
        daemon = (_Gateway if gateway else Daemon)(
            f"ssh_tun {side} of tunnel {number}",
            site.client_of(number) if side == "client" else site.server,
            inner_interface(site, "h", number, side),
            process,  # type: ignore[arg-type]
            last_words,
        )
        self._daemons.append(daemon)
        return daemon

    def _held(self, daemon: Daemon, connections: int = 1) -> str:
        """Hold what a program agreed on for each of its connections to the study; return its log.

        A gateway does not say which connection it speaks of; all of them must be alike.
        """
        log = daemon.log()
        agreed = read_agreed(log)
        for way in WAYS:
            found = agreed.get(way, ())
            for said in dict.fromkeys(found):
                self._hold(daemon, way, said)
            if len(found) < connections:
                self._hold(daemon, way, None)
        return log

    def _agreed(self, client: Daemon, of_server: str) -> Negotiated:
        mac = self._mac()
        log = self._held(client)
        versions = dict.fromkeys((*read_versions(log), *read_versions(of_server)))
        exchange = read_exchange(log)
        wanted = _EXCHANGE.get(self.params.key_exchange)
        if wanted is not None and exchange != wanted:
            raise RefusedError(
                f"{client.place} agreed on keys by {exchange}, the study asks for {wanted}"
            )
        return Negotiated(
            cipher=self.params.cipher,
            version=" / ".join(versions) or "OpenSSH of unknown version",
            implementation="openssh",
            mtu_bytes=self.params.mtu_bytes,
            data_path=DataPath.USER_SPACE,
            details={
                "transport": "tcp",
                "auth": mac if self.params.cipher in _MAC_BYTES else "in the AEAD cipher",
                "key_exchange": exchange or "unknown",
                "compression": "none",
            },
        )

    def _hold(self, daemon: Daemon, way: str, said: tuple[str, str, str] | None) -> None:
        wanted = (_CIPHER[self.params.cipher], self._mac(), "none")
        if said != wanted:
            raise RefusedError(
                f"{daemon.place} on {daemon.endpoint.host.name} runs {way} with {said} (cipher, "
                f"MAC, compression), the study asks for {wanted}"
            )

    def _exchange_line(self) -> list[str]:
        wanted = _EXCHANGE.get(self.params.key_exchange)
        return [f"KexAlgorithms {wanted}"] if wanted else []

    def _mac(self) -> str:
        return _MAC if self.params.cipher in _MAC_BYTES else "<implicit>"


class _Gateway(Daemon):
    """An sshd to which several clients are connected."""

    def log(self) -> str:
        """Return its log."""
        return self.process.log_tail(GATEWAY_LOG_LINES)


def _private(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )


def _public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )


def _folder(host: Host) -> PurePosixPath:
    return host.work_dir / "ssh"
