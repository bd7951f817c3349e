"""Two results beside each other, as every output shows them."""

from tunnelmark.analysis.compare import Change, Run
from tunnelmark.analysis.units import as_text, change_as_text
from tunnelmark.model.metrics import METRICS
from tunnelmark.report.verdicts import moments_of
from tunnelmark.store import Result

HEADS = ("point", "metric", "A", "B", "change")


def run_of(result: Result) -> Run:
    """Return what ``compare`` needs to know of a result."""
    manifest = result.manifest
    return Run(
        study=manifest.study,
        scale=manifest.scale,
        environment=manifest.environment,
        trials=result.trials(),
        blocks=tuple(result.blocks.values()),
        moments=moments_of(result),
    )


def row(one: Change) -> tuple[str, str, str, str, str]:
    """Return the cells under ``HEADS``."""
    place = [one.tunnel, one.workload, one.link, *([one.device] * (one.device != "host"))]
    words = [
        "?" if value is None else change_as_text(value, one.metric, one.quantity)
        for value in (one.value, one.low, one.high)
    ]
    _, blank, name = words[0].partition(" ")
    unit = blank + name
    ends = [word.removesuffix(unit) for word in words[1:]]
    shown = words[0] + ("" if one.low is None else f" [{ends[0]}, {ends[1]}]")
    figures = (as_text(one.first, one.metric), as_text(one.second, one.metric))
    return (", ".join(place), METRICS[one.metric].title, *figures, shown)
