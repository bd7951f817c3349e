"""How far the computers that measured a result differ, in words."""

from collections.abc import Iterable, Iterator, Sequence

import polars as pl

from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.analysis.workers import apart
from tunnelmark.model.metrics import METRICS
from tunnelmark.report.names import names
from tunnelmark.report.show import difference


def worker_notes(
    trials: pl.DataFrame, points: Sequence[PointEstimates], metrics: Iterable[str]
) -> Iterator[str]:
    """Yield a sentence for each metric, and one for the differences that are smaller than that.

    ``trials`` are after ``set_apart``, ``metrics`` those by which the study decides.
    """
    for one in apart(trials, tuple(dict.fromkeys(metrics))):
        by = difference(one.metric, one.value, None, None).removeprefix("+")
        yield (
            f"{one.computers} computers measured {one.tunnel} over {one.link}, {one.workload}: "
            f"{METRICS[one.metric].title} differs by {by} between them "
            f"(highest on {one.highest}, lowest on {one.lowest})."
        )
        found = [
            (point, seen)
            for point in points
            if not point.is_baseline and (seen := point.differences.get(one.metric)) is not None
        ]
        within = [
            f"{point.tunnel} over {point.link}, {point.workload}"
            for point, seen in found
            if one.exceeds(seen.value)
        ]
        if within:
            yield (
                f"At {len(within)} of {len(found)} points ({names(within)}) the effect is smaller "
                "than the difference between computers, so it may not hold on another computer."
            )
        if found and all(seen.workers == 1 for _, seen in found):
            yield (
                "Each tunnel was measured on one computer over each link: the intervals of its "
                "differences do not cover the variation between computers."
            )
