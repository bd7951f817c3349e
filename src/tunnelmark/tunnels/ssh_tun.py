"""OpenSSH as a tunnel (``ssh -w``): IP packets in a channel of an encrypted TCP stream."""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import ClassVar, Final, Literal

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field

from tunnelmark.model.errors import RefusedError
from tunnelmark.model.host import Host, Need
from tunnelmark.model.overhead import Encapsulation, Layer, ip_layer, tcp_layer
from tunnelmark.model.tunnel import DataPath, Negotiated, Site, TunnelUp, WireRule
from tunnelmark.tunnels.addressing import (
    check_inner_mtu,
    inner_addresses,
    outer_addresses,
    outer_version,
    with_port,
)
from tunnelmark.tunnels.base import TunnelParams
from tunnelmark.tunnels.daemon import (
    Daemon,
    DaemonTunnel,
    Side,
    configure,
    last_complaint,
    prove_path,
    shown_ports,
    traffic_path,
    wait_for,
)
from tunnelmark.tunnels.support import (
    daemon_name,
    inner_interface,
    interfaces,
    wait_until,
)

FIRST_PORT: Final = 2222
"""Tunnel i has a server of its own on this plus i."""

_TCP: Final = 6
_START_LIMIT_S: Final = 15.0
_LOGIN_LIMIT_S: Final = 30.0
_DEVICE_LIMIT_S: Final = 10.0
_GONE_LIMIT_S: Final = 5.0
_USER: Final = "root"  # who else may make an interface
_CIPHER: Final = {
    "CHACHA20-POLY1305": "chacha20-poly1305@openssh.com",
    "AES-128-GCM": "aes128-gcm@openssh.com",
    "AES-256-GCM": "aes256-gcm@openssh.com",
    "AES-128-CTR": "aes128-ctr",
    "AES-256-CTR": "aes256-ctr",
}
_MAC: Final = "hmac-sha2-256-etm@openssh.com"
_MAC_BYTES: Final = {"AES-128-CTR": 32, "AES-256-CTR": 32}
_TAG_BYTES: Final = 16
_CHACHA_BLOCK_BYTES: Final = 8
_AES_BLOCK_BYTES: Final = 16
_LEAST_PADDING_BYTES: Final = 4
_KEX: Final = re.compile(
    r"kex: (client->server|server->client) cipher: (\S{1,60}) MAC: (\S{1,60}) "
    r"compression: (\S{1,30})"
)
_KEX_ALGORITHM: Final = re.compile(r"kex: algorithm: (\S{1,60})")
_VERSION: Final = re.compile(r"Local version string SSH-2\.0-(OpenSSH_[\w.]{1,20})")
_NOISE: Final = re.compile(
    r"Could not load host certificate|debug1: (?:SELinux|Will attempt|Reading|identity file)"
    r"|no such identity|Unable to load|fd \d+ clearing|Warning: Permanently added"
    r"|agent_fd|pledge|type -1$|error while closing"
)


class SshTunParams(TunnelParams):
    """What a study can set."""

    cipher: Literal[
        "CHACHA20-POLY1305", "AES-128-GCM", "AES-256-GCM", "AES-128-CTR", "AES-256-CTR"
    ] = Field(
        "CHACHA20-POLY1305",
        description="cipher of the stream, the first is OpenSSH's own choice; CTR is authenticated "
        "by HMAC-SHA2-256 (encrypt then MAC)",
    )
    mtu_bytes: int = Field(
        1500,
        ge=576,
        le=9000,
        description="MTU of the inner interface; in a stream longer packets than the link's are no "
        "fragments, they are cut into segments",
    )


