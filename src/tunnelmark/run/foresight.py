"""What a run will detect, before it is run: the smallest differences."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from tunnelmark.analysis.power import Scatter, smallest_seen
from tunnelmark.analysis.sequential import chances
from tunnelmark.analysis.testing import FEWEST, grown
from tunnelmark.model.metrics import METRICS
from tunnelmark.run.time_left import seconds_of
from tunnelmark.study.plan import jobs
from tunnelmark.study.study import Study
from tunnelmark.study.tells import metrics_of

_RATIOS: Final = 2
"""How many rates and times of a workload a report compares with no tunnel in words."""


@dataclass(frozen=True)
class Seen:
    """The smallest true difference from no tunnel that four of five runs detect."""

    metric: str
    difference: float | None
    """Ratio minus 1 on a log scale, else in the metric's unit; None: too few repeats for any."""


@dataclass(frozen=True)
class Foresight:
    """What a study detects with so many repeats of every point."""

    repeats: int
    bring_ups: int
    seconds: float
    seen: tuple[Seen, ...]
    unknown: tuple[str, ...]
    """Metrics of the report whose scatter is not known."""


def foresee(study: Study, scatter: Mapping[str, Scatter], repeats: int) -> Foresight:
    """Return what a study detects with so many repeats of every point.

    A difference is the mean over the points of a tunnel and workload, and has to be clear among all
    that the report may state: each tunnel's to none and to each other, at every link and device.
    """
    precision = study.precision
    kinds = {kind: tuple(_reported(study, kind)) for kind in dict.fromkeys(_kinds(study))}
    tunnels = len(study.tunnels)
    contrasts = sum(tunnels * len(reported) + math.comb(tunnels, 2) for reported in kinds.values())
    tests = max(1, contrasts * len(study.links) * len(study.devices))
    moments = chances(precision.min_repeats, precision.max_repeats)
    bring_ups = precision.bring_up_of(repeats)
    smallest: dict[str, float | None] = {}
    for kind, reported in kinds.items():
        for metric in reported:
            if metric in scatter and metric not in smallest:
                found = smallest_seen(
                    scatter[metric],
                    repeats=repeats,
                    bring_ups=bring_ups,
                    points=_kinds(study).count(kind),
                    level=(1 - precision.confidence) / (moments * tests),
                )
                if repeats < FEWEST:
                    found = None  # a report says nothing of them
                smallest[metric] = None if found is None else _worth(found, metric)
    metrics = dict.fromkeys(metric for reported in kinds.values() for metric in reported)
    return Foresight(
        repeats,
        bring_ups,
        seconds_of(jobs(study))[repeats - 1],
        tuple(Seen(metric, value) for metric, value in smallest.items()),
        tuple(metric for metric in metrics if metric not in scatter),
    )


def repeats_in(study: Study, seconds: float) -> int:
    """Return how many repeats of every point fit into a time, at most those of the study."""
    return sum(one <= seconds for one in seconds_of(jobs(study)))


def _kinds(study: Study) -> list[str]:
    return [spec.kind for spec in study.workloads]


def _worth(found: float, metric: str) -> float:
    known = METRICS[metric]
    return max(grown(found) if known.scale == "log" else found, known.worth_telling)


def _reported(study: Study, kind: str) -> Iterator[str]:
    """Yield what is reported of a workload: what decides it, rates and times, losses."""
    headlines = [m for m in metrics_of(kind) if METRICS[m].headline]
    ratios = islice((m for m in headlines if METRICS[m].scale == "log"), _RATIOS)
    others = (m for m in headlines if METRICS[m].scale != "log")
    yield from dict.fromkeys((study.precision.metric_of(kind), *ratios, *others))
