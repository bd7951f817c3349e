"""What datagrams become in a simulation: packets by the overhead model, work by the cost model."""

from dataclasses import replace
from typing import Any

import pytest

from made_costs import MODEL
from tunnelmark.engine.link import SharedLinkSpec
from tunnelmark.links.registry import link_kinds
from tunnelmark.model.block import ProofVerdict
from tunnelmark.model.costs import CostedTunnel, CostModel, EndCosts, Fitted, WorkCosts
from tunnelmark.model.registry import make
from tunnelmark.model.trial import DriverSpec
from tunnelmark.sim.carriage import MOST_WAITING, Carriage, carriage, payloads_of
from tunnelmark.sim.work import work_of
from tunnelmark.tunnels.registry import tunnel_kinds

SERIAL = DriverSpec("serial", "line", {"rate": "2 Mbit/s"})
AIR = DriverSpec("wlan", "air", {"standard": "802.11n", "band": "5 GHz", "mcs": 15})


def carried(
    kind: str, costs: CostModel | None = None, *, over: DriverSpec = SERIAL, **params: object
) -> Carriage:
    driver = tunnel_kinds()[kind]
    link = make(link_kinds(), over).spec(0)
    assert link is not None
    tunnel = driver(driver.params_type.model_validate(params))
    models = () if costs is None else (replace(costs, tunnel=CostedTunnel(kind)),)
    work = work_of(tunnel, DriverSpec(kind, kind, {}), DriverSpec("host", "host", {}), models)
    return carriage(tunnel, link, 1500, work)


def sizes(carriage: Carriage, *payloads_bytes: int) -> Any:
    return carriage.path_json(payloads_bytes)["sizes"]


def exactly(value: float) -> Fitted:
    return Fitted(value, value, value)


WRAP = WorkCosts(exactly(20_000.4), exactly(900.0), exactly(0.25), exactly(64.0))
UNWRAP = WorkCosts(exactly(25_000.0), exactly(1_000.0))
COSTS = replace(
    MODEL,
    client=EndCosts(WRAP, UNWRAP),
    server=EndCosts(WRAP, UNWRAP, servers=2, in_order=False),
)


def test_without_a_tunnel_a_datagram_goes_as_it_is_and_costs_nothing() -> None:
    path = carried("none").path_json([1472, 64, 64, 1473])
    assert path == {
        "sizes": [
            {"payload_bytes": 64, "packets": [{"bytes": 92, "on_link": [92]}]},
            {"payload_bytes": 1472, "packets": [{"bytes": 1500, "on_link": [1500]}]},
            {"payload_bytes": 1473, "packets": [{"bytes": 1501, "on_link": [1500, 21]}]},
        ],
        "tunnel": None,
    }


def test_a_datagram_is_cut_before_a_tunnel_that_fits_and_behind_one_that_does_not() -> None:
    (size,) = sizes(carried("wireguard"), 1393)
    # An inner MTU of 1420: 1421 bytes are cut at a multiple of 8 behind the header.
    assert [one["bytes"] for one in size["packets"]] == [1420, 21]
    assert [len(one["on_link"]) for one in size["packets"]] == [1, 1]
    (size,) = sizes(carried("openvpn", cipher="AES-256-GCM"), 1440)
    (packet,) = size["packets"]
    assert (packet["bytes"], len(packet["on_link"])) == (1468, 2)


def test_a_packet_of_a_tunnel_over_tcp_is_a_message_in_its_stream() -> None:
    path: Any = carried("openvpn", cipher="AES-256-GCM", transport="tcp").path_json([64, 1440])
    short, long = path["sizes"]
    # OpenVPN adds its length, opcode, packet ID and tag; the long one takes two segments.
    assert short["packets"] == [{"bytes": 92, "on_link": [92 + 26]}]
    assert long["packets"] == [{"bytes": 1468, "on_link": [1468 + 26]}]
    tunnel = path["tunnel"]
    assert isinstance(tunnel, dict)
    assert tunnel["tcp"] == {
        "ip_header_bytes": 20,
        "segment_bytes": 1448,
        "window_bytes": 3 << 20,
        "congestion": "cubic",
    }
    reno = carried("openvpn", transport="tcp", congestion="reno")
    assert reno.path_json([64])["tunnel"]["tcp"]["congestion"] == "reno"  # type: ignore[index]
    assert reno.agreed.details["carrier_congestion"] == "reno"
    over_six = carried("openvpn", transport="tcp", outer="ipv6").path_json([64])["tunnel"]
    assert isinstance(over_six, dict)
    assert (over_six["tcp"]["ip_header_bytes"], over_six["tcp"]["segment_bytes"]) == (40, 1428)


def test_a_tunnel_over_packets_has_no_stream() -> None:
    assert not carried("wireguard").stream
    assert "tcp" not in carried("wireguard").path_json([64])["tunnel"]  # type: ignore[operator]


