"""Which tunnels there are: drivers and recipes of this package, and those that others bring."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Final

import tunnelmark.tunnels
from tunnelmark.model.errors import LabError
from tunnelmark.model.registry import drivers_of
from tunnelmark.tunnels.base import Tunnel, TunnelParams
from tunnelmark.tunnels.recipe import KIND, RecipeTunnel, packaged

GROUP: Final = "tunnelmark.tunnels"
"""Entry points of this group are modules with drivers, or drivers."""


class Kinds(dict[str, type[Tunnel]]):
    """Drivers by kind. A recipe that a study brings along has no name here, but is found."""

    def __missing__(self, kind: str) -> type[Tunnel]:
        """Return the driver of recipes; ``KeyError`` for all that is unknown."""
        if kind == KIND:
            return RecipeTunnel
        raise KeyError(kind)


def tunnel_kinds() -> Kinds:
    """Return every driver by its ``kind``, the baseline ``none`` first, then by name.

    Raises ``TypeError`` if a driver of this package breaks the rules (the contract tests find it),
    ``LabError`` if one of another package does.
    """
    return Kinds(_found(tuple(tunnelmark.tunnels.__path__)))


@cache
def _found(_folders: tuple[str, ...]) -> dict[str, type[Tunnel]]:
    """Return the drivers; a folder that joins the package later (tests/truth) is looked into."""
    found: dict[str, type[Tunnel]] = {}
    for driver in (*_own(), *packaged()):
        if driver.kind in found:
            raise TypeError(
                f"{driver.__module__}: the kind {driver.kind!r} is taken by "
                f"{found[driver.kind].__module__}"
            )
        found[driver.kind] = driver
    for point in entry_points(group=GROUP):
        for driver in _of_others(point):
            if driver.kind in found:
                raise LabError(
                    f"{_named(point)} provides the tunnel {driver.kind!r}, a kind that is taken by "
                    f"{found[driver.kind].__module__}; uninstall one of the two packages"
                )
            found[driver.kind] = driver
    return dict(sorted(found.items(), key=lambda item: (item[0] != "none", item[0])))


def drivers_in(module: ModuleType) -> list[type[Tunnel]]:
    """Return the drivers that a module or package defines itself; other imports do not count."""
    return [
        driver
        for driver in drivers_of(module, Tunnel)  # type: ignore[type-abstract]
        if driver is not RecipeTunnel and _is_whole(module.__name__, driver)
    ]


def _own() -> Iterator[type[Tunnel]]:
    for module_info in pkgutil.iter_modules(tunnelmark.tunnels.__path__):
        module = importlib.import_module(f"{tunnelmark.tunnels.__name__}.{module_info.name}")
        yield from drivers_in(module)


def _of_others(point: EntryPoint) -> list[type[Tunnel]]:
    # Whatever somebody else's code raises, the error must name the package.
    try:
        loaded = point.load()
    except Exception as error:
        raise LabError(
            f"{_named(point)} cannot be loaded: {type(error).__name__}: {error}; fix or uninstall "
            "that package"
        ) from error
    try:
        if isinstance(loaded, ModuleType):
            return drivers_in(loaded)
        if inspect.isclass(loaded) and issubclass(loaded, Tunnel):
            _is_whole(point.value, loaded)
            return [loaded]
    except TypeError as error:
        raise LabError(f"{_named(point)}: {error}") from error
    raise LabError(f"{_named(point)} is neither a module nor a driver, but {loaded!r:.80}")


def _named(point: EntryPoint) -> str:
    package = point.dist.name if point.dist is not None else "an unknown package"
    return f"entry point {point.name!r} of {package}"


def _is_whole(place: str, driver: type[Tunnel]) -> bool:
    """Raise ``TypeError`` unless a driver has what every driver must have."""
    for attribute in ("kind", "title"):
        if not isinstance(getattr(driver, attribute, None), str):
            raise TypeError(f"{place}: {driver.__name__} has no {attribute}")
    params_type = getattr(driver, "params_type", None)
    if not (inspect.isclass(params_type) and issubclass(params_type, TunnelParams)):
        raise TypeError(f"{place}: {driver.__name__}.params_type is not a subclass of TunnelParams")
    return True
