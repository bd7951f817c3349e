"""tinc 1.0: a mesh of two, packets over UDP, keys exchanged over TCP, all in user space."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import ClassVar, Final, Literal

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from pydantic import Field

from tunnelmark.model.errors import RefusedError, TunnelError
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
    alone,
    check_inner_mtu,
    inner_addresses,
    outer_addresses,
    outer_version,
    reached_addresses,
)
from tunnelmark.tunnels.base import TunnelParams
from tunnelmark.tunnels.daemon import (
    Daemon,
    DaemonTunnel,
    configure,
    last_complaint,
    prove_path,
    shown_ports,
    traffic_path,
    wait_for,
)
from tunnelmark.tunnels.protocols import TCP, UDP
from tunnelmark.tunnels.support import inner_interface, wait_until

FIRST_PORT: Final = 655
"""Tunnel i listens on this plus i, with UDP and TCP (IANA: tinc)."""

_START_LIMIT_S: Final = 15.0
# A connection that failed is tried again after 5 s, 10 s ….
_MEET_LIMIT_S: Final = 20.0
_SHOWN_LIMIT_S: Final = 10.0
_KEY_BITS: Final = 2048
_MAC_BYTES: Final = 4
# Longer than any run: a new key during the run would fall into some trials and not others.
_KEY_LIFE_S: Final = 1_000_000
# What tinc names ciphers and digests by: numbers of OpenSSL (obj_mac.h).
_CIPHER_NUMBER: Final = {"AES-128-CBC": 419, "AES-256-CBC": 427}
_DIGEST_NUMBER: Final = {"SHA1": 64, "SHA256": 672}
_NODE: Final = re.compile(
    r"^ (\w+) at \S+ port \d+ cipher (\d{1,5}) digest (\d{1,5}) maclength (\d{1,3}) "
    r"compression (\d{1,2}) ",
    re.MULTILINE,
)
_REFUSED: Final = re.compile(
    # A session key that was encrypted for somebody else makes all that follows unreadable.
    r"^(?:Bogus data received|Possible intruder|Error while (?:decrypting|processing|verifying)"
    r"|Peer .* had unknown|Intruder|Unable to (?:send|read) .*key).{0,200}",
    re.MULTILINE,
)
# The lines that follow a failed connection do not say why it failed; the one before them does.
_NOISE: Final = re.compile(
    r"^(?:Can't write to Linux tun/tap device|total bytes|Got TERM"
    r"|Closing connection with|Could not set up a meta connection|Trying to re-establish)"
)


class TincParams(TunnelParams):
    """What a study can set."""

    cipher: Literal["AES-128-CBC", "AES-256-CBC"] = Field(
        "AES-256-CBC", description="packet cipher; tinc's own default is AES-256-CBC"
    )
    digest: Literal["SHA1", "SHA256"] = Field(
        "SHA256", description="hash of the packet authentication, of which tinc sends 4 bytes"
    )
    mtu_bytes: int = Field(
        1400,
        ge=576,
        le=1500,
        description="MTU of the inner interface; tinc's own probing for the path's MTU is off, so "
        "that it adds no packets",
    )


@dataclass(frozen=True)
class _Keys:
    """An RSA key pair in PEM as tinc reads it (PKCS #1)."""

    private: bytes
    public: bytes


class TincTunnel(DaemonTunnel):
    """``count`` pairs of tinc daemons, each pair a network of its own."""

    kind: ClassVar[str] = "tinc"
    title: ClassVar[str] = "tinc"
    library: ClassVar[CipherLibrary] = "OpenSSL"
    params_type: ClassVar[type[TunnelParams]] = TincParams
    programs: ClassVar[Mapping[str, str]] = MappingProxyType({"tincd": "tincd"})
    deviations: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "PMTUDiscovery = no": "its probes of up to the full MTU would add to the workload's "
            "traffic on the link; the MTU of the inner interface is set instead",
            "ClampMSS = no": "it clamps to the path MTU that it did not probe",
            f"KeyExpire = {_KEY_LIFE_S}": "a new key would affect some trials and not others",
        }
    )
    params: TincParams

    def __init__(self, params: TunnelParams) -> None:
        """Take the parameters of the study."""
        super().__init__(params)
        self._pairs: list[tuple[Daemon, Daemon]] = []

    def need(self, host: Host) -> Need:  # noqa: ARG002 - the same on every host
        """Need tinc 1.0, a TUN device, and kill(1) to ask the daemon what it agreed on."""
        return Need(
            programs={
                "tincd": "tinc",
                "kill": "procps",
                "ip": "iproute2",
                "ping": "iputils-ping",
            },
            kernel=("tun",),
        )

    def bring_up(self, site: Site) -> TunnelUp:
        """Start servers, then clients; send a packet, then ask both ends what they agreed on."""
        numbers = range(self.params.count)
        check_inner_mtu(self.kind, self.params.inner, self.params.mtu_bytes)
        for number in numbers:
            self._put(site, number)
        servers = [self._start(site, "server", number) for number in numbers]
        wait_for(servers, "start", _is_ready, limit_s=_START_LIMIT_S)
        clients = [self._start(site, "client", number) for number in numbers]
        wait_for(
            [*clients, *servers],
            "meet its peer",
            lambda log: " activated" in log,
            limit_s=_MEET_LIMIT_S,
            refused=_refused,
        )
        paths, negotiated = [], []
        mtu_bytes = self.params.mtu_bytes
        for number, client, server in zip(numbers, clients, servers, strict=True):
            here, there = inner_addresses(site, number, self.params)
            configure(client, here=here, there=there, mtu_bytes=mtu_bytes)
            configure(server, here=there, there=here, mtu_bytes=mtu_bytes)
            path = traffic_path(
                site, number, client, server, params=self.params, mtu_bytes=mtu_bytes
            )
            # The keys of the packets are asked for with the first one.
            prove_path(site, path, client, server)
            self._pairs.append((client, server))
            self._check_pair(client, server)
            paths.append(path)
            negotiated.append(self._negotiated(client, server))
        ports = tuple(FIRST_PORT + number for number in numbers)
        return TunnelUp(
            paths=tuple(paths),
            negotiated=tuple(negotiated),
            wire=WireRule(
                encrypted=True,
                describe=f"UDP or TCP to or from port {shown_ports(ports)}",
                ip_protocols=(UDP, TCP),
                udp_ports=ports,
                tcp_ports=ports,
                ip_version=outer_version(self.params),
            ),
            processes=self.processes(),
        )

    def check_agreed(self) -> None:
        """Ask both ends again what they send to their peer with."""
        for client, server in self._pairs:
            self._check_pair(client, server)

    def encapsulation(self, agreed: Negotiated) -> Encapsulation:
        """Return the layers of a packet of protocol 17, as net_packet.c of tinc 1.0 makes them."""

        def layers(inner_bytes: int) -> tuple[Layer, ...]:
            number = Layer("sequence number", 4, "tinc manual, Encryption of VPN packets")
            # In router mode, too, tinc carries Ethernet frames (net_packet.c, vpn_packet_t).
            ethernet = Layer("inner Ethernet header", 14, "tinc net.h, vpn_packet_t")
            encrypted = number.bytes + ethernet.bytes + inner_bytes
            return (
                ip_layer(outer_version(self.params)),
                udp_layer(),
                number,
                ethernet,
                # The IV is fixed by the key exchange and not sent.
                Layer("padding", 16 - encrypted % 16, "RFC 5652 section 6.3"),
                Layer("HMAC", _MAC_BYTES, "tinc.conf(5), MACLength"),
            )

        return Encapsulation(layers, agreed.mtu_bytes, outer_ip=outer_version(self.params))

    def forwarded(self) -> tuple[ServerPorts, ...]:
        """Return the ports of each server: TCP for what keeps a connection, UDP for packets."""
        return tuple(ServerPorts(one, FIRST_PORT, self.params.count) for one in ("tcp", "udp"))

    def _put(self, site: Site, number: int) -> None:
        keys: dict[Side, _Keys] = {"client": self._keys("client"), "server": self._keys("server")}
        sides = ("client", "server")
        addresses = dict(zip(sides, inner_addresses(site, number, self.params), strict=True))
        outer = dict(zip(sides, outer_addresses(site, self.params), strict=True))
        _, reached = reached_addresses(site, self.params)
        hosts: dict[Side, str] = {}
        for side, pair in keys.items():
            lines = [f"Address = {reached}"] if side == "server" else []
            lines += [
                f"Port = {FIRST_PORT + number}",
                f"Subnet = {alone(addresses[side])}",
                f"Cipher = {self._cipher(side).lower()}",
                f"Digest = {self.params.digest.lower()}",
                f"MACLength = {_MAC_BYTES}",
                "Compression = 0",
                "PMTUDiscovery = no",
                "ClampMSS = no",
            ]
            hosts[side] = "\n".join([*lines, pair.public.decode()])
        for side, endpoint in (("client", site.client), ("server", site.server)):
            folder = _folder(endpoint.host, number)
            lines = [
                f"Name = {side}",
                "Mode = router",
                "DeviceType = tun",
                f"Interface = {inner_interface(site, 't', number, side)}",
                f"AddressFamily = {self.params.outer}",
                f"BindToAddress = {outer[side]}",
                f"KeyExpire = {_KEY_LIFE_S}",
                *(["ConnectTo = server"] if side == "client" else []),
            ]
            put = endpoint.host.put
            put(folder / "tinc.conf", "\n".join([*lines, ""]).encode())
            put(folder / "rsa_key.priv", keys[side].private)
            for name, text in hosts.items():
                put(folder / "hosts" / name, text.encode())

    def _cipher(self, side: Side) -> str:  # noqa: ARG002 - for drivers that want others by side
        return self.params.cipher

    def _keys(self, side: Side) -> _Keys:  # noqa: ARG002 - for drivers that want others by side
        key = rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS)
        return _Keys(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            ),
            key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.PKCS1
            ),
        )

    def _start(self, site: Site, side: Side, number: int) -> Daemon:
        endpoint = site.client if side == "client" else site.server
        host = endpoint.host
        folder = _folder(host, number)
        process = host.spawn(
            [
                *("tincd", "--config", str(folder), "--no-detach", "--debug=1"),
                *(f"--pidfile={folder / 'pid'}",),
            ],
            name=unique_name(f"tinc-{side}-{number}"),
        )
        daemon = Daemon(
            f"tinc {side} of tunnel {number}",
            endpoint,
            inner_interface(site, "t", number, side),
            process,
            lambda log: last_complaint(log, noise=_NOISE),
        )
        self._daemons.append(daemon)
        return daemon

    def _check_pair(self, client: Daemon, server: Daemon) -> None:
        for daemon, peer in ((client, "server"), (server, "client")):
            self._check(daemon, peer)

    def _check(self, daemon: Daemon, peer: str) -> None:
        """Raise unless the daemon itself says that it sends to its peer as the study asks."""
        host = daemon.endpoint.host
        before = daemon.log()
        # tincd(8): on USR2 it writes all nodes with what was agreed with each into its log.
        host.run(["kill", "-USR2", str(daemon.process.host_pid)])

        def shown() -> dict[str, dict[str, int]] | None:
            # An earlier list of the same log is no answer.
            log = daemon.log()
            return read_nodes(log) if log != before else None

        nodes = wait_until(
            shown,
            limit_s=_SHOWN_LIMIT_S,
            late=lambda: (
                f"{daemon.place} on {host.name} did not report what it negotiated with its peer "
                f"within {_SHOWN_LIMIT_S:g} s: {daemon.last_words()}"
            ),
        )
        wanted = {
            "cipher": _CIPHER_NUMBER[self.params.cipher],
            "digest": _DIGEST_NUMBER[self.params.digest],
            "MAC length": _MAC_BYTES,
            "compression": 0,
        }
        # tinc forgets a peer that is out of reach; its interface and the daemons stay.
        if (agreed := nodes.get(peer)) is None:
            raise TunnelError(f"{daemon.place} on {host.name} lost its connection to the {peer}")
        for what, number in wanted.items():
            if agreed[what] != number:
                raise RefusedError(
                    f"{daemon.place} on {host.name} sends to the {peer} with {what} "
                    f"{agreed[what]}, the study asks for {number}"
                )

    def _negotiated(self, client: Daemon, server: Daemon) -> Negotiated:
        versions = dict.fromkeys(
            match.group(1)
            for daemon in (client, server)
            if (match := re.search(r"^tincd (\S{1,20}) starting", daemon.log(), re.MULTILINE))
        )
        return Negotiated(
            cipher=self.params.cipher,
            version=f"tinc {' / '.join(versions) or 'of unknown version'}",
            implementation="tincd",
            mtu_bytes=self.params.mtu_bytes,
            data_path=DataPath.USER_SPACE,
            details={
                "auth": f"{self.params.digest}, {_MAC_BYTES} bytes of it sent",
                "compression": "none",
                "key_exchange": f"RSA {_KEY_BITS} over TCP",
                "path_mtu_discovery": "off",
            },
        )


def read_nodes(log: str) -> dict[str, dict[str, int]] | None:
    """Return what was agreed with each node, by name, from the last list in a log of tincd.

    The daemon's own entry, in which everything is 0, is left out. None: there is no whole list.
    """
    # A report begins with the statistics of the device: one that has begun voids those before it.
    report = log.rpartition("Statistics for ")[2]
    last, finished, _ = report.partition("Nodes:\n")[2].partition("End of nodes.")
    if not finished:
        return None
    names = ("cipher", "digest", "MAC length", "compression")
    return {
        match.group(1): dict(zip(names, map(int, match.groups()[1:]), strict=True))
        for match in _NODE.finditer(last)
    }


def _is_ready(log: str) -> bool:
    return re.search(r"^Ready$", log, re.MULTILINE) is not None


def _refused(log: str) -> str | None:
    match = _REFUSED.search(log)
    return match.group(0) if match else None


def _folder(host: Host, number: int) -> PurePosixPath:
    return host.work_dir / f"tinc-{number}"
