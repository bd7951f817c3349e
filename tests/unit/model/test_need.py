"""What a driver needs of a host comes with the command that installs it."""

from types import SimpleNamespace
from typing import Any

from tunnelmark.model.host import Need

NEED = Need(programs={"wg": "wireguard-tools", "own": "own"}, install={"own": "make own"})


def host(*programs: str) -> Any:
    return SimpleNamespace(has=lambda program: program if program in programs else None)


def test_a_debian_package_is_installed_by_apt_get_and_nothing_else_is() -> None:
    assert NEED.missing(host("own")) == "wg is not installed (apt-get install wireguard-tools)"
    assert NEED.missing(host("wg")) == "own is not installed (make own)"
    assert NEED.missing(host("wg", "own")) is None
