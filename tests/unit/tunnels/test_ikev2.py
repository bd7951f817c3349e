"""What the IKEv2 driver writes for both ends, and what it makes of the answer."""

from typing import Any

import pytest

from tunnelmark.model.errors import TunnelError
from tunnelmark.model.tunnel import Site
from tunnelmark.tunnels.esp.tunnel import End
from tunnelmark.tunnels.ikev2 import Ikev2Params, Ikev2Tunnel
from tunnelmark.tunnels.ipsec import IpsecParams
from tunnelmark.tunnels.strongswan.charon import Charon
from tunnelmark.tunnels.strongswan.config import render

SA = (
    "list-sa event {{tm0 {{version=2 state=ESTABLISHED encr-alg=AES_CBC local-vips=[{vip}] "
    "child-sas {{esp0-1 {{name=esp0 state=INSTALLED mode=TUNNEL protocol=ESP spi-in=1 spi-out=2 "
    "encr-alg=AES_GCM_16 encr-keysize=256 local-ts=[{vip}/32] remote-ts=[198.19.0.2/32]}}}}}}}}\n"
)


def tunnel(**params: object) -> Ikev2Tunnel:
    return Ikev2Tunnel(Ikev2Params.model_validate(params))


def ends(site: Site, numbers: tuple[int, ...] = (0,)) -> list[End[Any]]:
    return [
        End(side, endpoint, Charon(side, endpoint.host), numbers)  # type: ignore[arg-type]
        for side, endpoint in (("client", site.client), ("server", site.server))
    ]


def test_the_parameters_of_another_driver_are_refused() -> None:
    with pytest.raises(TypeError, match="ikev2"):
        Ikev2Tunnel(IpsecParams(count=1))


def test_each_client_has_an_account_and_an_address_of_the_pool(site: Site) -> None:
    driver = tunnel(count=2)
    client, server = (
        render(driver._document(site, end, ["one", "two"])) for end in ends(site, (0, 1))
    )
    for number, address in enumerate(("198.19.0.1/32", "198.19.0.5/32")):
        assert f'addrs = "{address}"' in server
        assert f'eap_id = "user{number}.tmabcde"' in server
        assert f'eap_id = "user{number}.tmabcde"' in client
    assert client.count('vips = "0.0.0.0"') == 2
    assert "addrs = " in server
    assert "pools {\n}" in client
    assert 'auth = "pubkey"' in server  # the server itself, RFC 7296 section 2.16


def test_with_certificates_there_is_no_password(site: Site) -> None:
    driver = tunnel(auth="cert", inner="ipv6")
    for end in reversed(ends(site)):
        text = render(driver._document(site, end, ["hunter2"]))
        assert "hunter2" not in text
        assert "eap" not in text
    assert 'vips = "::"' in text


def test_an_address_that_is_not_the_pool_s_is_an_error(hosts: Any, site: Site) -> None:
    driver, both = tunnel(), ends(site)
    vip = {"is": "198.19.0.1"}
    hosts[0].answer = lambda argv, _stdin: (
        0,
        SA.format(vip=vip["is"]) if "--list-sas" in argv else "",
    )
    driver._establish(site, *both)
    vip["is"] = "198.19.0.77"
    words = "tunnel 0 was given the addresses 198.19.0.77, the server's pool has 198.19.0.1"
    with pytest.raises(TunnelError, match=words):
        driver._establish(site, *both)
