"""OpenConnect: openconnect against ocserv, packets in DTLS beside a TLS session or inside it."""

import base64
import hashlib
import ipaddress
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import PurePosixPath
from secrets import token_hex
from types import MappingProxyType
from typing import Any, ClassVar, Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.host import Host, Need
from tunnelmark.model.names import unique_name
from tunnelmark.model.overhead import Encapsulation, Layer, ip_layer, tcp_layer, udp_layer
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
    check_inner_mtu,
    client_ends,
    gateway_address,
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
    shown_ports,
    traffic_path,
    wait_for,
)
from tunnelmark.tunnels.ocserv.log import (
    SCRIPT,
    Session,
    User,
    is_ready,
    last_words,
    read_address,
    read_client,
    read_no_dtls,
    read_users,
)
from tunnelmark.tunnels.ocserv.params import OcservParams
from tunnelmark.tunnels.pki import RunAuthority
from tunnelmark.tunnels.protocols import TCP, UDP
from tunnelmark.tunnels.support import check_socket, inner_interface

FIRST_PORT: Final = 443
"""Tunnel i has a server of its own on this plus i, TCP and, with DTLS, UDP; a gateway this one."""

# ocserv puts its process's number behind the path, in hexadecimal.
_SOCKET_SUFFIX: Final = len(".ffffffff")
_START_LIMIT_S: Final = 20.0
_LOGIN_LIMIT_S: Final = 40.0
_LOGINS: Final = 3
"""So often a gateway's client logs in whose DTLS handshake gets no answer."""
# Longer than any run: what the two say to each other in between would fall into some trials.
_NEVER_S: Final = 32400
_RECORD: Final = Layer("TLS record header", 5, "RFC 8446 section 5.1")
_DTLS_RECORD: Final = Layer("DTLS record header", 13, "RFC 6347 section 4.1")
_DRAFT: Final = "draft-mavrogiannopoulos-openconnect"
_CSTP_BYTES: Final = 8
# Version 1.5 calls itself by the whole name.
_VERSION: Final = re.compile(r"initialized (?:ocserv|OpenConnect VPN Server) ([\w.]{1,20})")


