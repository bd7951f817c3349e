"""All workloads of this package."""

import importlib
import pkgutil
from functools import cache

import tunnelmark.workloads
from tunnelmark.model.registry import drivers, drivers_of
from tunnelmark.workloads.base import Workload


@cache
def workload_kinds() -> dict[str, type[Workload]]:
    """Return the workloads by kind."""
    return drivers(tunnelmark.workloads, Workload)  # type: ignore[type-abstract]


@cache
def workload_kind(kind: str) -> type[Workload] | None:
    """Return the workload of a kind, None if there is none.

    Only the module of that name is loaded: servers and corpora of others are slow to load.
    """
    if kind not in (info.name for info in pkgutil.iter_modules(tunnelmark.workloads.__path__)):
        return None
    module = importlib.import_module(f"{tunnelmark.workloads.__name__}.{kind}")
    own = drivers_of(module, Workload)  # type: ignore[type-abstract]
    return next((workload for workload in own if workload.kind == kind), None)