def test_without_a_cost_model_the_ends_take_no_time() -> None:
    tunnel = carried("wireguard").path_json([64])["tunnel"]
    assert isinstance(tunnel, dict)
    assert tunnel["drops_copies"] is True
    for end in ("client", "server"):
        for job in ("wrap", "unwrap"):
            work = tunnel[end][job]
            assert (work["packet_ns"], work["byte_ps"], work["scatter"]) == (0, 0, 0.0)


def test_costs_are_those_of_each_end_and_what_nobody_knows_is_usual() -> None:
    tunnel = carried("wireguard", COSTS).path_json([64])["tunnel"]
    assert isinstance(tunnel, dict)
    assert tunnel["client"]["wrap"] == {
        "packet_ns": 20_000,
        "byte_ps": 900,
        "scatter": 0.25,
        "most_waiting": 64,
    }
    assert tunnel["client"]["unwrap"]["scatter"] == 0.0
    assert tunnel["client"]["unwrap"]["most_waiting"] == MOST_WAITING
    assert (tunnel["server"]["servers"], tunnel["server"]["in_order"]) == (2, False)


def test_the_models_packets_stand_in_the_place_of_a_proof() -> None:
    proofs = carried("wireguard", count=2).proofs([64, 64])
    assert [proof.path for proof in proofs] == ["0", "1"]
    for proof in proofs:
        assert proof.verdict is ProofVerdict.MODELLED
        assert proof.ok
        assert proof.fragmentation_point_bytes == 1420 - 28
        assert [one.payload_bytes for one in proof.samples] == [64]


@pytest.mark.parametrize(
    ("kind", "params", "cipher"),
    [
        ("ipsec", {"suite": "3DES-SHA1"}, "3DES-SHA1"),
        ("l2tp_ipsec", {"suite": "AES-256-GCM"}, "AES-256-GCM"),
        ("l2tp_ipsec", {"ipsec": False}, None),
        ("wireguard", {}, "CHACHA20-POLY1305"),
        ("openvpn", {"cipher": "BF-CBC"}, "BF-CBC"),
        ("pptp", {}, "MPPE-128 (RC4, stateless)"),
        ("pptp", {"mppe": "none"}, None),
        ("macsec", {"encrypt": False}, None),
        ("vxlan", {}, None),
    ],
)
def test_the_cipher_that_a_report_names_is_the_one_of_the_study(
    kind: str, params: dict[str, Any], cipher: str | None
) -> None:
    assert carried(kind, **params).agreed.cipher == cipher


@pytest.mark.parametrize(
    ("security", "cipher"), [("wpa2-ccmp", "CCMP"), ("wpa2-tkip", "TKIP"), ("open", None)]
)
def test_so_is_that_of_the_air(security: str, cipher: str | None) -> None:
    old = DriverSpec("wlan", "air", {"standard": "802.11g"})
    assert carried("wpa2", over=old, security=security).agreed.cipher == cipher


def test_every_path_has_addresses_of_its_own() -> None:
    for inner in ("ipv4", "ipv6"):
        paths = carried("openvpn", count=64, inner=inner).paths
        addresses = [end for path in paths for end in (path.client_address, path.server_address)]
        assert len(set(addresses)) == 128
        assert all((":" in one) == (inner == "ipv6") for one in addresses)


@pytest.mark.parametrize(
    ("size", "payloads"),
    [
        ({"type": "fixed", "payload_bytes": 64}, [64]),
        ({"type": "uniform", "min_bytes": 30, "max_bytes": 33}, [30, 31, 32, 33]),
        ({"type": "mix", "shares": [{"payload_bytes": 40, "weight": 7}]}, [40]),
    ],
)
def test_all_payloads_of_a_flow_are_known(size: dict[str, object], payloads: list[int]) -> None:
    assert list(payloads_of({"size": size})) == payloads


def test_sizes_of_a_file_are_refused() -> None:
    with pytest.raises(ValueError, match="sizes by trace are not simulated"):
        payloads_of({"size": {"type": "trace"}})


def test_a_tunnel_that_is_the_link_changes_the_air_and_no_packet() -> None:
    secured = carried("wpa2", over=AIR, security="wpa2-ccmp")
    bare = carried("none", over=AIR)
    assert secured.path_json([1400])["sizes"] == bare.path_json([1400])["sizes"]
    of_link, of_none = (one.link for one in (secured, bare))
    assert isinstance(of_link, SharedLinkSpec)
    assert isinstance(of_none, SharedLinkSpec)
    assert of_link.medium == {**of_none.medium, "security": "ccmp"}
    # MAC header 24, QoS control 2, CCMP 8 and 8, LLC and SNAP 8, FCS 4 (802.11-2020, 9.2, 12.5.3).
    assert secured.wire(1400).packets[0].outer_packet_bytes == (1428 + 54,)
