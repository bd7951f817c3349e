"""The inventory of two hosts: what is taken, and what is said of what is not."""

import contextlib
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from tunnelmark.hosts.inventory import MOST_BYTES, Inventory, load_inventory, parse_inventory
from tunnelmark.model.errors import StudyError

GOOD: dict[str, Any] = {
    "max_rate": "5 Mbit/s",
    "client": {"ssh": "pi@branch", "address": "192.0.2.10/24", "ports": [1194]},
    "server": {"ssh": "root@vps", "address": "192.0.2.20/24", "interface": "ens3"},
}


def parse(document: dict[str, Any]) -> Inventory:
    document = {
        key: {name: one for name, one in part.items() if one is not None}
        if isinstance(part, dict)
        else part
        for key, part in document.items()
    }
    return parse_inventory(tomli_w.dumps(document).encode(), "hosts.toml")


def test_what_is_in_it_is_typed() -> None:
    found = parse(GOOD)
    assert found.max_rate == 5_000_000
    assert str(found.client.own) == "192.0.2.10/24"
    assert str(found.client.reached) == "192.0.2.10"
    assert found.ip == "ipv4"
    assert found.client.ports == (1194,)
    assert (found.server.interface, found.server.attach) == ("ens3", "macvlan")


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("client", "ssh"), None, "client.ssh is missing"),
        (("client", "ssh"), "-oProxyCommand=id", "client.ssh is not an ssh destination"),
        (("client", "ssh"), 7, "client.ssh must be a string"),
        (("client", "adress"), "x", "client.adress is not a key of an inventory; known: ssh, add"),
        (("clinet",), {}, "clinet is not a key of an inventory; known: client, server"),
        (("server", "address"), "192.0.2.300", "server.address is '192.0.2.300', must be an IP ad"),
        (("server", "address"), "2001:db8::7/64", "client and server must have addresses of one"),
        (("server", "address"), "-vps.example", "server.address is '-vps.example', must be an IP"),
        (("server", "address"), "fe80::1%eth0", "server.address is 'fe80::1%eth0', must be an IP"),
        (("client", "bind"), "10.0.0.1", "client.bind is '10.0.0.1', must be an IP address with"),
        (("client", "bind"), "10.0.0.1/24", "client: address is 192.0.2.10/24: with bind it"),
        (("client", "gateway"), "192.0.2.1/24", "client.gateway is '192.0.2.1/24', must be an IP"),
        (("client", "gateway"), "2001:db8::1", "must be of one IP version"),
        (("server", "address"), 3221225994, "server.address must be a string"),
        (("server", "address"), "127.0.0.1/8", "127.0.0.1, which no host on a line can have"),
        (("server", "address"), "198.18.0.9/24", "198.18.0.0/15 is for the inside"),
        (("server", "address"), "192.0.2.10/24", "client and server have the same address"),
        (("server", "address"), "203.0.113.5/24", "client: the other host is not in 192.0.2.0/24"),
        (("server", "ssh"), "pi@branch", "client and server are the same host, pi@branch"),
        (("server", "interface"), "a b", "server.interface is not an interface name"),
        (("server", "gateway"), "203.0.113.1", "gateway is 203.0.113.1, must be in the network"),
        (("client", "ports"), [70000], "client.ports.0 input should be less than or equal"),
        (("max_rate",), "5", "max_rate has no unit"),
        (("client", "attach"), "bridge", "client.attach input should be 'macvlan' or 'routed'"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    place: tuple[str, ...], value: object, words: str
) -> None:
    document = {key: dict(part) if isinstance(part, dict) else part for key, part in GOOD.items()}
    table = document if len(place) == 1 else document[place[0]]
    if value is None:
        del table[place[-1]]
    else:
        table[place[-1]] = value
    with pytest.raises(StudyError) as caught:
        parse(document)
    assert str(caught.value).startswith("hosts.toml: ")
    assert words in str(caught.value)
    assert ": :" not in str(caught.value)


