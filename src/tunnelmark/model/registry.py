"""Finds drivers: one file or folder, one class, no list to edit."""

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from types import ModuleType
from typing import Any, TypeVar

from tunnelmark.model.trial import DriverSpec

T = TypeVar("T")


def drivers(package: ModuleType, base: type[T]) -> dict[str, type[T]]:
    """Return the concrete subclasses of ``base`` in a package's modules, by their ``kind``.

    A driver of several files is a package of its own that names its class in ``__init__.py``.
    """
    found: dict[str, type[T]] = {}
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        for value in drivers_of(module, base):
            kind: str = value.kind  # type: ignore[attr-defined]
            if kind in found:
                raise RuntimeError(
                    f"{value.__module__} and {found[kind].__module__} both define {kind}"
                )
            found[kind] = value
    return found


def drivers_of(module: ModuleType, base: type[T]) -> list[type[T]]:
    """Return the concrete subclasses of ``base`` that a module or package defines itself."""
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, base)
        and not inspect.isabstract(value)
        and _is_own(module, value)
    ]


def make(kinds: Mapping[str, type[T]], spec: DriverSpec) -> T:
    """Return the driver that a study means, with the parameters that it has there."""
    kind: Any = kinds[spec.kind]
    driver: T = kind(kind.params_type.model_validate(dict(spec.params)))
    return driver


def _is_own(module: ModuleType, value: type) -> bool:
    """Say whether a class is a module's own, or a package's: what it imports from others is not."""
    return f"{value.__module__}.".startswith(f"{module.__name__}.")
