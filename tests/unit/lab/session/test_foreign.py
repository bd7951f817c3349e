"""A frame that is not the tunnel's fails a trial, at whatever moment it passed."""

from dataclasses import replace
from typing import Any

import pytest

from tunnelmark.lab.emulators import LinkCounters
from tunnelmark.lab.session.foreign import foreign_check
from tunnelmark.model.tunnel import WireRule

_OPENVPN = WireRule(True, "UDP to or from port 1194", (17,), udp_ports=(1194,), ip_version=4)
_ESP = WireRule(True, "ESP or IKE", (50, 17), udp_ports=(500, 4500))
_MACSEC = WireRule(True, "frames of MACsec", (), ether_types=(0x88E5,))
_WIREGUARD = WireRule(True, "UDP to or from port 51820", (17,), udp_ports=(51820,))


def kind(
    frames: int,
    protocol: int = 17,
    ports: tuple[int, int] = (0, 0),
    *,
    ether_type: int = 0x0800,
    later_fragment: bool = False,
) -> dict[str, Any]:
    return {
        "ether_type": ether_type,
        "protocol": protocol,
        "ports": list(ports),
        "later_fragment": later_fragment,
        "frames": frames,
    }


def counters(*kinds: dict[str, Any], others: int = 0) -> LinkCounters:
    return LinkCounters({"kinds": {"counted": list(kinds), "others": others}}, {"kinds": EMPTY})


EMPTY: dict[str, Any] = {"counted": [], "others": 0}
NOTHING = LinkCounters({"kinds": EMPTY}, {"kinds": EMPTY})


@pytest.mark.parametrize(
    ("rule", "passed"),
    [
        (_OPENVPN, kind(900, ports=(1194, 0))),
        (_OPENVPN, kind(900, later_fragment=True)),
        (_ESP, kind(900, 50)),
        (_ESP, kind(3, ports=(500, 0))),
        (_MACSEC, kind(900, 0, ether_type=0x88E5)),
        (_WIREGUARD, kind(900, ports=(40000, 51820))),
        (_OPENVPN, kind(2, 0, ether_type=0x0806)),
        (_OPENVPN, kind(1, 1, (3, 0))),
        (_OPENVPN, kind(1, 58, (135, 0), ether_type=0x86DD)),
    ],
)
def test_what_is_the_tunnels_and_control_of_the_link_pass(
    rule: WireRule, passed: dict[str, Any]
) -> None:
    (check,) = foreign_check(NOTHING, counters(passed), [rule])
    assert check.ok, check.message


@pytest.mark.parametrize(
    ("rule", "passed", "words"),
    [
        (_OPENVPN, kind(1, ports=(7788, 0)), "1 frames on the link were not UDP to or from port"),
        (_ESP, kind(4, ports=(7788, 0)), "UDP, port 7788 (forward)"),
        (_ESP, kind(4, 6, (5201, 0)), "TCP, port 5201"),
        (_OPENVPN, kind(1, 1, (8, 0)), "ICMP (forward)"),
        (_MACSEC, kind(1, 17, (7788, 0)), "UDP, port 7788"),
        (_OPENVPN, kind(1, ports=(1194, 0), ether_type=0x86DD), "UDP, port 1194"),
        (_WIREGUARD, kind(1, ports=(40000, 40001)), "port 40000 and 40001"),
    ],
)
def test_one_frame_of_another_kind_fails(
    rule: WireRule, passed: dict[str, Any], words: str
) -> None:
    (check,) = foreign_check(NOTHING, counters(passed), [rule])
    assert not check.ok
    assert words in check.message


def test_only_what_came_since_counts() -> None:
    clear, own = kind(50, ports=(7788, 0)), kind(10, ports=(1194, 0))
    before = counters(clear, own)
    (check,) = foreign_check(before, counters(clear, {**own, "frames": 900}), [_OPENVPN])
    assert check.ok
    (check,) = foreign_check(before, counters({**clear, "frames": 51}, own), [_OPENVPN])
    assert (check.ok, check.value) == (False, 1.0)


def test_kinds_that_were_not_distinguished_are_doubt() -> None:
    (check,) = foreign_check(NOTHING, counters(others=3), [_OPENVPN])
    assert (check.ok, check.value) == (False, 3.0)


def test_a_load_beside_the_tunnel_may_be_there_where_the_study_has_one() -> None:
    beside = replace(_OPENVPN, describe="UDP, readable", udp_ports=(), encrypted=False)
    seen = counters(kind(900, ports=(1194, 0)), kind(70, ports=(7788, 0)))
    (check,) = foreign_check(NOTHING, seen, [_OPENVPN, beside])
    assert check.ok


def test_a_medium_that_does_not_count_by_kind_says_nothing() -> None:
    bare = LinkCounters({"kinds": None}, {"kinds": None})
    assert foreign_check(bare, bare, [_OPENVPN]) == []
    assert foreign_check(None, NOTHING, [_OPENVPN]) == []