class OcservTunnel(DaemonTunnel):
    """``count`` pairs of ocserv and openconnect, each with an account and keys of its own run.

    With ``clients`` one ocserv, which has an account, a worker and a TUN device for each client.
    """

    kind: ClassVar[str] = "ocserv"
    title: ClassVar[str] = "OpenConnect"
    library: ClassVar[CipherLibrary] = "GnuTLS"
    params_type: ClassVar[type[TunnelParams]] = OcservParams
    programs: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"openconnect": "openconnect", "ocserv": "ocserv"}
    )
    gateway: ClassVar[bool] = True
    params: OcservParams

    def __init__(self, params: TunnelParams) -> None:
        """Take the parameters of the study."""
        super().__init__(params)
        self._passwords: list[str] = []
        """Of the accounts: of each client of a gateway, else one for all tunnels."""
        self._pin = ""
        self._version = ""
        self._pairs: list[tuple[Daemon, Daemon]] = []
        """Client and server of each tunnel."""

    def need(self, host: Host) -> Need:  # noqa: ARG002 - the same on every host
        """Need both programs, what asks the server and makes its password file, and TUN."""
        return Need(
            programs={
                "ocserv": "ocserv",
                "occtl": "ocserv",
                "ocpasswd": "ocserv",
                "openconnect": "openconnect",
                "ip": "iproute2",
                "ping": "iputils-ping",
            },
            kernel=("tun",),
        )

    def bring_up(self, site: Site) -> TunnelUp:
        """Start servers, log in, check what both ends say they agreed on."""
        params, numbers = self.params, range(self.params.paths)
        mtu_bytes = params.mtu_bytes
        check_inner_mtu(self.kind, params.inner, mtu_bytes)
        self._put(site)
        servers = [self._start_server(site, number) for number in range(params.count)]
        wait_for(servers, "start", is_ready, limit_s=_START_LIMIT_S)
        # Now: later it is too far back in the log of a server of many clients.
        version = _VERSION.search(servers[0].log())
        self._version = f"ocserv {version.group(1)}" if version else "ocserv"
        if params.clients is None:
            clients = [self._start_client(site, number) for number in numbers]
            self._wait_for_logins(clients, servers)
        else:
            # One by one: of DTLS handshakes at one time more end in a timeout (ocserv 1.1.6).
            clients = [self._log_in(site, number, servers[0]) for number in numbers]
            users = self._users(servers[0], params.clients)
            servers = [
                self._gateway_end(servers[0], _device(servers[0], users, _user(number)))
                for number in numbers
            ]
        self._pairs = list(zip(clients, servers, strict=True))
        for number, client in zip(numbers, clients, strict=True):
            here, there = inner_addresses(site, number, params)
            given = read_address(client.log())
            if given != ipaddress.ip_address(here):
                raise RefusedError(
                    f"{client.place} on {client.endpoint.host.name} was given address {given}, "
                    f"wanted {here}"
                )
            configure(client, here=here, there=there, mtu_bytes=mtu_bytes)
        reported = self._reported()
        paths, negotiated = [], []
        for number, client, server in zip(numbers, clients, servers, strict=True):
            here, there = inner_addresses(site, number, params)
            negotiated.append(self._agreed(client, server, reported[number]))
            # It has the address by then, but with IPv6 no route to the client.
            configure(server, here=there, there=here, mtu_bytes=mtu_bytes)
            path = traffic_path(site, number, client, server, params=params, mtu_bytes=mtu_bytes)
            prove_path(site, path, client, server)
            paths.append(path)
        ports = tuple(FIRST_PORT + number for number in range(params.count))
        dtls = params.transport == "dtls"
        return TunnelUp(
            paths=tuple(paths),
            negotiated=tuple(negotiated),
            wire=WireRule(
                encrypted=True,
                describe=f"{'UDP or ' if dtls else ''}TCP to or from port {shown_ports(ports)}",
                ip_protocols=(UDP, TCP) if dtls else (TCP,),
                udp_ports=ports if dtls else (),
                tcp_ports=ports,
                ip_version=outer_version(params),
            ),
            processes=self.processes(),
        )

    def check_agreed(self) -> None:
        """Ask both ends again: without DTLS openconnect goes on inside TLS."""
        for (client, server), reported in zip(self._pairs, self._reported(), strict=True):
            self._hold(client, server, reported)

    def encapsulation(self, agreed: Negotiated) -> Encapsulation:
        """Return the layers of one packet; in TLS those of one that finds the stream idle."""
        layers = self._layers()
        return Encapsulation(
            lambda _inner_bytes: layers,
            agreed.mtu_bytes,
            outer_ip=outer_version(self.params),
            stream=self.params.transport == "tls",
        )

    def _layers(self) -> tuple[Layer, ...]:
        ip = ip_layer(outer_version(self.params))
        gcm = self.params.cipher != "CHACHA20-POLY1305"
        if self.params.transport == "tls":
            return (
                ip,
                tcp_layer(),
                _RECORD,
                Layer("CSTP header", _CSTP_BYTES, f"{_DRAFT}, the CSTP channel protocol"),
                Layer("TLS content type and tag", 17, "RFC 8446 section 5.2"),
            )
        return (
            ip,
            udp_layer(),
            _DTLS_RECORD,
            *((Layer("explicit nonce", 8, "RFC 5288 section 3"),) * gcm),
            Layer("packet type", 1, f"{_DRAFT}, the DTLS channel protocol"),
            Layer("authentication tag", 16, "RFC 5288 section 3" if gcm else "RFC 7905 section 2"),
        )

    def _put(self, site: Site) -> None:
        server = site.server.host
        folder = _folder(server)
        identity = RunAuthority(site.prefix, datetime.now(UTC)).issue(f"{site.prefix} s", "server")
        server.put(folder / "server.crt", identity.certificate)
        server.put(folder / "server.key", identity.key)
        self._pin = _pin(identity.certificate)
        self._passwords = [token_hex(16) for _ in client_ends(site)]
        for place, password in enumerate(self._passwords):
            words = ["ocpasswd", "--passwd", str(folder / "passwd"), _user(place)]
            server.run(words, stdin=(f"{password}\n" * 2).encode())
        for number in range(self.params.paths):
            client, _ = inner_addresses(site, number, self.params)
            explicit = "explicit-ipv4" if self.params.inner == "ipv4" else "explicit-ipv6"
            own = (0, number) if site.clients else (number, 0)
            user = folder / f"users-{own[0]}" / _user(own[1])
            server.put(user, f"{explicit} = {client}\n".encode())

    def _priority(self, side: Side) -> str | None:
        """Return what an end offers as GnuTLS writes it; None: its own defaults."""
        if side == "client":
            return None
        # A group with a short name, so that occtl's 63 characters still show the cipher.
        return (
            f"NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-DTLS1.2:-GROUP-ALL:+GROUP-X25519:-CIPHER-ALL:"
            f"+{self.params.cipher}"
        )

    def forwarded(self) -> tuple[ServerPorts, ...]:
        """Return the ports of each server."""
        tcp = ServerPorts("tcp", FIRST_PORT, self.params.count)
        return (tcp, replace(tcp, protocol="udp")) if self.params.transport == "dtls" else (tcp,)

    def _start_server(self, site: Site, number: int) -> Daemon:
        host, folder, params = site.server.host, _folder(site.server.host), self.params
        _, address = inner_addresses(site, number, params)
        _, outer = outer_addresses(site, params)
        interface = inner_interface(site, "a", number, "server")
        port = FIRST_PORT + number
        socket = folder / f"s{number}"
        check_socket(f"ocserv on {host.name}", socket, more=_SOCKET_SUFFIX)
        # ocserv takes off what it adds to a packet; in TLS, the lower headers as if it were UDP.
        layers = self._layers()
        lower = layers[0].bytes + _CSTP_BYTES
        added = lower if params.transport == "tls" else sum(layer.bytes for layer in layers)
        # The network of the tunnel, or of the gateway, in which the server takes the first address.
        own = f"{address}/{30 if params.inner == 'ipv4' else 64}"
        inside = own if params.clients is None else gateway_address(address)
        subnet = ipaddress.ip_network(inside, strict=False)
        network = (
            [f"ipv4-network = {subnet}"]
            if params.inner == "ipv4"
            else [f"ipv6-network = {subnet}", "ipv6-subnet-prefix = 128"]
        )
        lines = [
            f'auth = "plain[passwd={folder / "passwd"}]"',
            f"listen-host = {outer}",
            f"tcp-port = {port}",
            *([f"udp-port = {port}"] if params.transport == "dtls" else []),
            "run-as-user = root",
            "run-as-group = root",
            f"socket-file = {socket}",
            f"pid-file = {folder / f'pid-{number}'}",
            f"occtl-socket-file = {_control(folder, number)}",
            "use-occtl = true",
            f"server-cert = {folder / 'server.crt'}",
            f"server-key = {folder / 'server.key'}",
            f'tls-priorities = "{self._priority("server")}"',
            # Its filter of system calls ends workers on kernels that are newer than it.
            "isolate-workers = false",
            f"max-clients = {params.clients or 1}",
            "max-same-clients = 1",
            "max-ban-score = 0",
            "rekey-time = 0",
            *(f"{what} = {_NEVER_S}" for what in ("keepalive", "dpd", "mobile-dpd")),
            f"switch-to-tcp-timeout = {_NEVER_S}",
            "try-mtu-discovery = false",
            f"mtu = {params.mtu_bytes + added}",
            f"compression = {'false' if params.compression == 'none' else 'true'}",
            "cisco-client-compat = false",
            "dtls-legacy = false",
            # It numbers the devices of its clients behind this.
            f"device = {interface}",
            "predictable-ips = true",
            "ping-leases = false",
            *network,
            f"config-per-user = {folder / f'users-{number}'}/",
            "log-level = 3",
        ]
        config = folder / f"ocserv-{number}.conf"
        host.put(config, "\n".join([*lines, ""]).encode())
        process = host.spawn(
            ["ocserv", "--foreground", *_log_words(host), "--config", str(config)],
            name=unique_name(f"ocserv-server-{number}"),
        )
        return self._keep(site, "server", number, f"{interface}0", process)

    def _start_client(self, site: Site, number: int) -> Daemon:
        host = site.client_of(number).host
        account, port = (number, 0) if site.clients else (0, number)
        interface = inner_interface(site, "a", number, "client")
        _, reached = reached_addresses(site, self.params)
        priority = self._priority("client")
        script = _folder(host) / "script"
        host.put(script, SCRIPT)
        lines = [
            "protocol=anyconnect",
            f"user={_user(account)}",
            "passwd-on-stdin",
            # Stateless: of what ocserv has, LZ4 (and LZS, which it likes less).
            f"compression={'none' if self.params.compression == 'none' else 'stateless'}",
            "non-inter",
            "no-proxy",
            f"servercert={self._pin}",
            f"interface={interface}",
            # Nothing is to be done to routes and names; what the server gave is only reported.
            f"script=sh {shlex.quote(str(script))}",
            *(["no-dtls"] if self.params.transport == "tls" else []),
            *([f"gnutls-priority={priority}"] if priority else []),
        ]
        config = _folder(host) / f"openconnect-{number}.conf"
        host.put(config, "\n".join([*lines, ""]).encode())
        process = host.spawn(
            [
                *("openconnect", "--config", str(config)),
                f"https://{with_port(reached, FIRST_PORT + port)}",
            ],
            name=unique_name(f"ocserv-client-{number}"),
            stdin=f"{self._passwords[account]}\n".encode(),
        )
        return self._keep(site, "client", number, interface, process)

    def _keep(self, site: Site, side: Side, number: int, interface: str, process: Any) -> Daemon:
        daemon = Daemon(
            f"ocserv {side} of tunnel {number}",
            site.client_of(number) if side == "client" else site.server,
            interface,
            process,
            last_words,
        )
        self._daemons.append(daemon)
        return daemon

    def _wait_for_logins(self, clients: list[Daemon], servers: list[Daemon]) -> None:
        try:
            wait_for(
                clients,
                "log in",
                self._is_connected,
                limit_s=_LOGIN_LIMIT_S,
                refused=self._refused,
            )
        except TunnelError as error:
            # The server does not end, and reports less to a client than to its log.
            words = "; ".join(dict.fromkeys(server.last_words() for server in servers))
            raise TunnelError(f"{error}; last messages of the server: {words[:600]}") from error

    def _log_in(self, site: Site, number: int, gateway: Daemon) -> Daemon:
        """Start a client of a gateway and wait for its login.

        Of hundreds of clients one's DTLS handshake gets no answer (ocserv 1.1.6): it tries again.
        """
        for left in reversed(range(_LOGINS)):
            client = self._start_client(site, number)
            try:
                self._wait_for_logins([client], [gateway])
            except TunnelError:
                if not left or read_no_dtls(client.log()) is None:
                    raise
                client.process.stop()
                self._daemons.remove(client)
            else:
                return client
        raise AssertionError("the last login returns or raises")

    def _is_connected(self, log: str) -> bool:
        dtls = self.params.transport == "tls" or read_client(log).dtls is not None
        return dtls and read_address(log) is not None

    def _refused(self, log: str) -> str | None:
        # It would go on inside TLS.
        return read_no_dtls(log) if self.params.transport == "dtls" else None

    def _users(self, server: Daemon, wanted: int, number: int = 0) -> tuple[User, ...]:
        """Ask a server, by its number, for its clients."""
        host = server.endpoint.host
        control = str(_control(_folder(host), number))
        shown = host.run(["occtl", "--socket-file", control, "--json", "show", "users"])
        return read_users(shown.stdout, wanted)

    def _reported(self) -> list[Session]:
        """Return what the servers report of each tunnel now; a gateway is asked once."""
        if self.params.clients is None:
            return [
                self._users(server, 1, number)[0].session
                for number, (_, server) in enumerate(self._pairs)
            ]
        users = {user.name: user for user in self._users(self._pairs[0][1], self.params.clients)}
        return [
            users[_user(number)].session if _user(number) in users else Session(None, None, None)
            for number in range(len(self._pairs))
        ]

    def _hold(self, client: Daemon, server: Daemon, reported: Session) -> None:
        """Hold what both ends report to the study."""
        params, dtls = self.params, self.params.transport == "dtls"
        wanted = Session(
            tls=("TLS1.3", params.cipher),
            dtls=("DTLS1.2", params.cipher) if dtls else None,
            mtu_bytes=params.mtu_bytes,
            compression=params.compression,
        )
        for daemon, said in ((client, read_client(client.log())), (server, reported)):
            if said != wanted:
                raise RefusedError(
                    f"{daemon.place} on {daemon.endpoint.host.name} runs with {said}, the "
                    f"study asks for {wanted}"
                )

    def _agreed(self, client: Daemon, server: Daemon, reported: Session) -> Negotiated:
        self._hold(client, server, reported)
        params, dtls = self.params, self.params.transport == "dtls"
        words = client.endpoint.host.run(["openconnect", "--version"]).text().split()[:3:2]
        return Negotiated(
            cipher=params.cipher,
            version=f"{' '.join(words)[:60]} / {self._version}",
            implementation="openconnect",
            mtu_bytes=params.mtu_bytes,
            data_path=DataPath.USER_SPACE,
            details={
                "transport": "DTLS 1.2 over UDP" if dtls else "TLS 1.3 over TCP",
                "auth": "in the AEAD cipher",
                "key_exchange": "ECDHE with X25519"
                + ("; DTLS by a key from the TLS session" if dtls else ""),
                "login": "password; the server's key is pinned",
                "compression": params.compression,
            },
        )