def test_behind_nat_an_end_is_reached_at_another_address_than_its_own() -> None:
    server = {"ssh": "vps", "address": "203.0.113.5", "bind": "10.0.0.12/24", "gateway": "10.0.0.1"}
    client = {"ssh": "pi", "address": "192.0.2.9/24", "gateway": "192.0.2.1"}
    found = parse({"client": client, "server": server}).server
    assert (str(found.reached), str(found.own)) == ("203.0.113.5", "10.0.0.12/24")
    with pytest.raises(StudyError, match=r"server: the other host is not in 10\.0\.0\.0/24"):
        parse({"client": client, "server": {**server, "gateway": None}})
    for wrong in ("198.18.0.9/24", "127.0.0.2/8"):
        with pytest.raises(StudyError, match=r"server: address is (198\.18\.0\.9|127\.0\.0\.2)"):
            parse({"client": client, "server": {**server, "gateway": None, "bind": wrong}})


@pytest.mark.parametrize("name", ["vps", "vps.example.org", "1and1.example", "a_b-c."])
def test_a_name_is_known_on_the_other_host(name: str) -> None:
    found = parse({**GOOD, "server": {"ssh": "vps", "address": name}})
    assert found.server.reached is None
    assert found.server.own is None
    # What it is decides the version of the line where there is an address.
    assert found.ip == "ipv4"


def test_the_line_may_carry_ipv6() -> None:
    client = {"ssh": "pi", "address": "2001:db8:1::9/64", "gateway": "fe80::1"}
    server = {"ssh": "vps", "address": "vps.example", "bind": "2001:db8:2::5/128"}
    found = parse({"client": client, "server": {**server, "attach": "routed"}})
    assert found.ip == "ipv6"
    with pytest.raises(StudyError, match="fd00:7470::/28 is for the inside of tunnels"):
        parse({"client": client, "server": {**server, "bind": "fd00:7473::5/64"}})


def test_a_routed_host_needs_no_gateway_and_has_none() -> None:
    far = {"ssh": "vps", "address": "203.0.113.5/32", "attach": "routed"}
    near = {"ssh": "pi", "address": "192.0.2.9/24", "gateway": "192.0.2.1"}
    assert parse({"client": near, "server": far}).server.attach == "routed"
    with pytest.raises(StudyError, match="gateway has no meaning"):
        parse({"client": near, "server": {**far, "gateway": "203.0.113.1"}})


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xff", "byte 0 is not UTF-8"),
        (b"client = ", "invalid value"),
        (b"#" * (MOST_BYTES + 1), "is longer than 65536 bytes"),
    ],
)
def test_what_is_no_toml_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(StudyError, match=words):
        parse_inventory(data, "hosts.toml")


@given(st.binary(max_size=300))
def test_no_bytes_are_more_than_an_error(data: bytes) -> None:
    with pytest.raises(StudyError):
        parse_inventory(data, "x")


_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
_TABLES = st.dictionaries(
    st.sampled_from(["ssh", "address", "bind", "ports", "interface", "attach", "gateway", "other"]),
    st.recursive(_LEAVES, lambda inner: st.lists(inner, max_size=3), max_leaves=5),
    max_size=6,
)


@given(_TABLES, _TABLES)
def test_no_document_is_more_than_an_error(client: Any, server: Any) -> None:
    def without_none(value: Any) -> Any:
        if isinstance(value, list):
            return [without_none(part) for part in value if part is not None]
        return value

    document = {
        role: {key: without_none(part) for key, part in table.items() if part is not None}
        for role, table in (("client", client), ("server", server))
    }
    try:
        text = tomli_w.dumps(document)
    except (ValueError, TypeError, UnicodeEncodeError):
        return
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return
    # A few are an inventory: any word is a name.
    with contextlib.suppress(StudyError):
        parse_inventory(data, "x")


def test_another_configuration_of_ssh_stands_beside_the_inventory(tmp_path: Path) -> None:
    file = tmp_path / "hosts.toml"
    file.write_text(tomli_w.dumps({"ssh_config": "config", **GOOD}))
    with pytest.raises(StudyError, match="is not a file"):
        load_inventory(file)
    (tmp_path / "config").write_text("")
    assert load_inventory(file).ssh_config == str(tmp_path / "config")
    with pytest.raises(StudyError, match="No such file"):
        load_inventory(tmp_path / "nothing.toml")
