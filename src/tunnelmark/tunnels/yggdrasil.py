"""Yggdrasil: two nodes that peer over the link; an address inside follows from a node's key."""

import json
import re
from collections.abc import Mapping
from functools import partial
from ipaddress import IPv6Address
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field

from tunnelmark.model.errors import RefusedError
from tunnelmark.model.host import Host, Need
from tunnelmark.model.names import unique_name
from tunnelmark.model.tunnel import (
    CipherLibrary,
    DataPath,
    Negotiated,
    ServerPorts,
    Side,
    Site,
    TrafficPath,
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
    wait_for,
)
from tunnelmark.tunnels.protocols import TCP
from tunnelmark.tunnels.support import inner_interface, quieten

PROGRAM: Final = "yggdrasil"
FIRST_PORT: Final = 9001
"""Tunnel i is served on this plus i."""
LARGEST_MTU_BYTES: Final = 53049
"""What version 0.4 takes on Linux; more it cuts down to this."""

_START_LIMIT_S: Final = 15.0
_PEER_LIMIT_S: Final = 30.0
_VERSION: Final = re.compile(r"Build version: (\S{1,40})")
_PEERED: Final = re.compile(r"Connected (?:in|out)bound TLS: ([0-9a-f:]{1,39})@")
_KEY_BITS: Final = 256
_PREFIX: Final = 2  # 200::/7


class YggdrasilParams(TunnelParams):
    """What a study can set."""

    inner: Literal["ipv6"] = Field("ipv6", description="IP version of the traffic inside")
    mtu_bytes: int = Field(
        LARGEST_MTU_BYTES,
        ge=1280,
        le=LARGEST_MTU_BYTES,
        description="MTU of the inner interface; in a stream, packets longer than the link's are "
        "not fragmented but cut into segments",
    )


