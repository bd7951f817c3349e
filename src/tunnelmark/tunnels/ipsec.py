"""IPsec ESP between two hosts, keyed by strongSwan: the kernel's ESP, or libipsec in user space."""

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import ClassVar, Final, Literal

from pydantic import Field, model_validator

from tunnelmark.model.esp import ESP_SUITES
from tunnelmark.model.host import Host
from tunnelmark.model.tunnel import CipherLibrary, Side, Site
from tunnelmark.tunnels.addressing import alone, client_ends, no_dad
from tunnelmark.tunnels.base import TunnelParams
from tunnelmark.tunnels.esp.groups import IKEV2_ONLY
from tunnelmark.tunnels.esp.suites import AgreedMode, Mode
from tunnelmark.tunnels.esp.tunnel import End, child_name
from tunnelmark.tunnels.ikev1 import no_ikev1
from tunnelmark.tunnels.pki import RunAuthority
from tunnelmark.tunnels.strongswan.charon import Charon
from tunnelmark.tunnels.strongswan.config import Settings, child, connection, connection_name
from tunnelmark.tunnels.strongswan.params import StrongswanParams
from tunnelmark.tunnels.strongswan.tunnel import StrongswanTunnel

_IPTFS_BLOCK_BYTES: Final = 4
"""Linux 7.2, __iptfs_get_inner_mtu, rounds to blocks what stands before the AGGFRAG header."""


class IpsecParams(StrongswanParams):
    """What a study can set."""

    mode: AgreedMode = Field(
        "tunnel",
        description="tunnel: whole packets are encapsulated; transport: only what follows their IP "
        "header, between addresses that the tunnels have on the link itself; iptfs: tunnel with "
        "AGGFRAG payloads (RFC 9347), which hold several packets or a piece of one; refused where "
        "the kernel has no xfrm_iptfs",
    )
    ike: Literal["v1", "v2"] = Field("v2", description="version of the key exchange")
    auth: Literal["psk", "cert"] = Field(
        "psk", description="how the ends authenticate: by a secret or certificates of the run"
    )
    ipcomp: bool = Field(
        False,
        description="IPComp (deflate) before ESP, for packets that it makes smaller",
    )

    @model_validator(mode="after")
    def _of_ikev2(self) -> "IpsecParams":
        if self.childless and self.ike == "v1":
            raise ValueError("childless is for ike v2, it cannot be set")
        if self.ike_group in IKEV2_ONLY and self.ike == "v1":
            raise ValueError(f"ike_group {self.ike_group} is for ike v2, it cannot be set")
        return self

    @model_validator(mode="after")
    def _of_iptfs(self) -> "IpsecParams":
        if self.mode == "iptfs":
            if self.ike == "v1":
                raise ValueError("mode iptfs is for ike v2, it cannot be set")
            if self.ipcomp:
                raise ValueError(
                    "ipcomp cannot be set with mode iptfs: with both Linux carries no packet"
                )
            if ESP_SUITES[self.suite].block_bytes > _IPTFS_BLOCK_BYTES:
                raise ValueError(
                    f"suite {self.suite} cannot be set with mode iptfs: Linux cuts packets for it "
                    "into pieces that are longer than the link's MTU, and they are lost"
                )
        return self

    @model_validator(mode="after")
    def _one_header(self) -> "IpsecParams":
        if self.mode == "transport":
            if self.inner != self.outer:
                raise ValueError(
                    f"inner is {self.inner} and outer {self.outer}; transport mode has one IP "
                    "header, they must be equal"
                )
            if self.mtu_bytes is not None:
                raise ValueError("mtu_bytes is the link's in transport mode, it cannot be set")
        return self

    def no_libipsec(self) -> str | None:
        """Return what libipsec cannot do of this, or None."""
        if self.mode != "tunnel":
            return "IP-TFS" if self.mode == "iptfs" else "transport mode"
        return "IPComp" if self.ipcomp else super().no_libipsec()


