"""What a driver needs of a host comes with the command that installs it."""

from types import SimpleNamespace
from typing import Any

from tunnelmark.model.host import Need

NEED = Need(programs={"wg": "wireguard-tools", "own": "own"}, install={"own": "make own"})


class OfAnImage:
    """A host on which nothing can be installed."""

    def has(self, _program: str) -> None:
        return None

    def lacking(self, package: str) -> str:
        return f"not in the image: no {package}"


def host(*programs: str) -> Any:
    return SimpleNamespace(has=lambda program: program if program in programs else None)


def test_a_debian_package_is_installed_by_apt_get_and_nothing_else_is() -> None:
    assert NEED.missing(host("own")) == "wg is not installed (apt-get install wireguard-tools)"
    assert NEED.missing(host("wg")) == "own is not installed (make own)"
    assert NEED.missing(host("wg", "own")) is None


def test_no_command_is_named_that_would_change_nothing_on_a_host_with_an_image() -> None:
    fixed: Any = OfAnImage()
    assert NEED.missing(fixed) == "wg is not in the image: no wireguard-tools"
    # A study's own options stand before it, and it says the same.
    assert NEED.missing(host("own"), behind=fixed) == "wg is not in the image: no wireguard-tools"