class YggdrasilTunnel(DaemonTunnel):
    """``count`` pairs of nodes, each with a network of its own, the client calling by TLS."""

    kind: ClassVar[str] = "yggdrasil"
    title: ClassVar[str] = "Yggdrasil"
    library: ClassVar[CipherLibrary] = "Go"
    params_type: ClassVar[type[TunnelParams]] = YggdrasilParams
    programs: ClassVar[Mapping[str, str]] = MappingProxyType({PROGRAM: PROGRAM})
    deviations: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "MulticastInterfaces": "a node looks for its peer nowhere but at the address of the "
            "study",
            "AllowedPublicKeys": "nobody but the other end may peer",
            "AdminListen": "no socket that two nodes would share",
        }
    )
    params: YggdrasilParams

    @property
    def modelled(self) -> bool:
        """Its header has numbers of variable length: the capture shows what a packet costs."""
        return False

    def need(self, host: Host) -> Need:  # noqa: ARG002 - the same on every host
        """Need Yggdrasil and a TUN device."""
        return Need(
            programs={PROGRAM: "yggdrasil", "ip": "iproute2", "ping": "iputils-ping"},
            kernel=("tun",),
        )

    def bring_up(self, site: Site) -> TunnelUp:
        """Make keys, start servers, then clients, and see that each peered with the other."""
        params = self.params
        paths = []
        version = _version(site.client.host)
        for number in range(params.count):
            keys: dict[Side, Ed25519PrivateKey] = {
                "client": Ed25519PrivateKey.generate(),
                "server": Ed25519PrivateKey.generate(),
            }
            inner = {side: address_of(_public(key)) for side, key in keys.items()}
            server = self._start(site, number, "server", keys)
            wait_for([server], "start", _listening, limit_s=_START_LIMIT_S)
            client = self._start(site, number, "client", keys)
            for end, peer in ((client, inner["server"]), (server, inner["client"])):
                wait_for([end], "peer", partial(_peered, peer), limit_s=_PEER_LIMIT_S)
                host, device = end.endpoint.host, ("dev", end.interface)
                quieten(host, end.interface)
                # Each node claims the whole prefix for its own device.
                host.run(["ip", "-6", "route", "replace", f"{peer}/128", *device])
                check_interface(end, mtu_bytes=params.mtu_bytes)
            path = TrafficPath(
                name=str(number),
                client_address=str(inner["client"]),
                server_address=str(inner["server"]),
                client_interface=client.interface,
                server_interface=server.interface,
                mtu_bytes=params.mtu_bytes,
            )
            prove_path(site, path, client, server)
            paths.append(path)
        ports = tuple(FIRST_PORT + number for number in range(params.count))
        agreed = Negotiated(
            cipher=None,  # the program does not report it
            version=version,
            implementation=PROGRAM,
            mtu_bytes=params.mtu_bytes,
            data_path=DataPath.USER_SPACE,
            details={"transport": "tls over tcp", "addresses": "from the keys of the nodes"},
        )
        return TunnelUp(
            paths=tuple(paths),
            negotiated=tuple(agreed for _ in ports),
            wire=WireRule(
                encrypted=True,
                describe=f"TCP to or from port {shown_ports(ports)}",
                ip_protocols=(TCP,),
                tcp_ports=ports,
                ip_version=outer_version(params),
            ),
            processes=self.processes(),
        )

    def forwarded(self) -> tuple[ServerPorts, ...]:
        """Return the port of each server."""
        return (ServerPorts("tcp", FIRST_PORT, self.params.count),)

    def _start(
        self, site: Site, number: int, side: Side, keys: Mapping[Side, Ed25519PrivateKey]
    ) -> Daemon:
        endpoint = site.client if side == "client" else site.server
        other: Side = "server" if side == "client" else "client"
        interface = inner_interface(site, "y", number, side)
        addresses = (reached_addresses if side == "client" else outer_addresses)(site, self.params)
        place = [f"tls://{with_port(addresses[1], FIRST_PORT + number)}"]
        own, peer = keys[side], keys[other]
        config: dict[str, Any] = {
            "Peers": place if side == "client" else [],
            "Listen": place if side == "server" else [],
            "AdminListen": "none",
            "MulticastInterfaces": [],
            "AllowedPublicKeys": [_public(peer).hex()],
            "PublicKey": _public(own).hex(),
            # The form of Go's crypto/ed25519: seed, then public key.
            "PrivateKey": (_seed(own) + _public(own)).hex(),
            "IfName": interface,
            "IfMTU": self.params.mtu_bytes,
        }
        host = endpoint.host
        path = PurePosixPath(host.work_dir) / f"{unique_name(f'yggdrasil-{number}')}.conf"
        host.put(path, json.dumps(config, indent=1).encode())
        process = host.spawn(
            [PROGRAM, "-useconffile", str(path)], name=unique_name(f"yggdrasil-{side}-{number}")
        )
        daemon = Daemon(
            f"yggdrasil {side} of tunnel {number}", endpoint, interface, process, last_complaint
        )
        self._daemons.append(daemon)
        return daemon


def address_of(public_key: bytes) -> IPv6Address:
    """Return the address of a node: 02, the number of leading ones of the inverted key, the rest.

    Source: Yggdrasil 0.4 src/address/address.go, AddrForKey.
    """
    bits = f"{int.from_bytes(public_key, 'big') ^ (1 << _KEY_BITS) - 1:0{_KEY_BITS}b}"
    ones = len(bits) - len(bits.lstrip("1"))
    # The zero that ends the ones is left out too.
    rest = bits[ones + 1 :][:112].ljust(112, "0")
    return IPv6Address(bytes([_PREFIX, ones]) + int(rest, 2).to_bytes(14, "big"))


def _listening(log: str) -> bool:
    return "TLS listener started" in log


def _peered(peer: IPv6Address, log: str) -> bool:
    # The device may come after the peer.
    return "Interface MTU: " in log and any(
        IPv6Address(found) == peer for found in _PEERED.findall(log)
    )


def _version(host: Host) -> str:
    """Return what the program says; Debian's build says nothing but unknown."""
    said = host.run([PROGRAM, "-version"], check=False).text()
    found = _VERSION.search(said)
    if found is None:
        raise RefusedError(f"{PROGRAM} on {host.name} does not report its version: {said[:80]!r}")
    if found.group(1) != "unknown":
        return f"{PROGRAM} {found.group(1)}"
    package = host.run(["dpkg-query", "-W", "-f", "${Version}", PROGRAM], check=False)
    return f"{PROGRAM} {package.text().strip() or 'of unknown version'} (package)"


def _public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def _seed(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.Raw, serialization.PrivateFormat.Raw, serialization.NoEncryption()
    )
