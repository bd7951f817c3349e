"""IPsec ESP between two hosts, keyed by Libreswan: the kernel's ESP behind an XFRM interface."""

import secrets
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Final, Literal

from pydantic import Field

from tunnelmark.model.host import Host, Need
from tunnelmark.model.tunnel import Endpoint, Side, Site
from tunnelmark.tunnels.addressing import alone
from tunnelmark.tunnels.base import TunnelParams
from tunnelmark.tunnels.esp.params import EspParams
from tunnelmark.tunnels.esp.suites import Suite
from tunnelmark.tunnels.esp.tunnel import INITIATE_LIMIT_S, End, EspTunnel, child_name
from tunnelmark.tunnels.libreswan.pluto import PLUTO, PROGRAMS, Pluto
from tunnelmark.tunnels.support import quieten

# In the words of ipsec.conf.
_ESP: Final[dict[Suite, str]] = {
    "3DES-SHA1": "3des-sha1",
    "AES-128-CBC-SHA1": "aes128-sha1",
    "AES-256-CBC-SHA256": "aes256-sha2_256",
    "AES-128-GCM": "aes_gcm128",
    "AES-256-GCM": "aes_gcm256",
    "CHACHA20-POLY1305": "chacha20_poly1305",
    "NULL-SHA1": "null-sha1",
}
_GROUP: Final = {"ecp256": "dh19", "modp2048": "modp2048", "x25519": "dh31"}
# 24 hours are the most that it takes: no new keys during a run.
_LIFETIME: Final = "24h"


class LibreswanParams(EspParams):
    """What a study can set."""

    replay_window: int | None = Field(
        None,
        ge=0,
        le=2040,
        description="window of the replay protection, in packets; 0: no protection; "
        "default: Libreswan's own, 128",
    )
    ike_group: Literal["ecp256", "modp2048", "x25519"] = Field(
        "ecp256", description="group of IKE's own key exchange"
    )


class LibreswanTunnel(EspTunnel[Pluto]):
    """``count`` pairs of ESP associations under one IKE association, between inner addresses.

    Each has an XFRM interface that pluto makes (``ipsec-interface``), as where a Libreswan gateway
    routes. Routes and addresses are the lab's, so no script of Libreswan runs.
    """

    kind: ClassVar[str] = "libreswan"
    title: ClassVar[str] = "IPsec ESP by Libreswan"
    gateway: ClassVar[bool] = False
    tells_set_up: ClassVar[bool] = False
    programs: ClassVar[Mapping[str, str]] = MappingProxyType({"pluto": PLUTO})
    deviations: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "rekey = no": "new keys would affect some trials and not others",
            "leftupdown = %disabled": "addresses and routes are the lab's",
            "pfs = no": "without a rekey, IKEv2 has no key exchange of ESP's own",
        }
    )
    params_type: ClassVar[type[TunnelParams]] = LibreswanParams
    params: LibreswanParams

    def need(self, host: Host) -> Need:  # noqa: ARG002 - it has no choice
        """Need Libreswan and the kernel's ESP."""
        return Need(
            programs={**PROGRAMS, "ip": "iproute2", "ping": "iputils-ping"},
            kernel=("esp", "xfrm_interface"),
        )

    def no_gateway(self) -> str | None:
        """Return that its interface leads to one link, if a gateway is asked for."""
        if self.params.clients is None:
            return None
        return (
            "libreswan cannot be a gateway here: pluto ties its interface to the link of the first "
            "client (leave out clients, or take ipsec)"
        )

    def _authentication(self) -> str:
        return "psk"

    def _start(self, side: Side, endpoint: Endpoint, numbers: tuple[int, ...]) -> End[Pluto]:
        return End(side, endpoint, Pluto(side, endpoint.host), numbers)

    def _make_interfaces(self, site: Site, end: End[Pluto], mtu_bytes: int) -> None:
        """Note what a pluto that was killed leaves behind; it makes them with the associations."""
        del mtu_bytes
        for number in end.numbers:
            end.undo.append(["ip", "link", "del", "dev", self._interface(site, end.side, number)])

    def _prepare(self, site: Site, clients: Sequence[End[Pluto]], server: End[Pluto]) -> None:
        secret = secrets.token_hex(24)
        for end in (*clients, server):
            names = tuple(child_name(number) for number in end.numbers)
            text = "".join(self._connection(site, end.side, number) for number in end.numbers)
            end.daemon.load(text, names, self._secret_lines(site, end.side, secret))

    def _secret_lines(self, site: Site, side: Side, secret: str) -> str:
        """Return what ipsec.secrets says of one end."""
        del side
        return f'@{_name(site, "client")} @{_name(site, "server")} : PSK "{secret}"\n'

    def _establish(self, site: Site, client: End[Pluto], server: End[Pluto]) -> None:
        self._initiate(site, client, server)
        mtu_bytes = self._mtu_bytes(site)
        for end in (client, server):
            for number in end.numbers:
                name = self._interface(site, end.side, number)
                quieten(end.endpoint.host, name)
                end.ip("link", "set", "dev", name, "mtu", str(mtu_bytes), "up")
                self._address(site, end, number)
            self._check_interfaces(site, end, mtu_bytes)

    def _interface(self, site: Site, side: Side, number: int) -> str:
        del site, side
        # The name is compiled in, with the number that its policies and associations have.
        return f"ipsec{self._interface_id(number)}"

    def _connection(self, site: Site, side: Side, number: int) -> str:
        """Return the section of ipsec.conf for one tunnel; left is the own end."""
        peer: Side = "server" if side == "client" else "client"
        (left, right), (own, other) = (
            self._outer(site, side, number),
            self._inner(site, side, number),
        )
        params = self.params
        settings = {
            "left": left,
            "leftid": f"@{_name(site, side)}",
            "leftsubnet": alone(own),
            "leftupdown": "%disabled",
            "right": right,
            "rightid": f"@{_name(site, peer)}",
            "rightsubnet": alone(other),
            "authby": "secret",
            "ike": f"aes128-sha2_256;{_GROUP[params.ike_group]}",
            "esp": _ESP[params.suite],
            "esn": _yes_no(value=params.esn),
            "pfs": "no",
            "rekey": "no",
            "ikelifetime": _LIFETIME,
            "salifetime": _LIFETIME,
            "keyingtries": "1",
            "retransmit-timeout": f"{INITIATE_LIMIT_S:g}s",
            "encapsulation": _ENCAPSULATION[params.udp_encapsulation],
            "fragmentation": _yes_no(value=params.ike_fragmentation),
            "ipsec-interface": str(self._interface_id(number)),
            "nic-offload": "no",
            "auto": "ignore",
        }
        if params.replay_window is not None:
            settings["replay-window"] = str(params.replay_window)
        lines = [f"    {name}={value}" for name, value in settings.items()]
        return "\n".join([f"conn {child_name(number)}", *lines, ""])


_ENCAPSULATION: Final = {None: "auto", True: "yes", False: "no"}


def _yes_no(*, value: bool) -> str:
    return "yes" if value else "no"


def _name(site: Site, side: Side) -> str:
    return f"{side}.{site.prefix}"
