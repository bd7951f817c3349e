"""What can run where: every driver is asked with its usual parameters, reasons are kept."""

from typing import Any, Literal

import pytest
from pydantic import Field

from tunnelmark.lab.ability import abilities, usual_params
from tunnelmark.model.errors import TunnelError
from tunnelmark.tunnels.base import Tunnel, TunnelParams
from tunnelmark.tunnels.registry import tunnel_kinds


class Bare:
    """A host with nothing on it."""

    name = "machine"

    def has(self, _program: str) -> str | None:
        return None

    def has_kernel(self, _feature: str) -> bool:
        return False

    def run(self, *_: object, **__: object) -> Any:
        raise TunnelError("this host runs nothing")


def test_every_tunnel_is_asked_and_none_runs_on_nothing() -> None:
    kinds = tunnel_kinds()
    bare: Any = Bare()
    found = abilities(kinds, bare, "there is no image (tunnelmark vm build)")
    assert [ability.kind for ability in found] == list(kinds)
    for ability in found:
        assert ability.local
        assert ability.machine == "there is no image (tunnelmark vm build)"
        assert not ability.can_run
        assert ability.title == kinds[ability.kind].title


def test_a_place_is_enough() -> None:
    class Here(Tunnel):
        kind, title, params_type = "here", "runs here", TunnelParams

        def unavailable(self, host: Any) -> str | None:
            return None if host.name == "machine" else "no"

    Here.__abstractmethods__ = frozenset()
    bare: Any = Bare()
    kinds: Any = {"here": Here}
    (found,) = abilities(kinds, "no root", bare)
    assert (found.local, found.machine, found.can_run) == ("no root", None, True)


def test_what_has_no_default_is_the_first_of_its_choices() -> None:
    class Params(TunnelParams):
        cipher: Literal["B", "A"]
        kind: Literal["x"] | None = Field(description="one or none")

    params: Any = usual_params(Params)
    assert (params.cipher, params.kind, params.count) == ("B", "x", 1)

    class Wrong(TunnelParams):
        number: int

    with pytest.raises(TypeError, match="number has no default and no choices"):
        usual_params(Wrong)
