"""``clients`` in a study: what goes with it, and what does not."""

import pytest

from small_study import one_echo
from tunnelmark.model.baseline import label_of, load_of
from tunnelmark.model.errors import StudyError
from tunnelmark.model.topology import client_addresses, gateway_ipv4, gateway_ipv6, wire_macs
from tunnelmark.study.parse import parse_study
from tunnelmark.study.plan import jobs
from tunnelmark.study.study import Study

_GATEWAY = '[[tunnel]]\nkind = "openvpn"\nclients = 3\n'
_IPSEC = _GATEWAY.replace("openvpn", "ipsec")


def parsed(tunnels: str = _GATEWAY, more: str = "", old: str = "", new: str = "") -> Study:
    text = one_echo("gateway", "Gateway", tunnels).replace(old, new) + more
    return parse_study(text, "g.toml")


def refused(**given: str) -> str:
    with pytest.raises(StudyError) as caught:
        parsed(**given)
    return str(caught.value)


def test_the_baseline_has_as_many_clients() -> None:
    (job,) = jobs(parsed())
    assert job.block.baseline.params == {"clients": 3}
    assert job.block.baseline.label == "none 3 clients"
    (one,) = jobs(parsed(_GATEWAY.replace("3", "1")))
    assert one.block.baseline.label == "none 1 client"


def test_clients_share_a_link_where_the_study_says_so_and_the_baseline_too() -> None:
    study = parsed(_GATEWAY + "shared = true\n")
    (job,) = jobs(study)
    assert job.block.tunnel.columns["shared"] is True
    assert job.block.baseline.params == {"clients": 3, "shared": True}
    assert job.block.baseline.label == "none 3 clients on one link"
    (apart,) = jobs(parsed(_GATEWAY + "shared = false\n"))
    assert "shared" not in apart.block.tunnel.columns
    assert apart.block.baseline.label == "none 3 clients"


def test_a_study_may_compare_a_shared_link_with_links_apart() -> None:
    study = parsed(_GATEWAY + "shared = [false, true]\n")
    first, second = jobs(study)
    assert first.block.tunnel.label != second.block.tunnel.label
    assert first.block.baseline.label != second.block.baseline.label


def test_without_clients_a_tunnel_is_the_point_that_it_was() -> None:
    (spec,) = parsed(_GATEWAY.replace("clients = 3\n", "")).tunnels
    assert "clients" not in spec.columns
    (job,) = jobs(parsed(_GATEWAY.replace("clients = 3\n", "")))
    assert job.block.baseline.params == {}


@pytest.mark.parametrize(
    ("params", "load"),
    [
        ({}, ""),
        ({"inner": "ipv6"}, ""),
        ({"count": 3}, "3 tunnels at once"),
        ({"count": 3, "inner": "ipv6"}, "3 tunnels at once"),
        ({"clients": 1}, "1 client"),
        ({"clients": 50, "inner": "ipv6"}, "50 clients"),
        ({"clients": 5, "shared": True}, "5 clients on one link"),
    ],
)
def test_the_load_is_read_off_the_label_of_the_baseline(
    params: dict[str, object], load: str
) -> None:
    assert load_of(label_of(params)) == load


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"tunnels": '[[tunnel]]\nkind = "tinc"\nclients = 3\n'},
            "tinc cannot be a gateway: leave out clients, or set count",
        ),
        (
            {"tunnels": '[[tunnel]]\nkind = "stunnel"\nclients = 3\n'},
            "stunnel cannot be a gateway: leave out clients, or set count",
        ),
        ({"tunnels": _GATEWAY + "count = 2\n"}, "clients is 3 and count is 2"),
        ({"tunnels": _GATEWAY.replace("3", "0")}, "tunnel.clients is 0, must be at least 1"),
        ({"tunnels": _GATEWAY.replace("3", "201")}, "tunnel.clients is 201, must be at most 200"),
        (
            {"tunnels": _GATEWAY + 'key_exchange = "static"\ncipher = "AES-256-CBC"\n'},
            "key_exchange static is for two ends, it cannot have clients",
        ),
        (
            {"tunnels": '[[tunnel]]\nkind = "openvpn"\nshared = true\n'},
            "shared is for the clients of a gateway: give clients, or leave it out",
        ),
        (
            {
                "tunnels": _GATEWAY + "shared = true\n",
                "old": 'preset = "serial-8m-41ms"',
                "new": 'kind = "direct"',
            },
            "shared is true, and link direct joins the hosts directly",
        ),
        (
            {"tunnels": _IPSEC + 'mode = "transport"\nimplementation = "libipsec"\n'},
            "libipsec cannot do transport mode (set implementation to kernel)",
        ),
        ({"more": '\n[topology]\nrouter = "nat"\n'}, "topology.router is nat"),
        (
            {"old": 'preset = "serial-8m-41ms"', "new": 'kind = "wlan"\nstandard = "802.11b"'},
            "is a medium that all clients would share",
        ),
        (
            {"more": '\n[[device]]\nkind = "pi-2"\n'},
            "limits the client, of which there are several",
        ),
        (
            {"more": '\n[[workload]]\nkind = "tcp_bulk"\nduration = "1 s"\n'},
            "tcp_bulk runs on one client, not on all of a gateway; those that do: ",
        ),
    ],
)
def test_what_a_gateway_cannot_have_is_refused_with_its_line(
    given: dict[str, str], words: str
) -> None:
    message = refused(**given)
    assert message.startswith("g.toml:")
    assert words in message
    assert "\n" not in message


def test_a_device_may_limit_the_server() -> None:
    study = parsed(more='\n[[device]]\nkind = "pi-2"\nendpoint = "server"\n')
    assert len(study.devices) == 1


def test_every_client_has_addresses_of_its_own() -> None:
    numbers = range(200)
    for found in (client_addresses, gateway_ipv4, gateway_ipv6):
        assert len({found(number)[0] for number in numbers}) == len(numbers)
    macs = {mac for number in numbers for mac in wire_macs(number)}
    assert len(macs) == 2 * len(numbers)
    assert client_addresses(0) == ("198.18.0.1", "fd00:7472::1")
    assert {gateway_ipv4(number)[1] for number in numbers} == {"198.19.0.1"}
    # Neither that of the server nor that of the router.
    assert not {"198.18.0.2", "198.18.0.254"} & {client_addresses(number)[0] for number in numbers}
    with pytest.raises(ValueError, match="client number is 200, must be 0 to 199"):
        client_addresses(200)
