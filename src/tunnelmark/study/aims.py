"""How well each point of a study is to be known: what its stop rule watches."""

from collections.abc import Sequence
from typing import Literal

from tunnelmark.model.hypothesis import Hypothesis
from tunnelmark.model.job import Aim
from tunnelmark.model.metrics import METRICS
from tunnelmark.model.trial import Point
from tunnelmark.study.selections import means
from tunnelmark.study.study import Study


def aims(study: Study, points: Sequence[Point]) -> tuple[Aim, ...]:
    """Return what is asked of a point and its baseline.

    ``[precision]`` asks for one interval. Each hypothesis with a margin asks for another, of its
    metric, at the points that it compares: half as wide as the margin, so that it is narrow enough
    also between two tunnels, each with the scatter of its own difference. A margin of 0 asks for
    figures without scatter and has none to wait for.
    """
    precision = study.precision
    asked = Aim(
        precision.metric_of(points[0].workload.kind),
        precision.relative_half_width,
        relative=True,
        of=precision.of,
    )
    claimed = [
        Aim(one.metric, one.margin.value / 2, one.margin.relative, _of(one))
        for one in study.hypotheses
        if one.margin is not None and one.margin.value > 0 and one.metric in METRICS
        if any(_compares(one, point) for point in points)
    ]
    return tuple(dict.fromkeys((asked, *claimed)))


def _of(hypothesis: Hypothesis) -> Literal["difference", "figure"]:
    return "figure" if hypothesis.kind == "threshold" else "difference"


def _compares(hypothesis: Hypothesis, point: Point) -> bool:
    if not means(hypothesis.over, point):
        return False
    return not hypothesis.groups or any(means(group, point) for group in hypothesis.groups)
