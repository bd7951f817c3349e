"""The L2TP/IPsec driver: what it writes, what it needs, its model, and what it refuses."""

from dataclasses import replace
from typing import Any

import pytest

from tunnelmark.model.errors import TunnelError
from tunnelmark.model.overhead import datagram
from tunnelmark.model.topology import gateway_ipv4
from tunnelmark.model.tunnel import DataPath, Negotiated, Site
from tunnelmark.tunnels.ipsec import IpsecParams
from tunnelmark.tunnels.l2tp_ipsec.driver import (
    L2tpIpsecParams,
    L2tpIpsecTunnel,
    _End,
    _link_address,
)
from tunnelmark.tunnels.l2tp_ipsec.files import client_config, server_config
from tunnelmark.tunnels.strongswan.config import render


def tunnel(**params: object) -> L2tpIpsecTunnel:
    return L2tpIpsecTunnel(L2tpIpsecParams.model_validate(params))


def packets(payload: int, **params: object) -> tuple[int, ...]:
    model = tunnel(**params).encapsulation(Negotiated("any", "", "kernel", 1400, DataPath.KERNEL))
    wire = datagram(payload, link_mtu_bytes=1500, encapsulation=model)
    assert sum(layer.bytes for layer in wire.layers) == wire.overhead_bytes
    return wire.outer_packet_bytes


def test_the_parameters_of_another_driver_are_refused() -> None:
    with pytest.raises(TypeError, match="l2tp_ipsec"):
        L2tpIpsecTunnel(IpsecParams(count=1))


# As captured on the link.
@pytest.mark.parametrize(
    ("params", "outer"),
    [
        ({"ipsec": False}, (1066,)),
        ({}, (1112,)),
        ({"suite": "3DES-SHA1", "udp_encapsulation": True}, (1104,)),
    ],
)
def test_the_model_gives_the_packets_that_were_captured(
    params: dict[str, object], outer: tuple[int, ...]
) -> None:
    assert packets(1000, **params) == outer


def test_a_packet_beyond_the_inner_mtu_is_cut_inside() -> None:
    assert len(packets(1372)) == 1
    assert packets(1389, ipsec=False) == (1434, 79)


def test_esp_is_needed_only_where_it_is_asked_for(hosts: Any) -> None:
    with_, without = tunnel().need(hosts[0]), tunnel(ipsec=False).need(hosts[0])
    assert set(with_.kernel) == {"ppp", "l2tp_ppp", "esp"}
    assert set(without.kernel) == {"ppp", "l2tp_ppp"}
    assert "swanctl" in with_.programs
    assert "swanctl" not in without.programs


def test_only_port_1701_is_protected_and_by_transport_mode(site: Site) -> None:
    driver = tunnel(suite="3DES-SHA1", count=2)
    ends = (_End("client", site.client, (0, 1)), _End("server", site.server, (0, 1)))
    client, server = (render(driver._document(site, end, ["hunter2"])) for end in ends)
    for text in (client, server):
        assert text.count('mode = "transport"') == 2
        assert text.count('local_ts = "dynamic[udp/1701]"') == 2
        assert text.count('esp_proposals = "3des-sha1"') == 2
        assert text.count('version = "1"') == 2
    assert 'local_addrs = "198.18.0.1"' in client
    assert 'remote_addrs = "198.18.0.1"' in server
    assert client.count('remote_addrs = "198.18.0.2"') == 2


def test_each_client_of_a_gateway_calls_from_its_own_address_with_its_own_secret(
    site: Site,
) -> None:
    driver = tunnel(clients=2)
    second = replace(site.client, ipv4="198.18.0.3")
    gateway = replace(site, clients=(site.client, second), inner_ipv4=gateway_ipv4)
    ends = (
        _End("client", site.client, (0,)),
        _End("client", second, (1,)),
        _End("server", site.server, (0, 1)),
    )
    *clients, server = (render(driver._document(gateway, end, ["one", "two"])) for end in ends)
    for number, (text, address, secret) in enumerate(
        zip(clients, ("198.18.0.1", "198.18.0.3"), ("one", "two"), strict=True)
    ):
        assert f'local_addrs = "{address}"' in text
        assert text.count("l2tp") == 1
        for both in (text, server):
            assert f"l2tp{number} {{" in both
            assert f'secret = "{secret}"' in both
    assert 'secret = "two"' not in clients[0]
    assert 'remote_addrs = "198.18.0.3"' in server
    setups = [driver._setup(gateway, "server", number) for number in (0, 1)]
    assert [setup.interface for setup in setups] == ["tmabcdel0s", "tmabcdel1s"]
    assert "198.19.0.3:198.19.0.1" in driver._setup(gateway, "client", 1).more


