"""A strongSwan that was built without IKEv1 is known before it is started."""

from typing import Any

import pytest

from tunnelmark.tunnels.base import Tunnel
from tunnelmark.tunnels.ipsec import IpsecParams, IpsecTunnel
from tunnelmark.tunnels.l2tp_ipsec.driver import L2tpIpsecParams, L2tpIpsecTunnel
from tunnelmark.tunnels.strongswan.charon import CHARON

BY_IKEV1 = [
    IpsecTunnel(IpsecParams(implementation="libipsec", ike="v1")),
    L2tpIpsecTunnel(L2tpIpsecParams()),
]
BY_ANOTHER = [
    IpsecTunnel(IpsecParams(implementation="libipsec")),
    L2tpIpsecTunnel(L2tpIpsecParams(ipsec=False)),
]


def reason(tunnel: Tunnel, host: Any, status: int) -> str | None:
    host.kernel = {"esp", "tun", "ppp", "l2tp_ppp"}
    host.programs = {*tunnel.need(host).programs}
    host.answer = lambda argv, _stdin: (status if argv[0] == "grep" else 0, "")
    return tunnel.unavailable(host)


@pytest.mark.parametrize("tunnel", BY_IKEV1)
def test_what_needs_it_is_unavailable_with_that_reason(hosts: Any, tunnel: Tunnel) -> None:
    assert reason(tunnel, hosts[0], 1) == "strongSwan has no IKEv1 here"
    (asked,) = [argv for argv, _ in hosts[0].ran if argv[0] == "grep"]
    assert asked[-1].endswith(CHARON.replace("charon", "libcharon.so.0"))


@pytest.mark.parametrize("status", [0, 2])
@pytest.mark.parametrize("tunnel", BY_IKEV1)
def test_where_it_is_there_or_nobody_knows_the_tunnel_is_tried(
    hosts: Any, tunnel: Tunnel, status: int
) -> None:
    assert reason(tunnel, hosts[0], status) is None


@pytest.mark.parametrize("tunnel", BY_ANOTHER)
def test_what_does_not_need_it_does_not_ask(hosts: Any, tunnel: Tunnel) -> None:
    assert reason(tunnel, hosts[0], 1) is None
