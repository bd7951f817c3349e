"""Which tunnel can run where on this computer, and what would bring it."""

import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from tunnelmark.model.errors import TunnelmarkError
from tunnelmark.model.host import Host
from tunnelmark.tunnels.base import Tunnel, TunnelParams


@dataclass(frozen=True)
class Ability:
    """One tunnel with its usual parameters: why it cannot run in a place, None where it can."""

    kind: str
    title: str
    local: str | None
    machine: str | None

    @property
    def can_run(self) -> bool:
        """Whether there is any place for it."""
        return self.local is None or self.machine is None


def abilities(
    kinds: Mapping[str, type[Tunnel]], local: Host | str, machine: Host | str
) -> list[Ability]:
    """Ask every driver about both places; a place that is not there is the reason why."""
    return [
        Ability(kind, driver.title, _reason(driver, local), _reason(driver, machine))
        for kind, driver in kinds.items()
    ]


def usual_params(params_type: type[TunnelParams]) -> TunnelParams:
    """Return the defaults; what has none is the first of its choices.

    Raises ``TypeError`` for a field without a default that is no choice: a programmer's mistake,
    which the tests find.
    """
    chosen = {
        name: _first_choice(name, field.annotation)
        for name, field in params_type.model_fields.items()
        if field.is_required()
    }
    return params_type.model_validate(chosen)


def _reason(driver: type[Tunnel], place: Host | str) -> str | None:
    if isinstance(place, str):
        return place
    try:
        return driver(usual_params(driver.params_type)).unavailable(place)
    except TunnelmarkError as error:
        return str(error)


def _first_choice(name: str, annotation: Any) -> object:
    origin = get_origin(annotation)
    if origin is Literal:
        return get_args(annotation)[0]
    if origin in (typing.Union, types.UnionType, typing.Annotated):
        return _first_choice(name, get_args(annotation)[0])
    raise TypeError(f"{name} has no default and no choices")
