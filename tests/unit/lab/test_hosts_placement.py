"""A run waits for hosts that it had before, and hears at once of hosts that it never had."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tunnelmark.hosts.inventory import ROLES, Inventory, parse_inventory
from tunnelmark.hosts.ledger import Ledger
from tunnelmark.lab import hosts_placement
from tunnelmark.lab.hosts_place import HostsPlace
from tunnelmark.lab.hosts_placement import HostsPlacement
from tunnelmark.model.errors import LabError, LabFailedError
from tunnelmark.model.trial import DriverSpec
from tunnelmark.model.tunnel import Encryption

TEXT = b"""
[client]
ssh = "a"
address = "192.0.2.1/24"
[server]
ssh = "b"
address = "192.0.2.2/24"
"""


class Agent:
    kernel = "6.1"
    directory = engine = Path("/tmp/tm")  # noqa: S108
    silent = 0

    def which(self, _program: str) -> str:
        if self.silent:
            self.silent -= 1
            raise LabFailedError("client (a): which is not answered after 30 s")
        return "/bin/sh"


class Computers:
    """Fails so often, then is there; so does its agent."""

    connected = False

    def __init__(self, fails: int, silent: int = 0, leaves: int = 0) -> None:
        self.fails = fails
        self.leaves = leaves
        self.agent = Agent()
        self.agent.silent = silent

    def both(self) -> dict[str, Any]:
        if self.fails:
            self.fails -= 1
            raise LabError("client (a): there is no route to the host")
        return {
            role: SimpleNamespace(role=role, agent=self.agent, host=Host(role)) for role in ROLES
        }

    def check_left(self) -> None:
        if self.leaves:
            self.leaves -= 1
            raise LabError("client: what the lost connection has there ends by itself")

    def close(self) -> None:
        self.fails = -1


class Host:
    """Has what every lab needs, and the programs that a test names."""

    lacks = ""

    def __init__(self, role: str) -> None:
        self.name = f"{role}-computer"

    def has(self, program: str) -> str | None:
        return None if program == self.lacks else f"/bin/{program}"


@pytest.fixture
def inventory() -> Inventory:
    return parse_inventory(TEXT, "hosts.toml")


@pytest.fixture
def placement(
    tmp_path: Path, inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[HostsPlacement]:
    monkeypatch.setattr(hosts_placement, "_AGAIN_S", 0.01)
    with Ledger(tmp_path) as ledger:
        yield HostsPlacement(ledger, inventory, reconnect_s=20.0)


def test_a_run_waits_until_the_hosts_answer(placement: HostsPlacement, tmp_path: Path) -> None:
    said: list[str] = []
    placement._say = said.append
    made: Any = Computers(2, silent=1)
    placement._computers = made
    assert isinstance(placement.place("none", tmp_path), HostsPlace)
    assert [line.partition(": ")[0] for line in said] == ["waiting for the hosts"] * 3
    assert "is not answered" in said[2]


def test_a_run_waits_until_a_lost_connection_has_taken_all_along(
    placement: HostsPlacement, tmp_path: Path
) -> None:
    said: list[str] = []
    placement._say = said.append
    made: Any = Computers(0, leaves=2)
    placement._computers = made
    assert isinstance(placement.place("none", tmp_path), HostsPlace)
    left = "client: what the lost connection has there ends by itself"
    assert said == [f"waiting for the hosts: {left}"] * 2


def test_hosts_that_stay_away_end_the_attempt(placement: HostsPlacement, tmp_path: Path) -> None:
    placement._reconnect_s = 0.0
    made: Any = Computers(1000)
    placement._computers = made
    with pytest.raises(LabFailedError, match="no route to the host"):
        placement.place("none", tmp_path)


def test_both_hosts_are_asked(placement: HostsPlacement, monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = Computers(0)
    placement._computers = made
    assert placement.choose("x", lambda _host: None) is None
    only_client = placement.choose(
        "x", lambda host: None if host.name.startswith("client") else "no openvpn"
    )
    assert only_client == "server-computer: no openvpn"
    monkeypatch.setattr(Host, "lacks", "ethtool")
    with pytest.raises(LabError, match="ethtool is not installed"):
        placement.choose("x", lambda _host: None)


def test_a_device_is_refused(placement: HostsPlacement) -> None:
    with pytest.raises(LabError, match="has its own CPU"):
        placement.check_device(DriverSpec("pi-3", "pi-3", {}), {"none": Encryption()})
