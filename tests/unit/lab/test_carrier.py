"""TCP that carries a tunnel has a congestion control of its own, whatever a workload sets."""

from types import SimpleNamespace
from typing import Any

import pytest

from tunnelmark.lab.carrier import noted, set_carrier
from tunnelmark.model.errors import LabError, RefusedError
from tunnelmark.model.tunnel import DataPath, Negotiated, TunnelUp, WireRule
from tunnelmark.tunnels.base import Tunnel
from tunnelmark.tunnels.registry import tunnel_kinds

_ROUTES = """\
default via 10.1.0.1 dev eth0
10.1.0.0/24 dev eth0 proto kernel scope link src 10.1.0.2
"""


class Host:
    """A host whose kernel says bbr, has two routes, and connections with what ``ss`` says."""

    def __init__(self, said: str = "", *, refuses: bool = False) -> None:
        self.name = "client"
        self.said = said
        self.refuses = refuses
        self.batch: list[str] = []
        self.asked: list[str] = []

    def run(self, argv: list[str], *, stdin: bytes = b"", check: bool = True) -> Any:
        said = ""
        if argv[0] == "cat":
            said = (
                "reno bbr cubic\n" if argv[1].endswith("available_congestion_control") else "bbr\n"
            )
        elif argv[-2:] == ["-batch", "-"]:
            if self.refuses:
                raise LabError("ip on client: RTNETLINK answers: Operation not supported")
            self.batch = [" ".join(argv[:-2]), *stdin.decode().splitlines()]
        elif argv[0] == "ip":
            said = _ROUTES
        elif argv[0] == "ss":
            assert not check
            self.asked.append(" ".join(argv))
            said = self.said
        return SimpleNamespace(text=lambda: said)


def driver(kind: str, **params: object) -> Tunnel:
    own = tunnel_kinds()[kind]
    return own(own.params_type.model_validate(params))


def test_routes_of_its_own_name_it_for_its_ports_alone() -> None:
    hosts: list[Any] = [Host(), Host()]
    set_carrier(driver("openvpn", transport="tcp", count=3, congestion="cubic"), hosts)
    for host in hosts:
        assert host.batch == [
            "ip -4",
            "route add default via 10.1.0.1 dev eth0 table 7470 congctl cubic",
            (
                "route add 10.1.0.0/24 dev eth0 proto kernel scope link src 10.1.0.2 table 7470 "
                "congctl cubic"
            ),
            "rule add priority 100 ipproto tcp dport 1194-1196 lookup 7470",
            "rule add priority 100 ipproto tcp sport 1194-1196 lookup 7470",
        ]


def test_without_a_word_it_is_the_hosts_own_and_no_workload_changes_it() -> None:
    host: Any = Host()
    set_carrier(driver("ssh_tun", outer="ipv6", inner="ipv6"), [host])
    assert host.batch[0] == "ip -6"
    assert host.batch[1].endswith("table 7470 congctl bbr")


@pytest.mark.parametrize("kind", ["openvpn", "wireguard", "tinc", "ocserv", "gre", "none"])
def test_nothing_is_done_where_tcp_does_not_carry_it(kind: str) -> None:
    host: Any = Host()
    set_carrier(driver(kind), [host])
    up = up_over("a")
    assert noted(up, driver(kind), [host]) is up
    assert host.batch == host.asked == []


def test_a_kernel_without_such_rules_leaves_its_own_and_refuses_what_is_asked_for() -> None:
    host: Any = Host(refuses=True)
    set_carrier(driver("ssh_tun"), [host])
    with pytest.raises(LabError, match=r"congestion is 'reno', which fails here: .* not supported"):
        set_carrier(driver("ssh_tun", congestion="reno"), [host])


def up_over(version: str) -> TunnelUp:
    agreed = Negotiated(None, version, "program", 1400, DataPath.USER_SPACE, {"own": "yes"})
    rule = WireRule(encrypted=True, describe="", ip_protocols=())
    return TunnelUp(paths=(), negotiated=(agreed,), wire=rule, processes=())


_LINE = "0 0 10.1.0.2:41000 10.1.0.3:7000 cubic wscale:7,7 rto:201 rtt:0.2/0.1 mss:1448\n"


@pytest.mark.parametrize(
    ("params", "said", "found"),
    [
        ({}, ("", ""), ("bbr", "kernel")),
        ({"congestion": "reno"}, ("", ""), ("reno", "study")),
        ({"congestion": "cubic"}, (_LINE, _LINE), ("cubic", "study")),
        ({}, (_LINE, _LINE.replace("cubic", "bbr")), ("bbr, cubic", "kernel")),
    ],
)
def test_it_is_what_the_connections_say_that_stand(
    params: dict[str, object], said: tuple[str, str], found: tuple[str, str]
) -> None:
    hosts: list[Any] = [Host(one) for one in said]
    (agreed,) = noted(up_over("1.0"), driver("ssh_tun", **params), hosts).negotiated
    assert agreed.details == {
        "own": "yes",
        "carrier_congestion": found[0],
        "carrier_congestion_chosen_by": found[1],
    }
    assert hosts[0].asked == [
        (
            "ss -tinHO state established ( sport >= :2222 and sport <= :2222 ) or "
            "( dport >= :2222 and dport <= :2222 )"
        )
    ]


def test_connections_with_another_than_the_study_asks_for_are_refused() -> None:
    host: Any = Host(_LINE)
    with pytest.raises(RefusedError, match=r"is 'reno', and the .* OpenSSH .* use cubic"):
        noted(up_over("1.0"), driver("ssh_tun", congestion="reno"), [host])
