"""ESP keyed by strongSwan: the kernel's, or libipsec's in user space."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar, Final

from tunnelmark.model.host import Host, Need
from tunnelmark.model.tunnel import Endpoint, Side, Site
from tunnelmark.tunnels.esp.groups import plugins_for, require_group
from tunnelmark.tunnels.esp.tunnel import End, EspTunnel, Implementation
from tunnelmark.tunnels.strongswan.charon import CHARON, LIBIPSEC_PROGRAMS, PROGRAMS, Charon
from tunnelmark.tunnels.strongswan.config import Settings, connection_name
from tunnelmark.tunnels.strongswan.params import StrongswanParams
from tunnelmark.tunnels.support import quieten

LIBIPSEC_MTU_BYTES: Final = 1400
"""What libipsec gives its TUN device (TUN_DEFAULT_MTU of strongSwan's tun_device.c)."""
# One for all associations. The name is compiled in and libipsec routes by it: no other is possible.
LIBIPSEC_TUN: Final = "ipsec0"

# PFS by the study's name and by that which charon shows.
_GROUP: Final = {
    "none": None,
    "modp2048": "MODP_2048",
    "ecp256": "ECP_256",
    "x25519": "CURVE_25519",
}


class StrongswanTunnel(EspTunnel[Charon]):
    """Pairs of ESP associations between charons; what they hang on is the subclass's."""

    programs: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"charon": CHARON, "swanctl": "swanctl"}
    )
    joins: ClassVar[bool] = True
    params: StrongswanParams

    def leave(self, site: Site, number: int) -> None:  # noqa: ARG002 - its ends know their numbers
        """End a client's associations, as a user does who goes offline; its charon stays."""
        self._ends[number].daemon.terminate(connection_name(number))

    def start_client(self, site: Site, number: int) -> Callable[[], None]:
        """Have a client's charon bring its associations up again."""
        client, server = self._ends[number], self._ends[-1]
        path = self._paths(site, self._mtu_bytes(site))[number]

        def join() -> None:
            self._establish(site, client, server)
            self._first_through(site, path)

        return join

    def need(self, host: Host) -> Need:
        """Need strongSwan, and the kernel's ESP or a TUN device for libipsec."""
        programs = {**PROGRAMS, "ip": "iproute2", "ping": "iputils-ping"}
        if self._choose(host) == "libipsec":
            return Need(programs=programs | LIBIPSEC_PROGRAMS, kernel=("tun",))
        tunnel = ("xfrm_interface",) if self._mode == "tunnel" else ()
        aggfrag = ("xfrm_iptfs",) if self._aggfrag else ()
        ipcomp = ("ipcomp",) if self._ipcomp else ()
        return Need(programs=programs, kernel=("esp", *tunnel, *aggfrag, *ipcomp))

    def default_mtu_bytes(self, link_mtu_bytes: int, implementation: str) -> int:
        """Return the longest that ESP carries whole; libipsec has a default of its own."""
        fits = super().default_mtu_bytes(link_mtu_bytes, implementation)
        return min(fits, LIBIPSEC_MTU_BYTES) if implementation == "libipsec" else fits

    @property
    def _own_group(self) -> str | None:
        return _GROUP[self.params.pfs]

    @property
    def _own_group_at_once(self) -> bool:
        return self.params.childless or self._ike_version == 1

    @property
    def _encapsulates(self) -> bool:
        unset = self.params.udp_encapsulation is None
        return self.params.implementation == "libipsec" if unset else super()._encapsulates

    def _udp_encapsulation(self, chosen: Implementation | None = None) -> bool:
        if self.params.udp_encapsulation is None:
            return (chosen or self._chosen) == "libipsec"
        return self.params.udp_encapsulation

    def _choose(self, host: Host) -> Implementation:
        if self.params.implementation != "auto":
            return self.params.implementation
        if self.params.no_libipsec() or (host.has_kernel("esp") and not self.confined):
            return "kernel"
        return "libipsec"

    def _charon_settings(self, side: Side) -> Settings:  # noqa: ARG002 - for subclasses
        return {}

    def _charon_plugins(self) -> tuple[str, ...]:
        return ()

    def _start(self, side: Side, endpoint: Endpoint, numbers: tuple[int, ...]) -> End[Charon]:
        libipsec = ("kernel-libipsec",) if self._chosen == "libipsec" else ()
        charon = Charon(
            side,
            endpoint.host,
            plugins=(*libipsec, *plugins_for(self.params.ike_group), *self._charon_plugins()),
            settings=self._charon_settings(side),
        )
        return End(side, endpoint, charon, numbers)

    def _make_interfaces(self, site: Site, end: End[Charon], mtu_bytes: int) -> None:
        """Make the interfaces behind which the selectors of tunnel mode stand."""
        require_group(end.daemon, self.params.ike_group)
        if self._mode == "transport":
            return
        host = end.endpoint.host
        if self._chosen == "libipsec":
            quieten(host, LIBIPSEC_TUN)
            end.ip("link", "set", "dev", LIBIPSEC_TUN, "mtu", str(mtu_bytes), "up")
        else:
            # Routes lead from a gateway's one interface to the link of each client.
            gateway = bool(site.clients) and end.side == "server"
            under = () if gateway else ("dev", end.endpoint.interface)
            names = {self._interface(site, end.side, number): number for number in end.numbers}
            for name, number in names.items():
                end.ip(
                    *("link", "add", "dev", name, "type", "xfrm", *under),
                    *("if_id", str(self._interface_id(number))),
                    undo=("link", "del", "dev", name),
                )
                quieten(host, name)
                end.ip("link", "set", "dev", name, "mtu", str(mtu_bytes), "up")
        self._check_interfaces(site, end, mtu_bytes)

    def _interface(self, site: Site, side: Side, number: int) -> str:
        if self._mode == "tunnel" and self._chosen == "libipsec":
            return LIBIPSEC_TUN
        return super()._interface(site, side, number)

    def _interface_ids(self, number: int) -> Mapping[str, int]:
        """Return what ties an association to its interface."""
        if self._mode == "transport" or self._chosen == "libipsec":
            return {}
        one = self._interface_id(number)
        return {"if_id_in": one, "if_id_out": one}
