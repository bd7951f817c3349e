"""What the drivers of IPsec share: two charons, ways into ESP, and the check of what was agreed."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from pydantic import Field, model_validator

from tunnelmark.model.errors import RefusedError, TunnelError
from tunnelmark.model.esp import ESP_SUITES, esp
from tunnelmark.model.host import Host, Need
from tunnelmark.model.overhead import (
    IP_VERSIONS,
    Encapsulation,
    best_inner_mtu,
)
from tunnelmark.model.tunnel import DataPath, Endpoint, Negotiated, Site, TrafficPath, TunnelUp
from tunnelmark.tunnels.addressing import alone, check_inner_mtu, inner_addresses, no_dad
from tunnelmark.tunnels.base import Tunnel, TunnelParams
from tunnelmark.tunnels.ipsec_suites import Agreement, Mode, Suite, check_pair, esp_rule
from tunnelmark.tunnels.strongswan import (
    LIBIPSEC_PROGRAMS,
    PROGRAMS,
    Charon,
    Side,
    last_words_of,
    settled_sas,
)
from tunnelmark.tunnels.strongswan_config import Settings
from tunnelmark.tunnels.strongswan_sas import ChildSa, IkeSa
from tunnelmark.tunnels.support import (
    Watched,
    first_packet,
    first_problem,
    inner_interface,
    interfaces,
    quieten,
)

Implementation = Literal["kernel", "libipsec"]

LIBIPSEC_MTU_BYTES: Final = 1400
"""What libipsec gives its TUN device (TUN_DEFAULT_MTU of strongSwan's tun_device.c)."""
# One for all associations. The name is compiled in and libipsec routes by it: no other is possible.
LIBIPSEC_TUN: Final = "ipsec0"
INITIATE_LIMIT_S: Final = 30

_FIRST_PACKET_LIMIT_S: Final = 15.0


class EspParams(TunnelParams):
    """What a study can set of every tunnel that is ESP."""

    suite: Suite = Field("AES-256-GCM", description="encryption and integrity of ESP")
    udp_encapsulation: bool | None = Field(
        None,
        description="ESP inside UDP port 4500 as through a NAT; without it as the implementation "
        "needs: off in the kernel, on with libipsec",
    )
    implementation: Literal["auto", "kernel", "libipsec"] = Field(
        "auto",
        description="auto: the kernel's ESP where it has it, else libipsec in user space if that "
        "can do what is asked for; libipsec on a device whose limit the kernel escapes",
    )
    mtu_bytes: int | None = Field(
        None,
        ge=576,
        le=65535,
        description="MTU of the inner interface (tunnel mode); without it the longest packet that "
        "ESP carries unfragmented over the link, with libipsec its own default of 1400",
    )

    @model_validator(mode="after")
    def _libipsec_can(self) -> "EspParams":
        if self.implementation == "libipsec" and (reason := self.no_libipsec()):
            raise ValueError(f"libipsec cannot do {reason} (set implementation to kernel)")
        return self

    def no_libipsec(self) -> str | None:
        """Return what libipsec cannot do of this, or None."""
        return "ESP without UDP encapsulation" if self.udp_encapsulation is False else None


@dataclass
class End:
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


class EspTunnel(Tunnel):
    """``count`` pairs of ESP associations; what they hang on is the subclass's."""

    params: EspParams

    def __init__(self, params: TunnelParams) -> None:
        """Take the parameters of the study."""
        super().__init__(params)
        self._chosen: Implementation = (
            "libipsec" if self.params.implementation == "libipsec" else "kernel"
        )
        self._ends: list[End] = []
        self._watched: list[Watched] = []

    @property
    def _mode(self) -> Mode:
        return "tunnel"

    @property
    def _ipcomp(self) -> bool:
        return False

    @property
    def _ike_version(self) -> int:
        return 2

    @abstractmethod
    def _prepare(self, site: Site, client: End, server: End) -> None:
        """Hand both daemons their configuration, and make ways into the associations."""

    @abstractmethod
    def _establish(self, site: Site, client: End, server: End) -> None:
        """Bring all associations up, named by ``child_name``."""

    @abstractmethod
    def _authentication(self) -> str:
        """Return how the ends prove who they are, for the report."""

    def need(self, host: Host) -> Need:
        """Need strongSwan, and the kernel's ESP or a TUN device for libipsec."""
        programs = {**PROGRAMS, "ip": "iproute2", "ping": "iputils-ping"}
        if self._choose(host) == "libipsec":
            return Need(programs=programs | LIBIPSEC_PROGRAMS, kernel=("tun",))
        tunnel = ("xfrm_interface",) if self._mode == "tunnel" else ()
        ipcomp = ("ipcomp",) if self._ipcomp else ()
        return Need(programs=programs, kernel=("esp", *tunnel, *ipcomp))

    def up(self, site: Site) -> TunnelUp:
        """Start both daemons, bring up all associations, hold what both ends say to the study."""
        self._chosen = self._choose(site.client.host)
        mtu_bytes = self._mtu_bytes(site)
        client = self._start("client", site.client)
        server = self._start("server", site.server)
        for end in (client, server):
            end.charon.wait_ready()
            self._make_interfaces(site, end, mtu_bytes)
        self._prepare(site, client, server)
        self._establish(site, client, server)
        negotiated = self._negotiated(client, server, mtu_bytes)
        paths = self._paths(site, mtu_bytes)
        for path in paths:
            if words := first_packet(site.client.host, path, limit_s=_FIRST_PACKET_LIMIT_S):
                raise TunnelError(
                    f"no echo through {self.kind} tunnel {path.name} within "
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
                self.params.suite,
                udp_encapsulation=self._udp_encapsulation(),
                ip_version=IP_VERSIONS[self.params.outer],
            ),
            processes=tuple((end.endpoint.host.name, end.charon.process) for end in self._ends),
        )

    def problem(self) -> str | None:
        """Return which daemon died or which interface vanished."""
        return first_problem(self._watched)

    def check_agreed(self) -> None:
        """Read the associations of both ends again."""
        client, server = self._ends
        self._associations(client, server)

    def down(self) -> None:
        """Stop the daemons, whose associations go with them; remove what the kernel keeps."""
        self._watched = []
        while self._ends:
            end = self._ends.pop()
            end.charon.stop()
            while end.undo:
                # It may be gone already: half-up, or with the daemon, which is no failure here.
                end.endpoint.host.run(end.undo.pop(), check=False)

    def default_mtu_bytes(self, link_mtu_bytes: int) -> int:
        """Return the longest that ESP carries whole; libipsec has a default of its own."""
        if self._mode == "transport":
            return link_mtu_bytes
        fits = self._fits_bytes(link_mtu_bytes)
        return fits if self._chosen == "kernel" else min(fits, LIBIPSEC_MTU_BYTES)

    def encapsulation(self, agreed: Negotiated) -> Encapsulation:
        """Return the layers of ESP; with IPComp those of a packet that does not get smaller.

        RFC 3173 section 2.2: such a packet is sent without any IPComp header.
        """
        chosen: Implementation = "libipsec" if agreed.implementation == "libipsec" else "kernel"
        return self._encapsulation(agreed.mtu_bytes, chosen)

    def _encapsulation(self, inner_mtu_bytes: int, chosen: Implementation) -> Encapsulation:
        return esp(
            ESP_SUITES[self.params.suite],
            mode=self._mode,
            inner_mtu_bytes=inner_mtu_bytes,
            udp_encapsulation=self._udp_encapsulation(chosen),
            outer_ip=IP_VERSIONS[self.params.outer],
            # IPComp makes one piece of them again.
            cut_before=self._mode == "transport"
            and self.params.outer == "ipv4"
            and not self._ipcomp,
        )

    def _choose(self, host: Host) -> Implementation:
        if self.params.implementation != "auto":
            return self.params.implementation
        if self.params.no_libipsec() or (host.has_kernel("esp") and not self.confined):
            return "kernel"
        return "libipsec"

    def _udp_encapsulation(self, chosen: Implementation | None = None) -> bool:
        if self.params.udp_encapsulation is None:
            return (chosen or self._chosen) == "libipsec"
        return self.params.udp_encapsulation

    def _fits_bytes(self, link_mtu_bytes: int) -> int:
        """Return the longest packet that ESP carries whole over a link."""
        model = self._encapsulation(link_mtu_bytes, self._chosen)
        return best_inner_mtu(link_mtu_bytes=link_mtu_bytes, encapsulation=model)

    def _mtu_bytes(self, site: Site) -> int:
        link = min(site.client.mtu_bytes, site.server.mtu_bytes)
        wanted = self.params.mtu_bytes or self.default_mtu_bytes(link)
        if self._mode == "tunnel" and wanted > (fits := self._fits_bytes(link)):
            # The kernel would learn the same from the first packet that is longer, and lose it.
            raise RefusedError(
                f"{self.kind}: mtu_bytes is {wanted}, ESP carries at most {fits} whole over a link "
                f"of {link} byte"
            )
        check_inner_mtu(self.kind, self.params.inner, wanted)
        return wanted

    def _charon_settings(self, side: Side) -> Settings:  # noqa: ARG002 - for subclasses
        return {}

    def _charon_plugins(self) -> tuple[str, ...]:
        return ()

    def _start(self, side: Side, endpoint: Endpoint) -> End:
        libipsec = ("kernel-libipsec",) if self._chosen == "libipsec" else ()
        charon = Charon(
            side,
            endpoint.host,
            plugins=(*libipsec, *self._charon_plugins()),
            settings=self._charon_settings(side),
        )
        end = End(side, endpoint, charon)
        if self._chosen == "kernel":
            # A daemon that was killed leaves them behind.
            end.undo += [["ip", "xfrm", "state", "flush"], ["ip", "xfrm", "policy", "flush"]]
        self._ends.append(end)
        return end

    def _make_interfaces(self, site: Site, end: End, mtu_bytes: int) -> None:
        """Make the interfaces behind which the selectors of tunnel mode stand."""
        if self._mode == "transport":
            return
        host = end.endpoint.host
        if self._chosen == "libipsec":
            quieten(host, LIBIPSEC_TUN)
            end.ip("link", "set", "dev", LIBIPSEC_TUN, "mtu", str(mtu_bytes), "up")
        else:
            for number in range(self.params.count):
                name = self._interface(site, end.side, number)
                end.ip(
                    *("link", "add", "dev", name, "type", "xfrm", "dev", end.endpoint.interface),
                    *("if_id", str(number + 1)),
                    undo=("link", "del", "dev", name),
                )
                quieten(host, name)
                end.ip("link", "set", "dev", name, "mtu", str(mtu_bytes), "up")
        states = interfaces(host)
        for number in range(self.params.count):
            name = self._interface(site, end.side, number)
            state = states.get(name)
            if state is None or state.mtu_bytes != mtu_bytes or not state.up:
                raise TunnelError(
                    f"{self.kind} {end.side} of tunnel {number}: interface {name} is {state}, "
                    f"wanted up with MTU {mtu_bytes}"
                )

    def _address(self, end: End, name: str, own: str, other: str) -> None:
        """Put an address with its peer on an inner interface."""
        peer = ["address", "add", own, "peer", alone(other), "dev", name]
        end.ip(*peer, *no_dad(own))

    def _interface(self, site: Site, side: Side, number: int) -> str:
        if self._mode == "transport":
            return (site.client if side == "client" else site.server).interface
        chosen_kernel = self._chosen == "kernel"
        return inner_interface(site, "e", number, side) if chosen_kernel else LIBIPSEC_TUN

    def _interface_ids(self, number: int) -> Mapping[str, int]:
        """Return what ties an association to its interface."""
        if self._mode == "transport" or self._chosen == "libipsec":
            return {}
        return {"if_id_in": number + 1, "if_id_out": number + 1}

    def _inner(self, site: Site, side: Side, number: int) -> tuple[str, str]:
        """Return (own, other) address inside."""
        client, server = inner_addresses(site, number, self.params)
        return (client, server) if side == "client" else (server, client)

    def _outer(self, site: Site, side: Side) -> tuple[str, str]:
        """Return (own, other) address on the link, the client's as the server sees it."""
        if side == "server" and self.params.outer == "ipv4" and site.nat_ipv4 is not None:
            return site.server.ipv4, site.nat_ipv4
        ends = (site.client, site.server)
        own, other = ends if side == "client" else ends[::-1]
        v4 = self.params.outer == "ipv4"
        return (own.ipv4, other.ipv4) if v4 else (own.ipv6, other.ipv6)

    def _negotiated(self, client: End, server: End, mtu_bytes: int) -> tuple[Negotiated, ...]:
        pairs = self._associations(client, server)
        versions = dict.fromkeys(end.charon.version() for end in (client, server))
        kernel = client.endpoint.host.run(["uname", "-sr"]).text().strip()
        found = []
        for ike, sa in pairs:
            found.append(
                Negotiated(
                    cipher=self.params.suite,
                    version=" / ".join(versions),
                    implementation=self._chosen,
                    mtu_bytes=mtu_bytes,
                    data_path=DataPath.KERNEL if self._chosen == "kernel" else DataPath.USER_SPACE,
                    details={
                        "esp": kernel if self._chosen == "kernel" else "kernel-libipsec",
                        "key_exchange": f"IKEv{ike.version} {ike.suite}",
                        "auth": self._authentication(),
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

    def _associations(self, client: End, server: End) -> list[tuple[IkeSa, ChildSa]]:
        """Return the client's of each tunnel, held to the study and to the server's."""
        wanted = Agreement(
            ike_version=self._ike_version,
            mode=self._mode,
            suite=self.params.suite,
            udp_encapsulation=self._udp_encapsulation(),
            ipcomp=self._ipcomp,
        )
        names = [child_name(number) for number in range(self.params.count)]
        ends = settled_sas(client.charon, server.charon, names)
        return [check_pair(wanted, name, *ends) for name in names]

    def _paths(self, site: Site, mtu_bytes: int) -> tuple[TrafficPath, ...]:
        paths = []
        for number in range(self.params.count):
            client, server = self._inner(site, "client", number)
            paths.append(
                TrafficPath(
                    name=str(number),
                    client_address=client,
                    server_address=server,
                    client_interface=self._interface(site, "client", number),
                    server_interface=self._interface(site, "server", number),
                    mtu_bytes=mtu_bytes,
                    link_address=client if self._mode == "transport" else None,
                )
            )
        return tuple(paths)


def child_name(number: int) -> str:
    """Return what the associations of a tunnel are called in the daemons."""
    return f"esp{number}"