class SshTunTunnel(DaemonTunnel):
    """``count`` pairs of sshd and ssh, each with a TUN device at both ends."""

    kind: ClassVar[str] = "ssh_tun"
    title: ClassVar[str] = "OpenSSH tunnel"
    params_type: ClassVar[type[TunnelParams]] = SshTunParams
    deviations: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "sshd -d": "it serves one connection in one process, which is watched, and says what "
            "was agreed",
            "Ciphers, MACs with one each": "what the study names is what runs, or nothing",
        }
    )
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

    def up(self, site: Site) -> TunnelUp:
        """Start servers with a configuration of their own, log in, address the devices."""
        numbers = range(self.params.count)
        check_inner_mtu(self.kind, self.params.inner, self.params.mtu_bytes)
        self._put(site)
        servers = [self._start_server(site, number) for number in numbers]
        wait_for(
            servers, "listen", lambda log: "Server listening on" in log, limit_s=_START_LIMIT_S
        )
        clients = [self._start_client(site, number) for number in numbers]
        wait_for(
            [*clients, *servers], "log in and agree on keys", _logged_in, limit_s=_LOGIN_LIMIT_S
        )
        wait_for([*clients, *servers], "open its device", _has_device, limit_s=_LOGIN_LIMIT_S)
        paths, negotiated = [], []
        mtu_bytes = self.params.mtu_bytes
        for number, client, server in zip(numbers, clients, servers, strict=True):
            for daemon in (client, server):
                self._rename(daemon, f"tun{number}")
            here, there = inner_addresses(site, number, self.params)
            configure(client, here=here, there=there, mtu_bytes=mtu_bytes)
            configure(server, here=there, there=here, mtu_bytes=mtu_bytes)
            negotiated.append(self._agreed(client, server))
            path = traffic_path(
                site, number, client, server, params=self.params, mtu_bytes=mtu_bytes
            )
            prove_path(site, path, client, server)
            paths.append(path)
        ports = tuple(FIRST_PORT + number for number in numbers)
        return TunnelUp(
            paths=tuple(paths),
            negotiated=tuple(negotiated),
            wire=WireRule(
                encrypted=True,
                describe=f"TCP to or from port {shown_ports(ports)}",
                ip_protocols=(_TCP,),
                tcp_ports=ports,
                ip_version=outer_version(self.params),
            ),
            processes=self._processes(),
        )

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

    def _put(self, site: Site) -> None:
        client, server = site.client.host, site.server.host
        user, machine = self._key("client"), self._key("server")
        server.put(_folder(server) / "host_key", _private(machine))
        server.put(_folder(server) / "authorized_keys", _public(user) + b"\n")
        client.put(_folder(client) / "id", _private(user))
        _, outer = outer_addresses(site, self.params)
        known = b"".join(
            b"[%s]:%d %s\n" % (outer.encode(), port, _public(machine))
            for port in range(FIRST_PORT, FIRST_PORT + self.params.count)
        )
        client.put(_folder(client) / "known_hosts", known)

    def _key(self, side: Side) -> Ed25519PrivateKey:  # noqa: ARG002 - for drivers that want others
        return Ed25519PrivateKey.generate()

    def _cipher(self, side: Side) -> str:  # noqa: ARG002 - for drivers that want others by side
        return _CIPHER[self.params.cipher]

    def _start_server(self, site: Site, number: int) -> Daemon:
        host = site.server.host
        folder = _folder(host)
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
        ]
        config = folder / f"sshd-{number}.conf"
        host.put(config, "\n".join([*lines, ""]).encode())
        # It starts itself again for each connection and so wants its full path; with -d it serves
        # one connection in one process, which is watched, and says what was agreed.
        program = host.has("sshd") or "/usr/sbin/sshd"
        process = host.spawn(
            [program, "-d", "-e", "-f", str(config)],
            name=daemon_name(f"ssh-server-{number}"),
            # sshd insists on an empty directory /run/sshd, which only its service makes.
            private_dirs=("/run", "/run/sshd"),
        )
        return self._keep(site, "server", number, process)

    def _start_client(self, site: Site, number: int) -> Daemon:
        host = site.client.host
        folder = _folder(host)
        _, outer = outer_addresses(site, self.params)
        lines = [
            f"HostName {outer}",
            f"Port {FIRST_PORT + number}",
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
            "LogLevel DEBUG1",
        ]
        config = folder / f"ssh-{number}.conf"
        host.put(config, "\n".join([*lines, ""]).encode())
        process = host.spawn(
            ["ssh", "-F", str(config), "server"], name=daemon_name(f"ssh-client-{number}")
        )
        return self._keep(site, "client", number, process)

    def _keep(self, site: Site, side: Side, number: int, process: object) -> Daemon:
        daemon = Daemon(
            f"ssh_tun {side} of tunnel {number}",
            site.client if side == "client" else site.server,
            inner_interface(site, "h", number, side),
            process,  # type: ignore[arg-type]
            _last_words,
        )
        self._daemons.append(daemon)
        return daemon

    def _rename(self, daemon: Daemon, made: str) -> None:
        """Give the device, which ssh can only call ``tunN``, the name of the run."""
        host = daemon.endpoint.host
        wait_until(
            lambda: True if made in interfaces(host) else None,
            limit_s=_DEVICE_LIMIT_S,
            late=lambda: (
                f"{daemon.place} on {host.name} did not make {made} within "
                f"{_DEVICE_LIMIT_S:g} s: {daemon.last_words()}"
            ),
        )
        host.run(["ip", "link", "set", "dev", made, "down"])
        host.run(["ip", "link", "set", "dev", made, "name", daemon.interface])

    def _agreed(self, client: Daemon, server: Daemon) -> Negotiated:
        wanted = _CIPHER[self.params.cipher]
        mac = _MAC if self.params.cipher in _MAC_BYTES else "<implicit>"
        for daemon in (client, server):
            said = {match[0]: match[1:] for match in _KEX.findall(daemon.log())}
            for way in ("client->server", "server->client"):
                if said.get(way) != (wanted, mac, "none"):
                    raise RefusedError(
                        f"{daemon.place} on {daemon.endpoint.host.name} runs {way} with "
                        f"{said.get(way)} (cipher, MAC, compression), the study asks for "
                        f"{(wanted, mac, 'none')}"
                    )
        log = client.log() + "\n" + server.log()
        versions = dict.fromkeys(match.replace("_", " ") for match in _VERSION.findall(log))
        exchange = _KEX_ALGORITHM.search(log)
        return Negotiated(
            cipher=self.params.cipher,
            version=" / ".join(versions) or "OpenSSH of unknown version",
            implementation="openssh",
            mtu_bytes=self.params.mtu_bytes,
            data_path=DataPath.USER_SPACE,
            details={
                "transport": "tcp",
                "auth": mac if self.params.cipher in _MAC_BYTES else "in the AEAD cipher",
                "key_exchange": exchange.group(1) if exchange else "unknown",
                "compression": "none",
            },
        )


def _logged_in(log: str) -> bool:
    # The client's words, and the server's.
    return "Authenticated to " in log or "Accepted publickey for" in log


def _has_device(log: str) -> bool:
    # The client has its own before the server has agreed to another.
    client = "Authenticated to " in log
    return ("tunnel forward established" if client else "Tunnel forwarding using interface") in log


def _last_words(log: str) -> str:
    return last_complaint(log, noise=_NOISE)


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