def _user(place: int) -> str:
    """Return the name of an account."""
    return f"tunnelmark{place}"


def _device(gateway: Daemon, users: Sequence[User], name: str) -> str:
    """Return the interface that a gateway has for a client."""
    device = next((user.device for user in users if user.name == name), None)
    if device is None:
        raise TunnelError(
            f"{gateway.place} on {gateway.endpoint.host.name} shows no device of user {name}"
        )
    return device


def _log_words(host: Host) -> tuple[str, ...]:
    """Return the option by which its log is ours: ocserv 1.5 writes to syslog without it.

    ocserv 1.1 has no such option, and needs none.
    """
    known = host.run(["ocserv", "--help"], check=False)
    return ("--log-stderr",) if b"--log-stderr" in known.stdout + known.stderr else ()


def _pin(certificate: bytes) -> str:
    """Return what openconnect knows a server's key by (RFC 7469 section 2.4)."""
    key = x509.load_pem_x509_certificate(certificate).public_key()
    der = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return f"pin-sha256:{base64.b64encode(hashlib.sha256(der).digest()).decode()}"


def _folder(host: Host) -> PurePosixPath:
    return host.work_dir / "ocserv"


def _control(folder: PurePosixPath, number: int) -> PurePosixPath:
    # Short: the path of a socket has at most 107 characters.
    return folder / f"c{number}"
