"""The parameters of the IPsec driver, what it chooses, and its model of the wire."""

import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from tunnelmark.model.errors import TunnelError
from tunnelmark.model.overhead import datagram, fragmentation_point
from tunnelmark.model.topology import Router, gateway_ipv4, gateway_ipv6
from tunnelmark.model.tunnel import Negotiated, Site
from tunnelmark.tunnels.esp.tunnel import End
from tunnelmark.tunnels.ipsec import IpsecParams, IpsecTunnel
from tunnelmark.tunnels.strongswan.config import render
from tunnelmark.tunnels.wireguard.driver import WireGuardParams


def tunnel(**params: object) -> IpsecTunnel:
    return IpsecTunnel(IpsecParams.model_validate(params))


def _mtu(site: Site, implementation: Any, **params: object) -> int:
    ipsec = tunnel(**params)
    ipsec._chosen = implementation
    return ipsec._mtu_bytes(site)


@pytest.mark.parametrize(
    ("own", "measured", "mtu_bytes"),
    [
        ("libipsec", "", 1400),
        ("libipsec", "kernel", 1400),
        ("kernel", "libipsec", 1446),
        ("auto", "", 1446),
        ("auto", "libipsec", 1400),
    ],
)
def test_a_simulation_has_the_inner_mtu_of_a_lab(
    site: Site, own: str, measured: str, mtu_bytes: int
) -> None:
    ipsec = tunnel(implementation=own)
    agreed = ipsec.by_model(1500, measured)
    assert agreed.mtu_bytes == mtu_bytes
    assert agreed.mtu_bytes == _mtu(site, agreed.implementation)
    # A full segment is one packet on the link, as in the lab.
    wire = datagram(
        mtu_bytes - 28,
        link_mtu_bytes=1500,
        encapsulation=ipsec.encapsulation(agreed),
        inner_ip=4,
    )
    assert len(wire.outer_packet_bytes) == 1


