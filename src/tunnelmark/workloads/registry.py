"""All workloads of this package."""

from functools import cache

import tunnelmark.workloads
from tunnelmark.model.registry import drivers
from tunnelmark.workloads.base import Workload


@cache
def workload_kinds() -> dict[str, type[Workload]]:
    """Return the workloads by kind."""
    return drivers(tunnelmark.workloads, Workload)  # type: ignore[type-abstract]
