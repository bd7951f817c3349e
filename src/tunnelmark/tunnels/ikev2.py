"""IKEv2 remote access: a client with an account gets an address from the server's pool."""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import ClassVar, Final, Literal

from pydantic import Field

from tunnelmark.model.errors import RefusedError
from tunnelmark.model.host import Host, Need
from tunnelmark.model.overhead import IpName
from tunnelmark.model.tunnel import CipherLibrary, Side, Site
from tunnelmark.tunnels.addressing import alone
from tunnelmark.tunnels.base import TunnelParams
from tunnelmark.tunnels.esp.suites import find_child
from tunnelmark.tunnels.esp.tunnel import End, child_name
from tunnelmark.tunnels.pki import RunAuthority
from tunnelmark.tunnels.strongswan.charon import LIBIPSEC_PROGRAMS, Charon
from tunnelmark.tunnels.strongswan.config import Settings, child, connection, connection_name
from tunnelmark.tunnels.strongswan.params import StrongswanParams
from tunnelmark.tunnels.strongswan.tunnel import LIBIPSEC_TUN, StrongswanTunnel


class Ikev2Params(StrongswanParams):
    """What a study can set."""

    auth: Literal["eap-mschapv2", "cert"] = Field(
        "eap-mschapv2",
        description="how a client authenticates: account and password by EAP-MSCHAPv2, or a "
        "certificate; the server always has a certificate",
    )


class Ikev2Tunnel(StrongswanTunnel):
    """``count`` clients on one host, each with an account, an IKE association and an address.

    With ``clients`` each is on a host of its own.
    """

    kind: ClassVar[str] = "ikev2"
    title: ClassVar[str] = "IKEv2 remote access"
    library: ClassVar[CipherLibrary] = "OpenSSL"
    params_type: ClassVar[type[TunnelParams]] = Ikev2Params
    params: Ikev2Params

    def need(self, host: Host) -> Need:
        """Need the plugins for EAP beside what every tunnel of the family needs."""
        need = super().need(host)
        return replace(need, programs={**need.programs, **LIBIPSEC_PROGRAMS})

    def _authentication(self) -> str:
        return f"{self.params.auth}, server by certificate"

    def _charon_plugins(self) -> tuple[str, ...]:
        return ("eap-identity", "eap-mschapv2")

    def _charon_settings(self, side: Side) -> Settings:
        if side == "client" and self._chosen == "libipsec":
            # libipsec asks for the address when it routes by it, so it must stand there by then.
            return {"install_virtual_ip": "yes", "install_virtual_ip_on": LIBIPSEC_TUN}
        return {}

    def _prepare(self, site: Site, clients: Sequence[End[Charon]], server: End[Charon]) -> None:
        authority = RunAuthority(site.prefix, datetime.now(UTC))
        passwords = [secrets.token_hex(16) for _ in server.numbers]
        identity = authority.issue(_server(site), "server")
        server.daemon.put_identity(authority.certificate, identity)
        for client in clients:
            client.daemon.put_identity(authority.certificate, None)
            for number in client.numbers if self.params.auth == "cert" else ():
                client.daemon.put_identity(
                    authority.certificate,
                    authority.issue(_account(site, number), "client"),
                    name=f"client{number}.pem",
                )
        for number in server.numbers:
            self._address(site, server, number)
        for end in (server, *clients):
            end.daemon.load(self._document(site, end, passwords))

    def _establish(self, site: Site, client: End[Charon], server: End[Charon]) -> None:
        self._initiate(site, client, server)
        sas = client.daemon.sas()
        for number in client.numbers:
            own, _ = self._inner(site, "client", number)
            ike, _ = find_child(sas, child_name(number), client.daemon.place)
            if ike.local_addresses != (str(ip_address(own)),):
                raise RefusedError(
                    f"{client.daemon.place}: tunnel {number} was given the addresses "
                    f"{', '.join(ike.local_addresses)}, the server's pool has {own}"
                )
            if self._chosen == "kernel":
                self._address(site, client, number)

    def _document(self, site: Site, end: End[Charon], passwords: Sequence[str]) -> Settings:
        """Return what swanctl.conf says of one end; ``passwords`` are those of all accounts."""
        side = end.side
        connections: dict[str, Settings] = {}
        pools: dict[str, Settings] = {}
        accounts: dict[str, Settings] = {}
        for number in end.numbers:
            client, server = self._inner(site, "client", number)
            of_server = {f"{'local' if side == 'server' else 'remote'}_ts": alone(server)}
            children = {
                child_name(number): child(
                    mode="tunnel",
                    esp_proposals=self.params.proposal(),
                    more={
                        **of_server,
                        **self._interface_ids(number),
                        **self.params.esp_settings(),
                    },
                )
            }
            server_auth: Settings = {"auth": "pubkey", "id": f"CN={_server(site)}"}
            client_auth = self._client_auth(site, side, number)
            own_cert: Settings = {"certs": "own.pem"}
            if side == "server":
                pools[f"pool{number}"] = {"addrs": alone(client)}
                more: Settings = {"pools": f"pool{number}", "unique": "never"}
            else:
                more = {"vips": _ANY[self.params.inner]}
            connections[connection_name(number)] = connection(
                version=2,
                addresses=self._outer(site, side, number),
                udp_encapsulation=self._udp_encapsulation(),
                local={**server_auth, **own_cert} if side == "server" else client_auth,
                remote=client_auth if side == "server" else server_auth,
                children=children,
                more={**more, **self.params.ike_settings()},
            )
            accounts[f"eap-{number}"] = {"id": _account(site, number), "secret": passwords[number]}
        secrets_ = accounts if self.params.auth == "eap-mschapv2" else {}
        return {"connections": connections, "pools": pools, "secrets": secrets_}

    def _client_auth(self, site: Site, side: Side, number: int) -> Settings:
        account = _account(site, number)
        if self.params.auth == "eap-mschapv2":
            return {"auth": "eap-mschapv2", "id": account, "eap_id": account}
        certs: Settings = {"certs": f"client{number}.pem"} if side == "client" else {}
        return {"auth": "pubkey", "id": f"CN={account}", **certs}


# RFC 7296 section 2.19: an address of zeros asks for any.
_ANY: Final[dict[IpName, str]] = {"ipv4": "0.0.0.0", "ipv6": "::"}  # noqa: S104 - nothing is bound


def _server(site: Site) -> str:
    return f"server.{site.prefix}"


def _account(site: Site, number: int) -> str:
    return f"user{number}.{site.prefix}"
