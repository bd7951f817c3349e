"""IPsec ESP between two hosts, keyed by strongSwan: the kernel's ESP, or libipsec in user space."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import ClassVar, Final, Literal

from pydantic import Field, model_validator

from tunnelmark.model.errors import TunnelError
from tunnelmark.model.esp import ESP_SUITES, esp
from tunnelmark.model.host import Host, Need
from tunnelmark.model.overhead import Encapsulation, IpVersion, best_inner_mtu
from tunnelmark.model.tunnel import Endpoint, Negotiated, Site, TrafficPath, TunnelUp
from tunnelmark.tunnels.base import Tunnel, TunnelParams
from tunnelmark.tunnels.ipsec_suites import (
    SUITE_NAMES,
    Agreement,
    Mode,
    Suite,
    check_pair,
    esp_rule,
)
from tunnelmark.tunnels.pki import RunAuthority
from tunnelmark.tunnels.strongswan import (
    LIBIPSEC_PROGRAMS,
    PROGRAMS,
    Charon,
    Side,
    last_words_of,
)
from tunnelmark.tunnels.strongswan_config import Settings, child, connection
from tunnelmark.tunnels.support import (
    Watched,
    first_packet,
    first_problem,
    inner_interface,
    interfaces,
    quieten,
)

Implementation = Literal["kernel", "libipsec"]
IpName = Literal["ipv4", "ipv6"]

LIBIPSEC_MTU_BYTES: Final = 1400
"""What libipsec gives its TUN device (TUN_DEFAULT_MTU of strongSwan's tun_device.c)."""
LEAST_IPV6_MTU_BYTES: Final = 1280
"""RFC 8200 section 5."""

# One for all associations. The name is compiled in and libipsec routes by it: no other is possible.
_LIBIPSEC_TUN: Final = "ipsec0"
_VERSIONS: Final[dict[IpName, IpVersion]] = {"ipv4": 4, "ipv6": 6}
_PREFIX_BITS: Final[dict[IpName, int]] = {"ipv4": 32, "ipv6": 128}
_INITIATE_LIMIT_S: Final = 30
_FIRST_PACKET_LIMIT_S: Final = 15.0


class IpsecParams(TunnelParams):
    """What a study can set."""

    mode: Mode = Field(
        "tunnel",
        description="tunnel: whole packets are wrapped; transport: only what is behind their IP "
        "header, between addresses that the tunnels have on the link itself",
    )
    ike: Literal["v1", "v2"] = Field("v2", description="version of the key exchange")
    auth: Literal["psk", "cert"] = Field(
        "psk", description="how the ends prove who they are: a secret or certificates of the run"
    )
    suite: Suite = Field("AES-256-GCM", description="encryption and integrity of ESP")
    udp_encapsulation: bool | None = Field(
        None,
        description="ESP inside UDP port 4500 as through a NAT; without it as the implementation "
        "needs: off in the kernel, on with libipsec",
    )
    ipcomp: bool = Field(
        False,
        description="IPComp (deflate) before ESP, for packets that get smaller by it",
    )
    implementation: Literal["auto", "kernel", "libipsec"] = Field(
        "auto",
        description="auto: the kernel's ESP where it has it, else libipsec in user space if that "
        "can do what is asked for",
    )
    inner: IpName = Field("ipv4", description="IP version inside")
    outer: IpName = Field("ipv4", description="IP version outside")
    mtu_bytes: int | None = Field(
        None,
        ge=576,
        le=65535,
        description="MTU of the inner interface (tunnel mode); without it the longest packet that "
        "ESP carries unfragmented over the link, with libipsec its own default of 1400",
    )

    @model_validator(mode="after")
    def _possible(self) -> "IpsecParams":
        if self.mode == "transport":
            if self.inner != self.outer:
                raise ValueError(
                    f"inner is {self.inner} and outer {self.outer}; transport mode has one IP "
                    "header, they must be equal"
                )
            if self.mtu_bytes is not None:
                raise ValueError("mtu_bytes is the link's in transport mode, it cannot be set")
        if self.implementation == "libipsec" and (reason := self.no_libipsec()):
            raise ValueError(f"libipsec cannot do {reason} (set implementation to kernel)")
        return self

    def no_libipsec(self) -> str | None:
        """Return what libipsec cannot do of this, or None."""
        if self.mode == "transport":
            return "transport mode"
        if self.udp_encapsulation is False:
            return "ESP without UDP encapsulation"
        return "IPComp" if self.ipcomp else None


@dataclass
class _End:
    """One end of all tunnels."""

    side: Side
    endpoint: Endpoint
    charon: Charon
    undo: list[list[str]] = field(default_factory=list)
    """Commands that remove what was made in the kernel, oldest first."""

    def ip(self, *words: str, undo: Sequence[str] = ()) -> None:
        """Run the program ip; ``undo`` is noted before."""
        if undo:
            self.undo.append(["ip", *undo])
        self.endpoint.host.run(["ip", *words])


class IpsecTunnel(Tunnel):
    """``count`` pairs of security associations, each between inner addresses of its own.

    In tunnel mode they hang on one IKE association, as child SAs do; in the kernel each has an
    XFRM interface, which its selectors stand behind. In transport mode the inner addresses stand on
    the link's interfaces and each pair of them has an IKE association of its own, so that the
    baseline between the link's own addresses passes beside them unprotected.
    """

    kind: ClassVar[str] = "ipsec"
    title: ClassVar[str] = "IPsec ESP"
    params_type: ClassVar[type[TunnelParams]] = IpsecParams

    def __init__(self, params: TunnelParams) -> None:
        """Take the parameters of the study."""
        super().__init__(params)
        if not isinstance(params, IpsecParams):
            raise TypeError(f"{type(params).__name__} are not the parameters of ipsec")
        self._params: IpsecParams = params
        self._ends: list[_End] = []
        self._watched: list[Watched] = []

    def need(self, host: Host) -> Need:
        """Need strongSwan, and the kernel's ESP or a TUN device for libipsec."""
        programs = {**PROGRAMS, "ip": "iproute2", "ping": "iputils-ping"}
        if self._choose(host) == "libipsec":
            return Need(programs=programs | LIBIPSEC_PROGRAMS, kernel=("tun",))
        tunnel = ("xfrm_interface",) if self._params.mode == "tunnel" else ()
        ipcomp = ("ipcomp",) if self._params.ipcomp else ()
        return Need(programs=programs, kernel=("esp", *tunnel, *ipcomp))

    def up(self, site: Site) -> TunnelUp:
        """Start both daemons, bring up all associations, hold what both ends say to the study."""
        implementation = self._choose(site.client.host)
        mtu_bytes = self._mtu_bytes(site, implementation)
        secret = secrets.token_hex(24)
        authority = RunAuthority(site.prefix, datetime.now(UTC))
        client = self._start("client", site.client, implementation)
        server = self._start("server", site.server, implementation)
        for end in (client, server):
            end.charon.wait_ready()
            self._make_ways(site, end, implementation, mtu_bytes)
            if self._params.auth == "cert":
                identity = authority.issue(_name(site, end.side), end.side)
                end.charon.put_identity(authority.certificate, identity)
            end.charon.load(self._document(site, end, secret, implementation))
        for number in range(self._params.count):
            client.charon.initiate(_child(number), limit_s=_INITIATE_LIMIT_S, peer=server.charon)
        negotiated = self._negotiated(client, server, implementation, mtu_bytes)
        paths = self._paths(site, mtu_bytes, implementation)
        for path in paths:
            if words := first_packet(site.client.host, path, limit_s=_FIRST_PACKET_LIMIT_S):
                raise TunnelError(
                    f"no echo through ipsec tunnel {path.name} within "
                    f"{_FIRST_PACKET_LIMIT_S:g} s, though both ends have its associations: {words}"
                )
        self._watched = [
            Watched(end.endpoint.host, name, end.charon.process, last_words_of)
            for end in self._ends
            for name in dict.fromkeys(
                path.client_interface if end is client else path.server_interface for path in paths
            )
        ]
        return TunnelUp(
            paths=paths,
            negotiated=negotiated,
            wire=esp_rule(
                self._params.suite, udp_encapsulation=self._udp_encapsulation(implementation)
            ),
            processes=tuple((end.endpoint.host.name, end.charon.process) for end in self._ends),
        )

    def problem(self) -> str | None:
        """Return which daemon died or which interface vanished."""
        return first_problem(self._watched)

    def down(self) -> None:
        """Stop the daemons, whose associations go with them; remove what the kernel keeps."""
        self._watched = []
        while self._ends:
            end = self._ends.pop()
            end.charon.stop()
            while end.undo:
                # It may be gone already: half-up, or with the daemon, which is no failure here.
                end.endpoint.host.run(end.undo.pop(), check=False)

    def encapsulation(self, agreed: Negotiated) -> Encapsulation:
        """Return the layers of ESP; with IPComp those of a packet that does not get smaller.

        RFC 3173 section 2.2: such a packet is sent without any IPComp header.
        """
        return self._encapsulation(
            agreed.mtu_bytes,
            udp_encapsulation=self._udp_encapsulation(
                "libipsec" if "libipsec" in agreed.implementation else "kernel"
            ),
        )

    def _encapsulation(self, inner_mtu_bytes: int, *, udp_encapsulation: bool) -> Encapsulation:
        return esp(
            ESP_SUITES[self._params.suite],
            mode=self._params.mode,
            inner_mtu_bytes=inner_mtu_bytes,
            udp_encapsulation=udp_encapsulation,
            outer_ip=_VERSIONS[self._params.outer],
            # IPComp makes one piece of them again.
            cut_before=self._params.mode == "transport"
            and self._params.outer == "ipv4"
            and not self._params.ipcomp,
        )

    def _choose(self, host: Host) -> Implementation:
        if self._params.implementation != "auto":
            return self._params.implementation
        if host.has_kernel("esp") or self._params.no_libipsec():
            return "kernel"
        return "libipsec"

    def _udp_encapsulation(self, implementation: Implementation) -> bool:
        if self._params.udp_encapsulation is None:
            return implementation == "libipsec"
        return self._params.udp_encapsulation

    def _agreement(self, implementation: Implementation) -> Agreement:
        params = self._params
        return Agreement(
            ike_version=int(params.ike[1]),
            mode=params.mode,
            suite=params.suite,
            udp_encapsulation=self._udp_encapsulation(implementation),
            ipcomp=params.ipcomp,
        )

    def _mtu_bytes(self, site: Site, implementation: Implementation) -> int:
        link = min(site.client.mtu_bytes, site.server.mtu_bytes)
        if self._params.mode == "transport":
            return link
        model = self._encapsulation(link, udp_encapsulation=self._udp_encapsulation(implementation))
        fits = best_inner_mtu(link_mtu_bytes=link, encapsulation=model)
        wanted = self._params.mtu_bytes
        if wanted is None:
            wanted = fits if implementation == "kernel" else LIBIPSEC_MTU_BYTES
        elif wanted > fits:
            # The kernel would learn the same from the first packet that is longer, and lose it.
            raise TunnelError(
                f"ipsec: mtu_bytes is {wanted}, ESP carries at most {fits} whole over a link of "
                f"{link} byte"
            )
        if self._params.inner == "ipv6" and wanted < LEAST_IPV6_MTU_BYTES:
            raise TunnelError(
                f"ipsec: the inner MTU is {wanted} byte, IPv6 inside needs {LEAST_IPV6_MTU_BYTES}"
            )
        return wanted

    def _start(self, side: Side, endpoint: Endpoint, implementation: Implementation) -> _End:
        charon = Charon(
            side,
            endpoint.host,
            plugins=("kernel-libipsec",) if implementation == "libipsec" else (),
        )
        end = _End(side, endpoint, charon)
        if implementation == "kernel":
            # A daemon that was killed leaves them behind.
            end.undo += [["ip", "xfrm", "state", "flush"], ["ip", "xfrm", "policy", "flush"]]
        self._ends.append(end)
        return end

    def _inner(self, site: Site, side: Side, number: int) -> tuple[str, str]:
        """Return (own, other) address inside."""
        pick = site.inner_ipv4 if self._params.inner == "ipv4" else site.inner_ipv6
        client, server = pick(number)
        return (client, server) if side == "client" else (server, client)

    def _outer(self, site: Site, side: Side) -> tuple[str, str]:
        """Return (own, other) address on the link."""
        ends = (site.client, site.server)
        own, other = ends if side == "client" else ends[::-1]
        v4 = self._params.outer == "ipv4"
        return (own.ipv4, other.ipv4) if v4 else (own.ipv6, other.ipv6)

    def _interface(self, site: Site, side: Side, number: int, chosen: Implementation) -> str:
        if self._params.mode == "transport":
            return (site.client if side == "client" else site.server).interface
        return inner_interface(site, "e", number, side) if chosen == "kernel" else _LIBIPSEC_TUN

    def _make_ways(
        self, site: Site, end: _End, implementation: Implementation, mtu_bytes: int
    ) -> None:
        """Make interfaces, addresses and routes that lead the traffic to the associations."""
        if implementation == "libipsec":
            quieten(end.endpoint.host, _LIBIPSEC_TUN)
            end.ip("link", "set", "dev", _LIBIPSEC_TUN, "mtu", str(mtu_bytes), "up")
        bits = _PREFIX_BITS[self._params.inner]
        for number in range(self._params.count):
            name = self._interface(site, end.side, number, implementation)
            own, other = self._inner(site, end.side, number)
            if self._params.mode == "transport":
                address = [f"{own}/{bits}", "dev", name]
                route = [f"{other}/{bits}", "via", self._outer(site, end.side)[1], "dev", name]
                end.ip("address", "add", *address, *_no_dad(own), undo=("address", "del", *address))
                end.ip("route", "add", *route, "src", own, undo=("route", "del", *route))
                continue
            if implementation == "kernel":
                end.ip(
                    *("link", "add", "dev", name, "type", "xfrm", "dev", end.endpoint.interface),
                    *("if_id", str(number + 1)),
                    undo=("link", "del", "dev", name),
                )
                quieten(end.endpoint.host, name)
                end.ip("link", "set", "dev", name, "mtu", str(mtu_bytes), "up")
            end.ip(*("address", "add", own, "peer", f"{other}/{bits}", "dev", name), *_no_dad(own))
            state = interfaces(end.endpoint.host).get(name)
            if state is None or state.mtu_bytes != mtu_bytes:
                raise TunnelError(
                    f"ipsec {end.side} of tunnel {number}: interface {name} is {state}, wanted up "
                    f"with MTU {mtu_bytes}"
                )

    def _document(
        self, site: Site, end: _End, secret: str, implementation: Implementation
    ) -> Settings:
        """Return what swanctl.conf says of this end."""
        numbers = range(self._params.count)
        if self._params.mode == "tunnel":
            children = {
                _child(number): self._child_settings(site, end.side, number, implementation)
                for number in numbers
            }
            addresses = self._outer(site, end.side)
            connections = {
                "tm": self._connection(site, end.side, addresses, children, implementation)
            }
        else:
            connections = {
                f"tm{number}": self._connection(
                    site,
                    end.side,
                    self._inner(site, end.side, number),
                    {_child(number): self._child_settings(site, end.side, number, implementation)},
                    implementation,
                )
                for number in numbers
            }
        secrets_: Settings = {} if self._params.auth == "cert" else {"ike-tm": {"secret": secret}}
        return {"connections": connections, "secrets": secrets_}

    def _child_settings(
        self, site: Site, side: Side, number: int, implementation: Implementation
    ) -> Settings:
        more: dict[str, str | int] = {}
        if self._params.mode == "tunnel":
            bits = _PREFIX_BITS[self._params.inner]
            own, other = self._inner(site, side, number)
            more |= {"local_ts": f"{own}/{bits}", "remote_ts": f"{other}/{bits}"}
            if implementation == "kernel":
                more |= {"if_id_in": number + 1, "if_id_out": number + 1}
        return child(
            mode=self._params.mode,
            esp_proposals=SUITE_NAMES[self._params.suite].proposal,
            ipcomp=self._params.ipcomp,
            more=more,
        )

    def _connection(
        self,
        site: Site,
        side: Side,
        addresses: tuple[str, str],
        children: Settings,
        implementation: Implementation,
    ) -> Settings:
        peer: Side = "server" if side == "client" else "client"
        certs: Settings = {"certs": "own.pem"} if self._params.auth == "cert" else {}
        return connection(
            version=int(self._params.ike[1]),
            addresses=addresses,
            udp_encapsulation=self._udp_encapsulation(implementation),
            local={"auth": self._auth(), "id": self._identity(site, side), **certs},
            remote={"auth": self._auth(), "id": self._identity(site, peer)},
            children=children,
        )

    def _auth(self) -> str:
        return "pubkey" if self._params.auth == "cert" else "psk"

    def _identity(self, site: Site, side: Side) -> str:
        name = _name(site, side)
        return f"CN={name}" if self._params.auth == "cert" else name

    def _negotiated(
        self, client: _End, server: _End, implementation: Implementation, mtu_bytes: int
    ) -> tuple[Negotiated, ...]:
        wanted = self._agreement(implementation)
        ends = [(end.charon.place, end.charon.sas()) for end in (client, server)]
        versions = dict.fromkeys(end.charon.version() for end in (client, server))
        kernel = client.endpoint.host.run(["uname", "-sr"]).text().strip()
        found = []
        for number in range(self._params.count):
            ike, sa = check_pair(wanted, _child(number), *ends)
            found.append(
                Negotiated(
                    cipher=self._params.suite,
                    version=" / ".join(versions),
                    implementation="kernel" if implementation == "kernel" else "libipsec",
                    mtu_bytes=mtu_bytes,
                    details={
                        "data_path": f"ESP of {kernel}"
                        if implementation == "kernel"
                        else "user space (kernel-libipsec)",
                        "key_exchange": f"IKEv{ike.version} {ike.suite}",
                        "auth": self._params.auth,
                        "mode": sa.mode.lower(),
                        "encryption": f"{sa.encryption} {sa.key_bits or ''}".strip(),
                        "integrity": sa.integrity or "in the cipher",
                        "udp_encapsulation": "on" if sa.udp_encapsulation else "off",
                        "compression": "IPComp deflate" if sa.ipcomp else "none",
                        "selectors": f"{' '.join(sa.local)} to {' '.join(sa.remote)}",
                    },
                )
            )
        return tuple(found)

    def _paths(
        self, site: Site, mtu_bytes: int, implementation: Implementation
    ) -> tuple[TrafficPath, ...]:
        paths = []
        for number in range(self._params.count):
            client, server = self._inner(site, "client", number)
            paths.append(
                TrafficPath(
                    name=str(number),
                    client_address=client,
                    server_address=server,
                    client_interface=self._interface(site, "client", number, implementation),
                    server_interface=self._interface(site, "server", number, implementation),
                    mtu_bytes=mtu_bytes,
                )
            )
        return tuple(paths)


def _child(number: int) -> str:
    return f"esp{number}"


def _name(site: Site, side: Side) -> str:
    return f"{side}.{site.prefix}"


def _no_dad(address: str) -> tuple[str, ...]:
    return ("nodad",) if ":" in address else ()
