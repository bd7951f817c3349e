"""``hosts check --install`` asks apt-get for Debian packages only."""

from types import SimpleNamespace
from typing import Any

from tunnelmark.lab.hosts_check import missing_packages
from tunnelmark.model.host import Need


def test_a_program_that_is_no_debian_package_is_left_to_its_own_command() -> None:
    computer: Any = SimpleNamespace(host=SimpleNamespace(has={"ip": "/usr/sbin/ip"}.get))
    need = [
        Need(programs={"wg": "wireguard-tools", "ip": "iproute2"}),
        Need(programs={"wg": "wireguard-tools", "own": "own"}, install={"own": "make own"}),
    ]
    assert missing_packages(computer, need) == ["wireguard-tools"]
