"""Drivers are found by scanning; a module that breaks the rules is named."""

from types import ModuleType

import pytest

from tunnelmark.tunnels import base, none, openvpn, registry, support
from tunnelmark.tunnels.base import Tunnel, TunnelParams


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
        ({"params_type": dict}, "some.driver: Driver.params_type is no subclass of TunnelParams"),
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