def agreed(mtu_bytes: int, implementation: str = "kernel") -> Negotiated:
    return Negotiated("any", "strongSwan", implementation, mtu_bytes, None)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"mode": "transport", "inner": "ipv6"}, "transport mode has one IP header"),
        ({"mode": "transport", "mtu_bytes": 1400}, "mtu_bytes is the link's in transport mode"),
        ({"mode": "transport", "implementation": "libipsec"}, "cannot do transport mode"),
        ({"ipcomp": True, "implementation": "libipsec"}, "cannot do IPComp"),
        (
            {"udp_encapsulation": False, "implementation": "libipsec"},
            "cannot do ESP without UDP encapsulation",
        ),
        ({"suite": "DES-MD5"}, "Input should be"),
        (
            {"replay_window": 64, "implementation": "libipsec"},
            "cannot do a replay window of its own",
        ),
        ({"esn": True, "replay_window": 0}, "esn goes with a replay window"),
        ({"esn": True, "implementation": "libipsec"}, "cannot do sequence numbers of 64 bits"),
        ({"childless": True, "ike": "v1"}, "childless is for ike v2"),
        ({"rekey": "90500 ms"}, "rekey has a part of a second"),
        ({"mode": "iptfs", "implementation": "libipsec"}, "cannot do IP-TFS"),
        ({"mode": "iptfs", "ike": "v1"}, "mode iptfs is for ike v2"),
        ({"mode": "iptfs", "ipcomp": True}, "ipcomp cannot be set with mode iptfs"),
        (
            {"mode": "iptfs", "suite": "3DES-SHA1"},
            "suite 3DES-SHA1 cannot be set with mode iptfs: Linux cuts packets for it into pieces",
        ),
    ],
)
def test_what_is_impossible_is_refused_before_anything_starts(
    params: dict[str, object], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        IpsecParams.model_validate(params)


def test_the_parameters_of_another_driver_are_refused() -> None:
    with pytest.raises(TypeError, match="ipsec"):
        IpsecTunnel(WireGuardParams(count=1))


@pytest.mark.parametrize(
    ("params", "kernel", "needs"),
    [
        ({}, {"esp"}, ("esp", "xfrm_interface")),
        ({}, set(), ("tun",)),
        ({"mode": "transport"}, set(), ("esp",)),
        ({"ipcomp": True}, set(), ("esp", "xfrm_interface", "ipcomp")),
        ({"udp_encapsulation": False}, set(), ("esp", "xfrm_interface")),
        ({"udp_encapsulation": True}, set(), ("tun",)),
        ({"implementation": "kernel"}, set(), ("esp", "xfrm_interface")),
        ({"implementation": "libipsec"}, {"esp"}, ("tun",)),
        ({"mode": "iptfs"}, set(), ("esp", "xfrm_interface", "xfrm_iptfs")),
    ],
)
def test_libipsec_is_chosen_where_the_kernel_has_no_esp_and_it_can_do_it(
    hosts: Any, params: dict[str, object], kernel: set[str], needs: tuple[str, ...]
) -> None:
    hosts[0].kernel = kernel
    assert tunnel(**params).need(hosts[0]).kernel == needs


def test_where_the_kernel_escapes_the_limit_auto_is_libipsec_if_it_can_do_it(hosts: Any) -> None:
    hosts[0].kernel = {"esp", "tun"}
    wanted: tuple[tuple[dict[str, Any], str], ...] = (
        ({}, "libipsec"),
        ({"mode": "transport"}, "kernel"),
        ({"implementation": "kernel"}, "kernel"),
    )
    for params, chosen in wanted:
        driver = tunnel(**params)
        driver.confine()
        assert driver._choose(hosts[0]) == chosen


# Captured: outer packets of payloads of 1000 and of the first that does not fit one packet.
@pytest.mark.parametrize(
    ("params", "inner_mtu", "outer", "point", "beyond"),
    [
        ({"mode": "transport", "suite": "3DES-SHA1"}, 1500, 1064, 1438, (1460, 64)),
        ({"mode": "transport", "suite": "NULL-SHA1"}, 1500, 1052, 1450, (1476, 48)),
        ({"mode": "transport", "suite": "AES-128-GCM"}, 1500, 1064, 1438, None),
        (
            {"mode": "transport", "suite": "AES-256-GCM", "udp_encapsulation": True},
            1500,
            1072,
            1430,
            (1452, 72),
        ),
        ({"suite": "AES-256-GCM"}, 1446, 1084, 1418, (1500, 80)),
        ({"suite": "AES-128-CBC-SHA1"}, 1438, 1096, 1410, None),
        ({"inner": "ipv6"}, 1446, 1104, 1398, None),
        ({"outer": "ipv6"}, 1426, 1104, 1398, None),
        ({"inner": "ipv6", "outer": "ipv6", "udp_encapsulation": True}, 1418, 1132, 1370, None),
        # Cut by the tunnel itself: no fragment of IP, which has a multiple of 8 bytes.
        ({"mode": "iptfs"}, 1500, 1088, 1414, (1500, 60)),
    ],
)
def test_the_model_gives_the_packets_that_were_captured(
    params: dict[str, object],
    inner_mtu: int,
    outer: int,
    point: int,
    beyond: tuple[int, ...] | None,
) -> None:
    model = tunnel(**params).encapsulation(agreed(inner_mtu))
    inner: Any = 6 if params.get("inner") == "ipv6" else 4

    def packets(payload: int) -> tuple[int, ...]:
        wire = datagram(payload, link_mtu_bytes=1500, encapsulation=model, inner_ip=inner)
        assert sum(layer.bytes for layer in wire.layers) == wire.overhead_bytes
        return wire.outer_packet_bytes

    assert packets(1000) == (outer,)
    found = fragmentation_point(link_mtu_bytes=1500, encapsulation=model, inner_ip=inner)
    assert found == point
    assert beyond is None or packets(point + 1) == beyond


def test_libipsec_is_always_encapsulated_in_udp() -> None:
    names = [layer.name for layer in tunnel().encapsulation(agreed(1400, "libipsec")).layers(100)]
    assert "UDP encapsulation" in names
    names = [layer.name for layer in tunnel().encapsulation(agreed(1400, "kernel")).layers(100)]
    assert "UDP encapsulation" not in names


@pytest.mark.parametrize(
    ("params", "implementation", "mtu"),
    [
        ({}, "kernel", 1446),
        ({"suite": "AES-128-CBC-SHA1"}, "kernel", 1438),
        ({"outer": "ipv6"}, "kernel", 1426),
        ({}, "libipsec", 1400),
        ({"mtu_bytes": 1300}, "libipsec", 1300),
        ({"mode": "transport"}, "kernel", 1500),
        ({"mode": "iptfs"}, "kernel", 1500),
        ({"mode": "iptfs", "mtu_bytes": 9000}, "kernel", 9000),
    ],
)
def test_the_inner_mtu_is_the_longest_that_fits(
    site: Site, params: dict[str, object], implementation: Any, mtu: int
) -> None:
    assert _mtu(site, implementation, **params) == mtu


def test_an_inner_mtu_that_does_not_fit_is_refused_with_the_limit(site: Site) -> None:
    with pytest.raises(TunnelError, match="mtu_bytes is 1447, ESP carries at most 1446 whole"):
        _mtu(site, "kernel", mtu_bytes=1447)
    with pytest.raises(TunnelError, match="IPv6 inside needs 1280"):
        _mtu(site, "kernel", mtu_bytes=1279, inner="ipv6")


def test_a_program_that_is_missing_fails_the_start_and_leaves_nothing(
    hosts: Any, site: Site
) -> None:
    for host in hosts:
        host.kernel = {"esp"}

    def dies(process: Any) -> None:
        process.status, process.log = 1, "sh: /usr/lib/ipsec/charon: not found\n"

    hosts[0].started = hosts[1].started = dies
    ipsec = tunnel()
    with pytest.raises(TunnelError, match=r"ended with status 1 before it could open its control"):
        ipsec.up(site)
    ipsec.down()
    assert [process.stopped for host in hosts for process in host.spawned] == [1, 1]
    assert ipsec.problem() is None


def test_nothing_is_set_that_the_study_does_not_ask_for() -> None:
    params = IpsecParams.model_validate({})
    assert (params.proposal(), params.esp_settings(), params.ike_settings()) == (
        "aes256gcm16",
        {},
        {},
    )


def test_what_the_study_sets_stands_in_the_settings() -> None:
    params = IpsecParams.model_validate(
        {"pfs": "x25519", "esn": True, "rekey": "90 s", "replay_window": 64, "childless": True}
        | {"ike_fragmentation": False}
    )
    assert params.proposal() == "aes256gcm16-x25519-esn"
    assert params.esp_settings() == {"replay_window": 64, "rekey_time": "90s"}
    assert params.ike_settings() == {"fragmentation": "no", "childless": "force"}


def gateway_of(site: Site) -> Site:
    """Two clients, the second on a wire of its own."""
    second = replace(site.client, ipv4="198.18.0.3", wire="eth1")
    return replace(
        site, clients=(site.client, second), inner_ipv4=gateway_ipv4, inner_ipv6=gateway_ipv6
    )


def test_a_gateway_chooses_as_one_pair_does(hosts: Any) -> None:
    hosts[0].kernel = {"esp", "xfrm_interface"}
    assert tunnel(clients=2)._choose(hosts[0]) == "kernel"
    assert tunnel(clients=2, implementation="libipsec")._choose(hosts[0]) == "libipsec"
    hosts[0].kernel = set()
    assert tunnel(clients=2)._choose(hosts[0]) == "libipsec"
    assert tunnel(clients=2, mode="transport")._choose(hosts[0]) == "kernel"


def test_ip_tfs_is_a_mode_of_each_child_between_the_addresses_of_a_tunnel(site: Site) -> None:
    driver = tunnel(mode="iptfs", count=2)
    charon: Any = None
    text = render(driver._document(site, End("client", site.client, charon, (0, 1)), ["one"]))
    assert text.count('mode = "iptfs"') == text.count("remote_ts") == 2
    # Packets that wait go together; what a longer one is cut into has headers of its own.
    model = driver.encapsulation(agreed(1500))
    assert model.shares
    wire = datagram(2900, link_mtu_bytes=1500, encapsulation=model)
    assert wire.outer_packet_bytes == (1500, 116, 1500, 64)


def test_all_clients_of_a_gateway_are_behind_one_interface_of_the_kernel(
    hosts: Any, site: Site
) -> None:
    driver, gateway = tunnel(clients=2), gateway_of(site)
    charon: Any = None
    ends = [
        End("client", gateway.clients[1], charon, (1,)),
        End("server", site.server, charon, (0, 1)),
    ]
    made = []
    for end, host in zip(ends, hosts, strict=True):
        name = f"tmabcdee{end.numbers[0]}{end.side[0]}"
        shown = json.dumps([{"ifname": name, "mtu": 1400, "flags": ["UP"]}])
        host.answer = lambda _argv, _stdin, shown=shown: (0, shown)
        driver._make_interfaces(gateway, end, 1400)
        for number in end.numbers:
            driver._address(gateway, end, number)
        ran = [argv for argv, _ in host.ran]
        made.append([argv[4:] for argv in ran if argv[:3] == ("ip", "link", "add")])
        made.append([argv[3:] for argv in ran if argv[:2] == ("ip", "address")])
    assert made == [
        [("tmabcdee1c", "type", "xfrm", "dev", "eth0", "if_id", "1")],
        [("198.19.0.3", "peer", "198.19.0.1/32", "dev", "tmabcdee1c")],
        # No interface of the link: the routes decide.
        [("tmabcdee0s", "type", "xfrm", "if_id", "1")],
        [("198.19.0.1/24", "dev", "tmabcdee0s")],
    ]
    text = render(driver._document(gateway, ends[1], ["one", "two"]))
    assert text.count('if_id_in = "1"') == text.count('if_id_out = "1"') == 2
    paths = driver._paths(gateway, 1400)
    assert [path.server_interface for path in paths] == ["tmabcdee0s"] * 2
    assert [path.client_interface for path in paths] == ["tmabcdee0c", "tmabcdee1c"]


def test_transport_mode_of_a_gateway_has_one_address_and_a_route_on_each_wire(
    hosts: Any, site: Site
) -> None:
    driver, gateway = tunnel(clients=2, mode="transport"), gateway_of(site)
    charon: Any = None
    end = End("server", site.server, charon, (0, 1))
    for number in end.numbers:
        driver._lead(gateway, end, number)
    assert [argv[1:] for argv, _ in hosts[1].ran] == [
        ("address", "add", "198.19.0.1/32", "dev", "eth0"),
        *(
            ("route", "add", f"{inner}/32", "via", outer, "dev", wire, "src", "198.19.0.1")
            for inner, outer, wire in (
                ("198.19.0.2", "198.18.0.1", "eth0"),
                ("198.19.0.3", "198.18.0.3", "eth1"),
            )
        ),
    ]
    text = render(driver._document(gateway, end, ["one", "two"]))
    assert text.count('local_addrs = "198.19.0.1"') == 2
    assert 'remote_addrs = "198.19.0.3"' in text


def test_each_client_of_a_gateway_has_a_connection_and_a_secret_of_its_own(site: Site) -> None:
    driver = tunnel(clients=2)
    driver._chosen = "libipsec"
    gateway = gateway_of(site)
    charon: Any = None
    ends = [
        End("client", site.client, charon, (0,)),
        End("client", gateway.clients[1], charon, (1,)),
        End("server", site.server, charon, (0, 1)),
    ]
    *clients, server = (render(driver._document(gateway, end, ["one", "two"])) for end in ends)
    for number, (text, secret, other) in enumerate(
        zip(clients, ("one", "two"), ("two", "one"), strict=True)
    ):
        for both in (text, server):
            assert f'id = "client{number}.tmabcde"' in both
            assert f'secret = "{secret}"' in both
            assert f"esp{number} {{" in both
        assert f'secret = "{other}"' not in text
        assert f'remote_ts = "198.19.0.{number + 2}/32"' in server
    assert 'remote_addrs = "198.18.0.3"' in server
    assert server.count('local_ts = "198.19.0.1/32"') == 2


@pytest.mark.parametrize(
    ("params", "passes"),
    [
        ({}, {"routed", "nat"}),
        ({"udp_encapsulation": False}, {"routed"}),
        ({"mode": "transport"}, set()),
    ],
)
def test_what_passes_a_router(params: dict[str, object], passes: set[str]) -> None:
    tunnel = IpsecTunnel(IpsecParams.model_validate(params))
    routers: tuple[Router, ...] = ("none", "routed", "nat")
    assert {one for one in routers if tunnel.router_problem(one) is None} == {"none"} | passes
