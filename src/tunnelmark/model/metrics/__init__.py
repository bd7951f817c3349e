"""Every metric by name: unit, title, definition, source. Only these can be stored.

One module a family of metrics, each with a tuple ``METRICS``; a new module is found by itself.
"""

import importlib
import pkgutil
from typing import Final

from tunnelmark.model.metrics.metric import Metric

__all__ = ["METRICS", "Metric"]


def _collect() -> dict[str, Metric]:
    found: dict[str, Metric] = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for metric in getattr(module, "METRICS", ()):
            if metric.name in found:
                raise TypeError(f"{module.__name__}: the metric {metric.name!r} is there twice")
            found[metric.name] = metric
    return found


METRICS: Final = _collect()
"""All metrics by column name, family by family."""
