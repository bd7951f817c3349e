"""Drivers are found by scanning; a module that breaks the rules is named."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import tunnelmark.tunnels
from tunnelmark.model.errors import LabError
from tunnelmark.tunnels import base, none, openvpn, registry, support
from tunnelmark.tunnels.base import Tunnel, TunnelParams
from tunnelmark.tunnels.recipe import RecipeTunnel


def module_with(**members: object) -> ModuleType:
    module = ModuleType("some.driver")
    for name, value in members.items():
        if isinstance(value, type):
            value.__module__ = module.__name__
        setattr(module, name, value)
    return module


def driver(**attributes: object) -> type:
    good: dict[str, object] = {"kind": "x", "title": "X", "params_type": TunnelParams}
    members = {k: v for k, v in {**good, **attributes}.items() if v is not None}
    return type("Driver", (none.NoneTunnel,), members)


def test_every_driver_is_found_the_baseline_first() -> None:
    kinds = registry.tunnel_kinds()
    assert next(iter(kinds)) == "none"
    assert {"none", "openvpn", "wireguard"} <= kinds.keys()
    assert all(kind == tunnel.kind for kind, tunnel in kinds.items())
    assert list(kinds)[1:] == sorted(list(kinds)[1:])


def test_a_module_s_own_drivers_count_and_nothing_it_imports() -> None:
    assert registry.drivers_in(openvpn) == [openvpn.OpenVpnTunnel]
    assert registry.drivers_in(base) == []
    assert registry.drivers_in(support) == []
    imported = module_with()
    imported.NoneTunnel = none.NoneTunnel  # type: ignore[attr-defined]
    assert registry.drivers_in(imported) == []


def test_an_abstract_driver_is_no_driver() -> None:
    assert registry.drivers_in(module_with(Half=type("Half", (Tunnel,), {"kind": "half"}))) == []


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"kind": 5}, "some.driver: Driver has no kind"),
        ({"title": 5}, "some.driver: Driver has no title"),
        (
            {"params_type": dict},
            "some.driver: Driver.params_type is not a subclass of TunnelParams",
        ),
    ],
)
def test_a_driver_that_breaks_the_rules_is_named(broken: dict[str, object], message: str) -> None:
    with pytest.raises(TypeError) as caught:
        registry.drivers_in(module_with(Driver=driver(**broken)))
    assert str(caught.value) == message


def test_two_drivers_of_one_kind_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openvpn.OpenVpnTunnel, "kind", "none")
    with pytest.raises(TypeError, match="the kind 'none' is taken by"):
        registry.tunnel_kinds()


@pytest.fixture(autouse=True)
def found_anew() -> Iterator[None]:
    registry._found.cache_clear()
    yield
    registry._found.cache_clear()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Install a package whose entry point is a module with the text."""

    def install(text: str, point: str = "tm_of_others") -> None:
        (tmp_path / "tm_of_others.py").write_text(text, "utf-8")
        folder = tmp_path / "of_others-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: of-others\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[tunnelmark.tunnels]\nmine = {point}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "tm_of_others", raising=False)

    return install


OF_OTHERS = """
from tunnelmark.tunnels.none import NoneTunnel
from tunnelmark.tunnels.base import TunnelParams


class Other(NoneTunnel):
    kind = "{kind}"
    title = "Of others"
    params_type = TunnelParams
"""


@pytest.mark.parametrize("point", ["tm_of_others", "tm_of_others:Other"])
def test_a_package_brings_drivers(package: Callable[..., None], point: str) -> None:
    package(OF_OTHERS.format(kind="theirs"), point)
    kinds = registry.tunnel_kinds()
    assert kinds["theirs"].title == "Of others"
    assert next(iter(kinds)) == "none"


@pytest.mark.parametrize(
    ("text", "point", "words"),
    [
        ("1 / 0", "tm_of_others", "cannot be loaded: ZeroDivisionError: division by zero"),
        ("", "tm_of_others:Nothing", "cannot be loaded: AttributeError: "),
        ("Nothing = 5", "tm_of_others:Nothing", "is neither a module nor a driver, but 5"),
        (OF_OTHERS.format(kind="none"), "tm_of_others", "provides the tunnel 'none', a kind that"),
        (OF_OTHERS + "    title = None", "tm_of_others", "tm_of_others: Other has no title"),
    ],
)
def test_what_is_wrong_with_a_package_is_reported_with_its_name(
    package: Callable[..., None], text: str, point: str, words: str
) -> None:
    package(text, point)
    with pytest.raises(LabError) as caught:
        registry.tunnel_kinds()
    assert words in str(caught.value)
    assert str(caught.value).startswith("entry point 'mine' of of-others")


def test_recipes_of_the_package_are_tunnels_and_one_of_a_study_is_found() -> None:
    kinds = registry.tunnel_kinds()
    assert kinds["socat_tls"].title == "socat over TLS"
    assert "recipe" not in kinds
    assert kinds["recipe"] is RecipeTunnel
    with pytest.raises(KeyError):
        kinds["telepathy"]


def test_a_folder_that_joins_the_package_later_is_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "later" not in registry.tunnel_kinds()
    (tmp_path / "tm_later.py").write_text(OF_OTHERS.format(kind="later"), "utf-8")
    folders = [*tunnelmark.tunnels.__path__, str(tmp_path)]
    monkeypatch.setattr(tunnelmark.tunnels, "__path__", folders)
    assert "later" in registry.tunnel_kinds()
    monkeypatch.delitem(sys.modules, "tunnelmark.tunnels.tm_later")