class IpsecTunnel(StrongswanTunnel):
    """``count`` pairs of security associations, each between inner addresses of its own.

    In tunnel mode they hang on one IKE association, as child SAs do; in the kernel each has an
    XFRM interface, which its selectors stand behind. In transport mode the inner addresses stand on
    the link's interfaces and each pair of them has an IKE association of its own, so that the
    baseline between the link's own addresses passes beside them unprotected. Each client of a
    gateway has an IKE association, and a secret or certificate, of its own; the gateway has one
    inner address for all.
    """

    kind: ClassVar[str] = "ipsec"
    title: ClassVar[str] = "IPsec ESP"
    library: ClassVar[CipherLibrary] = "OpenSSL"
    params_type: ClassVar[type[TunnelParams]] = IpsecParams
    params: IpsecParams

    def unavailable(self, host: Host) -> str | None:
        """Return also that the host's strongSwan has no IKEv1, if the study asks for that."""
        if (reason := super().unavailable(host)) or self.params.ike == "v2":
            return reason
        return no_ikev1(self._tailored(host))

    @property
    def _mode(self) -> Mode:
        return "transport" if self.params.mode == "transport" else "tunnel"

    @property
    def _aggfrag(self) -> bool:
        return self.params.mode == "iptfs"

    @property
    def _ipcomp(self) -> bool:
        return self.params.ipcomp

    @property
    def _ike_version(self) -> int:
        return int(self.params.ike[1])

    def _authentication(self) -> str:
        return self.params.auth

    def _prepare(self, site: Site, clients: Sequence[End[Charon]], server: End[Charon]) -> None:
        passwords = [secrets.token_hex(24) for _ in client_ends(site)]
        authority = RunAuthority(site.prefix, datetime.now(UTC))
        for end in (*clients, server):
            for number in end.numbers:
                self._lead(site, end, number)
            if self.params.auth == "cert":
                identity = authority.issue(_name(site, end.side, end.numbers[0]), end.side)
                end.daemon.put_identity(authority.certificate, identity)
            end.daemon.load(self._document(site, end, passwords))

    def _establish(self, site: Site, client: End[Charon], server: End[Charon]) -> None:
        self._initiate(site, client, server)

    def _lead(self, site: Site, end: End[Charon], number: int) -> None:
        """Make addresses and routes that lead traffic to the associations of a tunnel."""
        if self._mode == "tunnel":
            self._address(site, end, number)
            return
        name = self._interface(site, end.side, number)
        own, other = self._inner(site, end.side, number)
        address = [alone(own), "dev", end.endpoint.interface]
        # By way of the other end's own address, whose neighbour entry is permanent.
        route = [alone(other), "via", self._outer(site, end.side, number)[1], "dev", name]
        if not (site.clients and end.side == "server") or number == end.numbers[0]:
            end.ip("address", "add", *address, *no_dad(own), undo=("address", "del", *address))
        end.ip("route", "add", *route, "src", own, undo=("route", "del", *route))

    def _document(self, site: Site, end: End[Charon], passwords: Sequence[str]) -> Settings:
        """Return what swanctl.conf says of one end; each client has one of the ``passwords``."""
        apart = self._mode == "transport" or bool(site.clients)
        groups = {connection_name(n): (n,) for n in end.numbers} if apart else {"tm": end.numbers}
        connections = {
            name: self._connection(site, end.side, numbers) for name, numbers in groups.items()
        }
        if self.params.auth == "cert":
            return {"connections": connections, "secrets": {}}
        if not site.clients:
            return {"connections": connections, "secrets": {"ike-tm": {"secret": passwords[0]}}}
        shared: Settings = {
            f"ike-{n}": {"id": _name(site, "client", n), "secret": passwords[n]}
            for n in end.numbers
        }
        return {"connections": connections, "secrets": shared}

    def _child_settings(self, site: Site, side: Side, number: int) -> Settings:
        selectors: Settings = {}
        if self._mode == "tunnel":
            own, other = self._inner(site, side, number)
            selectors = {"local_ts": alone(own), "remote_ts": alone(other)}
        return child(
            mode=self.params.mode,
            esp_proposals=self.params.proposal(),
            ipcomp=self.params.ipcomp,
            more={**selectors, **self._interface_ids(number), **self.params.esp_settings()},
        )

    def _connection(self, site: Site, side: Side, numbers: Sequence[int]) -> Settings:
        """Return the connection on which some tunnels hang."""
        peer: Side = "server" if side == "client" else "client"
        auth = "pubkey" if self.params.auth == "cert" else "psk"
        certs: Settings = {"certs": "own.pem"} if self.params.auth == "cert" else {}
        first = numbers[0]
        addresses = (self._outer if self._mode == "tunnel" else self._inner)(site, side, first)
        return connection(
            version=self._ike_version,
            addresses=addresses,
            udp_encapsulation=self._udp_encapsulation(),
            local={"auth": auth, "id": self._identity(site, side, first), **certs},
            remote={"auth": auth, "id": self._identity(site, peer, first)},
            children={child_name(n): self._child_settings(site, side, n) for n in numbers},
            more=self.params.ike_settings(),
        )

    def _identity(self, site: Site, side: Side, number: int) -> str:
        name = _name(site, side, number)
        return f"CN={name}" if self.params.auth == "cert" else name


def _name(site: Site, side: Side, number: int) -> str:
    which = number if site.clients and side == "client" else ""
    return f"{side}{which}.{site.prefix}"
