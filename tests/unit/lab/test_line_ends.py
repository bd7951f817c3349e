"""Addresses of the ends on a real line: names, NAT, what is found of the interface."""

import json
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import tomli_w

from tunnelmark.hosts.inventory import ROLES, parse_inventory
from tunnelmark.lab.line_ends import Ends, find_ends
from tunnelmark.model.errors import LabError

CLIENT = {"ssh": "a", "address": "192.0.2.11/24"}
SERVER = {"ssh": "b", "address": "192.0.2.12/24"}


class Computer:
    """Answers as ``getent`` and ``ip`` do."""

    def __init__(self, role: str, names: Mapping[str, str], addresses: Sequence[str]) -> None:
        self.name = f"{role}-computer"
        self._names = names
        self._addresses = addresses

    def run(self, argv: Sequence[str], **_options: object) -> Any:
        out = ""
        if argv[0] == "getent":
            out = self._names.get(f"{argv[1]} {argv[2]}", "")
        elif "route" in argv:
            out = json.dumps([{"dev": "eth0"}])
        elif argv[2:4] == ["address", "show"]:
            found: list[dict[str, object]] = []
            for one in self._addresses:
                local, _, length = one.partition("/")
                family = "inet6" if ":" in local else "inet"
                found.append(
                    {"family": family, "local": local, "prefixlen": int(length), "scope": "global"}
                )
            out = json.dumps([{"addr_info": found}])
        return SimpleNamespace(stdout=out.encode(), text=lambda: out)


def ends(
    client: Mapping[str, str],
    server: Mapping[str, str],
    *,
    known: Mapping[str, str] | None = None,
    taken: Sequence[str] = ("192.0.2.2/24",),
) -> Ends:
    """Find them; ``known`` is what both resolve, ``taken`` what the server's host has."""
    text = tomli_w.dumps({"client": dict(client), "server": dict(server)})
    hosts = {
        "client": Computer("client", known or {}, ()),
        "server": Computer("server", known or {}, taken),
    }
    computers: Any = {role: SimpleNamespace(host=hosts[role]) for role in ROLES}
    return find_ends(computers, parse_inventory(text.encode(), "hosts.toml"))


def test_an_address_with_its_prefix_is_both() -> None:
    found = ends(CLIENT, SERVER)
    assert not any(end.behind_nat for end in found.values())
    assert found["server"].describe() == "192.0.2.12"


def test_a_name_is_resolved_on_the_other_host_and_kept_as_it_was() -> None:
    known = {"ahostsv4 vps": "192.0.2.12     STREAM vps\n192.0.2.12     DGRAM\n"}
    found = ends(CLIENT, {**SERVER, "address": "vps"}, known=known)["server"]
    assert (str(found.own), found.behind_nat) == ("192.0.2.12/24", False)
    assert found.describe() == "vps is 192.0.2.12"


def test_behind_nat_another_address_leads_to_the_end() -> None:
    server = {"ssh": "b", "address": "vps", "bind": "10.0.0.5/24", "gateway": "10.0.0.1"}
    found = ends(CLIENT, server, known={"ahostsv4 vps": "192.0.2.254 STREAM vps"})["server"]
    assert found.behind_nat
    assert found.describe() == "vps is 192.0.2.254, behind NAT at 10.0.0.5/24"


def test_ipv6_takes_no_ipv4_address_in_its_form() -> None:
    client = {"ssh": "a", "address": "2001:db8::11/64"}
    server = {"ssh": "b", "address": "vps", "attach": "routed"}
    known = {"ahostsv6 vps": "::ffff:192.0.2.12 STREAM vps\n2001:db8::12 STREAM\n"}
    found = ends(client, server, known=known)["server"]
    assert (str(found.own), found.ip) == ("2001:db8::12/128", "ipv6")
    with pytest.raises(LabError, match="vps, which has no IPv6 address on client-computer"):
        ends(client, server, known={"ahostsv6 vps": "::ffff:192.0.2.12 STREAM vps\n"})


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("", "server: address is vps, which has no IPv4 address on client-computer"),
        ("garbage\n\n", "which has no IPv4 address"),
        ("192.0.2.2 STREAM", "server-computer: address is 192.0.2.2, which eth0 has itself"),
        ("203.0.113.9 STREAM", "is in no network of eth0: behind NAT give bind"),
        ("127.0.1.1 STREAM", "server: address is 127.0.1.1, which no host on a line can have"),
        ("192.0.2.11 STREAM", "client and server have the same address, 192.0.2.11"),
    ],
)
def test_what_a_name_may_not_be_is_said(answer: str, words: str) -> None:
    with pytest.raises(LabError) as caught:
        ends(CLIENT, {**SERVER, "address": "vps"}, known={"ahostsv4 vps": answer})
    assert words in str(caught.value)


def test_an_end_needs_a_way_to_what_a_name_is() -> None:
    client = {**CLIENT, "address": "pi", "bind": "192.0.2.11/24"}
    with pytest.raises(LabError, match=r"^server: the other host is not in 192\.0\.2\.0/24"):
        ends(client, SERVER, known={"ahostsv4 pi": "203.0.113.7 STREAM"})
