"""IPsec ESP between two hosts, keyed by strongSwan: the kernel's ESP, or libipsec in user space."""

import secrets
from datetime import UTC, datetime
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from tunnelmark.model.tunnel import Site
from tunnelmark.tunnels.addressing import alone, no_dad
from tunnelmark.tunnels.base import TunnelParams
from tunnelmark.tunnels.esp_tunnel import (
    INITIATE_LIMIT_S,
    End,
    EspParams,
    EspTunnel,
    child_name,
)
from tunnelmark.tunnels.ipsec_suites import SUITE_NAMES, Mode
from tunnelmark.tunnels.pki import RunAuthority
from tunnelmark.tunnels.strongswan import Side
from tunnelmark.tunnels.strongswan_config import Settings, child, connection


class IpsecParams(EspParams):
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
    ipcomp: bool = Field(
        False,
        description="IPComp (deflate) before ESP, for packets that get smaller by it",
    )

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
        if self.mode == "transport":
            return "transport mode"
        return "IPComp" if self.ipcomp else super().no_libipsec()


class IpsecTunnel(EspTunnel):
    """``count`` pairs of security associations, each between inner addresses of its own.

    In tunnel mode they hang on one IKE association, as child SAs do; in the kernel each has an
    XFRM interface, which its selectors stand behind. In transport mode the inner addresses stand on
    the link's interfaces and each pair of them has an IKE association of its own, so that the
    baseline between the link's own addresses passes beside them unprotected.
    """

    kind: ClassVar[str] = "ipsec"
    title: ClassVar[str] = "IPsec ESP"
    params_type: ClassVar[type[TunnelParams]] = IpsecParams
    params: IpsecParams

    @property
    def _mode(self) -> Mode:
        return self.params.mode

    @property
    def _ipcomp(self) -> bool:
        return self.params.ipcomp

    @property
    def _ike_version(self) -> int:
        return int(self.params.ike[1])

    def _authentication(self) -> str:
        return self.params.auth

    def _prepare(self, site: Site, client: End, server: End) -> None:
        secret = secrets.token_hex(24)
        authority = RunAuthority(site.prefix, datetime.now(UTC))
        for end in (client, server):
            for number in range(self.params.count):
                self._lead(site, end, number)
            if self.params.auth == "cert":
                identity = authority.issue(_name(site, end.side), end.side)
                end.charon.put_identity(authority.certificate, identity)
            end.charon.load(self._document(site, end.side, secret))

    def _establish(self, site: Site, client: End, server: End) -> None:  # noqa: ARG002 - all there
        for number in range(self.params.count):
            client.charon.initiate(child_name(number), limit_s=INITIATE_LIMIT_S, peer=server.charon)

    def _lead(self, site: Site, end: End, number: int) -> None:
        """Make addresses and routes that lead traffic to the associations of a tunnel."""
        name = self._interface(site, end.side, number)
        own, other = self._inner(site, end.side, number)
        if self._mode == "tunnel":
            self._address(end, name, own, other)
            return
        address = [alone(own), "dev", name]
        # By way of the other end's own address, whose neighbour entry is permanent.
        route = [alone(other), "via", self._outer(site, end.side)[1], "dev", name]
        end.ip("address", "add", *address, *no_dad(own), undo=("address", "del", *address))
        end.ip("route", "add", *route, "src", own, undo=("route", "del", *route))

    def _document(self, site: Site, side: Side, secret: str) -> Settings:
        """Return what swanctl.conf says of one end."""
        numbers = range(self.params.count)
        children = {
            child_name(number): self._child_settings(site, side, number) for number in numbers
        }
        if self._mode == "tunnel":
            addresses = self._outer(site, side)
            connections = {"tm": self._connection(site, side, addresses, children)}
        else:
            connections = {
                f"tm{number}": self._connection(
                    site,
                    side,
                    self._inner(site, side, number),
                    {child_name(number): children[child_name(number)]},
                )
                for number in numbers
            }
        secrets_: Settings = {} if self.params.auth == "cert" else {"ike-tm": {"secret": secret}}
        return {"connections": connections, "secrets": secrets_}

    def _child_settings(self, site: Site, side: Side, number: int) -> Settings:
        selectors: Settings = {}
        if self._mode == "tunnel":
            own, other = self._inner(site, side, number)
            selectors = {"local_ts": alone(own), "remote_ts": alone(other)}
        return child(
            mode=self._mode,
            esp_proposals=SUITE_NAMES[self.params.suite].proposal,
            ipcomp=self.params.ipcomp,
            more={**selectors, **self._interface_ids(number)},
        )

    def _connection(
        self, site: Site, side: Side, addresses: tuple[str, str], children: Settings
    ) -> Settings:
        peer: Side = "server" if side == "client" else "client"
        auth = "pubkey" if self.params.auth == "cert" else "psk"
        certs: Settings = {"certs": "own.pem"} if self.params.auth == "cert" else {}
        return connection(
            version=self._ike_version,
            addresses=addresses,
            udp_encapsulation=self._udp_encapsulation(),
            local={"auth": auth, "id": self._identity(site, side), **certs},
            remote={"auth": auth, "id": self._identity(site, peer)},
            children=children,
        )

    def _identity(self, site: Site, side: Side) -> str:
        name = _name(site, side)
        return f"CN={name}" if self.params.auth == "cert" else name


def _name(site: Site, side: Side) -> str:
    return f"{side}.{site.prefix}"
