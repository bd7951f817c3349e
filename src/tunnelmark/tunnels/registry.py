"""Which tunnels there are: every module of this package that holds a driver."""

import importlib
import inspect
import pkgutil
from types import ModuleType

import tunnelmark.tunnels
from tunnelmark.tunnels.base import Tunnel, TunnelParams


def tunnel_kinds() -> dict[str, type[Tunnel]]:
    """Return every driver by its ``kind``, the baseline ``none`` first, then by name.

    Raises ``TypeError`` if a module of the package breaks the rules for drivers: this is a
    mistake of a programmer, found by the contract tests, never by a user.
    """
    found: dict[str, type[Tunnel]] = {}
    for module_info in pkgutil.iter_modules(tunnelmark.tunnels.__path__):
        module = importlib.import_module(f"{tunnelmark.tunnels.__name__}.{module_info.name}")
        for driver in drivers_in(module):
            if driver.kind in found:
                raise TypeError(
                    f"{module.__name__}: the kind {driver.kind!r} is taken by "
                    f"{found[driver.kind].__module__}"
                )
            found[driver.kind] = driver
    return dict(sorted(found.items(), key=lambda item: (item[0] != "none", item[0])))


def drivers_in(module: ModuleType) -> list[type[Tunnel]]:
    """Return the drivers that a module defines itself; what it imports does not count."""
    drivers = []
    for value in vars(module).values():
        if not (inspect.isclass(value) and issubclass(value, Tunnel)):
            continue
        if value.__module__ != module.__name__ or inspect.isabstract(value):
            continue
        for attribute, wanted in (("kind", str), ("title", str)):
            if not isinstance(getattr(value, attribute, None), wanted):
                raise TypeError(f"{module.__name__}: {value.__name__} has no {attribute}")
        params_type = getattr(value, "params_type", None)
        if not (inspect.isclass(params_type) and issubclass(params_type, TunnelParams)):
            raise TypeError(
                f"{module.__name__}: {value.__name__}.params_type is no subclass of TunnelParams"
            )
        drivers.append(value)
    return drivers