def test_without_esp_it_is_marked_as_not_encrypted() -> None:
    rule = tunnel(ipsec=False)._rule()
    assert not rule.encrypted
    assert rule.udp_ports == (1701,)
    assert tunnel()._rule().encrypted
    assert not tunnel(suite="NULL-SHA1")._rule().encrypted


def test_an_mtu_that_does_not_fit_is_refused_with_the_limit(site: Site) -> None:
    with pytest.raises(TunnelError, match="mtu_bytes is 1500, at most 1420 go whole over a link"):
        tunnel(mtu_bytes=1500).up(site)


def test_the_server_answers_only_its_own_clients_each_with_its_address() -> None:
    text = server_config(
        "198.18.0.2",
        [("198.18.0.1", ("198.19.0.2", "198.19.0.1"), "/a"), ("198.19.9.2", ("b", "c"), "/d")],
    )
    assert text.startswith("[global]\nlisten-addr = 198.18.0.2\nport = 1701\naccess control = yes")
    first, second = text.split("[lns ")[1:]
    assert "lac = 198.18.0.1\nip range = 198.19.0.2-198.19.0.2\nlocal ip = 198.19.0.1" in first
    assert "pppoptfile = /a" in first
    assert "lac = 198.19.9.2" in second
    assert "require authentication = yes" in first


def test_a_client_calls_once() -> None:
    text = client_config("198.18.0.1", "198.18.0.2", "/options")
    assert "autodial = yes\nredial = no\n" in text
    assert "lns = 198.18.0.2" in text


def test_a_charon_that_dies_at_its_start_is_reported_and_leaves_no_l2tp_behind(
    hosts: Any, site: Site
) -> None:
    def dies(process: Any) -> None:
        process.status, process.log = 64, "00[LIB] failed to load plugins\n"

    hosts[0].started = hosts[1].started = dies
    driver = tunnel()
    with pytest.raises(TunnelError, match=r"charon of the client .* failed to load plugins"):
        driver.up(site)
    started = [process.argv[0] for host in hosts for process in host.spawned]
    assert started == ["/usr/lib/ipsec/charon"] * 2
    driver.down()
    assert all(process.stopped for host in hosts for process in host.spawned)
    assert driver.problem() is None


def test_further_clients_have_addresses_of_their_own_and_they_are_removed(
    hosts: Any, site: Site
) -> None:
    hosts[0].answer = lambda argv, _stdin: (1, "no") if argv[:1] == ("swanctl",) else (0, "")
    for host in hosts:
        host.started = lambda process: setattr(process, "log", "[JOB] spawning 24 worker threads")
    driver = tunnel(count=2)
    assert _link_address(site, 0) == "198.18.0.1"
    second = _link_address(site, 1)
    with pytest.raises(TunnelError):
        driver.up(site)
    driver.down()
    ran = [argv for argv, _ in hosts[0].ran if argv[:2] == ("ip", "address")]
    words = (f"{second}/32", "dev", "eth0")
    assert ran == [("ip", "address", "add", *words), ("ip", "address", "del", *words)]


def test_several_tunnels_pass_no_router() -> None:
    one, two = (
        L2tpIpsecTunnel(L2tpIpsecParams.model_validate({"count": count, "udp_encapsulation": True}))
        for count in (1, 2)
    )
    assert [one.router_problem("routed"), one.router_problem("nat")] == [None, None]
    for router in ("routed", "nat"):
        assert "with one tunnel, not with 2" in str(two.router_problem(router))
