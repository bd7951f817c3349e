"""What a study varied in each kind of workload, and the figures and tables that follow from it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tunnelmark.analysis.estimates import PointEstimates, natural
from tunnelmark.analysis.units import unit
from tunnelmark.model.metrics import METRICS
from tunnelmark.report.charts import Chart, chart
from tunnelmark.report.parameters import Value, in_words, parameter

MOST_VARIANTS: Final = 12
"""Combinations of further parameters that are drawn; tables have all of them."""
_MOST_FALLBACK: Final = 5
_MOST_COMPARED: Final = 2
_PAYLOAD: Final = "payload_bytes"
_GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "Where packets were lost": ("lost_",),
    "Delay by place": ("delay_",),
    "Packets on the link": ("wire_", "outer_", "overhead_", "compression_", "background_"),
    "CPU": ("cpu_",),
}
_OTHERS: Final = "All other figures"


@dataclass(frozen=True)
class Deciding:
    """The metric by which a study decides a kind of workload."""

    metric: str
    own: bool
    """Whether the study names it for this kind, not for all."""


@dataclass(frozen=True)
class Family:
    """The points of one kind of workload on one link and device."""

    kind: str
    points: tuple[PointEstimates, ...]
    varied: tuple[str, ...]
    """Parameters of the workload that differ between points, the axis first."""
    axis: str | None
    """Parameter that figures are drawn over; None: one dot for each tunnel or workload."""
    metrics: tuple[str, ...]
    """Those of the figures and of the table, in order."""
    further: tuple[str, ...]
    """All others that were measured."""
    compared: tuple[str, ...]
    """Metrics of the table whose difference from no tunnel is shown."""
    named: str | None = None
    """The metric that the study names for this kind of workload, if it does."""

    @property
    def further_groups(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return ``further`` by what it is about, each with a title; what fits nowhere last."""
        found: dict[str, list[str]] = {title: [] for title in (*_GROUPS, _OTHERS)}
        for metric in self.further:
            titles = (t for t, starts in _GROUPS.items() if metric.startswith(starts))
            found[next(titles, _OTHERS)].append(metric)
        return tuple((title, tuple(names)) for title, names in found.items() if names)

    @property
    def headings(self) -> tuple[str, ...]:
        """Heads of the columns that distinguish points of a tunnel."""
        if not self.varied and len({point.workload for point in self.points}) > 1:
            return ("workload",)
        return tuple(parameter(name).title for name in self.varied)

    def cells(self, point: PointEstimates) -> tuple[str, ...]:
        """Return a point's cells under ``headings``; empty where it has no such parameter."""
        if not self.varied:
            return (point.workload,) if self.headings else ()
        return tuple(
            in_words(name, point.params[name]) if name in point.params else ""
            for name in self.varied
        )

    @property
    def baselines(self) -> bool:
        """Whether there is something to compare with no tunnel."""
        return any(point.differences for point in self.points)


def families(
    points: Sequence[PointEstimates], deciding: Mapping[str, Deciding] | None = None
) -> tuple[Family, ...]:
    """Return the points of one link and device, by kind of workload in the order of the study.

    ``deciding`` has the metric by which the study decides, by kind of workload: wherever it was
    measured it comes first.
    """
    kinds: dict[str, list[PointEstimates]] = {}
    for point in points:
        kinds.setdefault(point.workload_kind, []).append(point)
    return tuple(_family(kind, own, (deciding or {}).get(kind)) for kind, own in kinds.items())


def draw(
    family: Family, *, key: str, order: Sequence[str], fragmentation: Mapping[str, int]
) -> tuple[tuple[Chart, ...], tuple[str, ...]]:
    """Return the figures of a family, and in words what is the same everywhere.

    ``order`` lists all tunnels of the report; ``fragmentation`` has the largest payload of one
    packet by tunnel.
    """
    drawn: list[Chart] = []
    notes: list[str] = []
    groups = _variants(family)
    for metric in family.metrics:
        for number, (name, points) in enumerate(groups[:MOST_VARIANTS]):
            title = METRICS[metric].title + (f", {name}" if name else "")
            found = chart(
                points,
                metric,
                family.axis or ("workload" if family.varied else "tunnel"),
                key=f"{key}-{slug(family.kind)}-{slug(metric)}-{number}",
                order=order,
                title=title,
                marks=fragmentation if family.axis == _PAYLOAD else None,
            )
            if found is None:
                continue
            if found.constant == 0:
                notes.append(
                    f"{title}: 0 {unit(metric).name} at every point.".replace(" 0  ", " 0 ")
                )
            else:
                drawn.append(found)
    if len(groups) > MOST_VARIANTS:
        notes.append(f"{MOST_VARIANTS} of {len(groups)} combinations are drawn; the table has all.")
    return tuple(drawn), tuple(notes)


def slug(text: str) -> str:
    """Return letters, digits and hyphens, for identifiers and file names."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40] or "x"


def _family(kind: str, points: Sequence[PointEstimates], chosen_by: Deciding | None) -> Family:
    deciding = None if chosen_by is None else chosen_by.metric
    names = sorted({name for point in points for name in point.params})
    varied = [n for n in names if len({repr(p.params.get(n)) for p in points}) > 1]
    axis = _axis(points, varied)
    if axis is not None:
        varied = [axis, *(name for name in varied if name != axis)]
    there = {metric for point in points for metric in point.estimates}
    measured = [metric for metric in METRICS if metric in there]
    chosen = (
        tuple(m for m in measured if METRICS[m].headline)
        or tuple(m for m in measured if METRICS[m].better != "neither")[:_MOST_FALLBACK]
    )
    own = [m for m in chosen if not _of_every_trial(m)]
    if not own:
        # A family that names no headline still shows its first figures.
        own = [m for m in measured if METRICS[m].better != "neither" and not _of_every_trial(m)]
        own = own[:_MOST_FALLBACK]
    # Of single datagrams the overhead in bytes is exact and says it all.
    needless = {"compression_ratio"} if "overhead_bytes" in measured else set()
    metrics = (*own, *(m for m in chosen if _of_every_trial(m) and m not in needless))
    if deciding in measured:
        metrics = (deciding, *(m for m in metrics if m != deciding))
    directed = [deciding] if deciding in metrics and METRICS[deciding].better != "neither" else []
    ratios = (m for m in metrics if METRICS[m].scale == "log" and not _of_every_trial(m))
    return Family(
        kind,
        tuple(sorted(points, key=lambda p: (not p.is_baseline, p.tunnel, _place(p, varied)))),
        tuple(varied),
        axis,
        metrics,
        tuple(m for m in measured if m not in metrics),
        tuple(dict.fromkeys((*directed, *ratios)))[:_MOST_COMPARED],
        deciding if chosen_by is not None and chosen_by.own else None,
    )


def _axis(points: Sequence[PointEstimates], varied: Sequence[str]) -> str | None:
    """Return the parameter with most values, one of numbers before one of words."""
    found: list[tuple[bool, int, bool, str]] = []
    for name in varied:
        values = [p.params[name] for p in points if name in p.params]
        numbers = all(not isinstance(v, bool | str) for v in values)
        others = [other for other in varied if other != name]
        curves: dict[tuple[str, ...], set[Value]] = {}
        for point in points:
            if name in point.params:
                curves.setdefault(_rest(point, others), set()).add(point.params[name])
        if max(map(len, curves.values()), default=0) > 1:
            found.append((numbers, len(set(values)), name == _PAYLOAD, name))
    return max(found)[3] if found else None


def _variants(family: Family) -> list[tuple[str, list[PointEstimates]]]:
    """Return the points of each figure, with what it holds fixed in words."""
    if family.axis is None:
        return [("", list(family.points))]
    others = family.varied[1:]
    found: dict[tuple[str, ...], list[PointEstimates]] = {}
    for point in sorted(family.points, key=lambda p: _place(p, others)):
        found.setdefault(_rest(point, others), []).append(point)
    named = []
    for points in found.values():
        words = [
            f"{parameter(name).title} {in_words(name, points[0].params[name])}"
            for name in others
            if name in points[0].params
        ]
        named.append((", ".join(words), points))
    return named


def _rest(point: PointEstimates, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(repr(point.params.get(name)) for name in names)


def _place(point: PointEstimates, names: Sequence[str]) -> list[tuple[int, float, str]]:
    key: list[tuple[int, float, str]] = []
    for name in names:
        value = point.params.get(name, "")
        if isinstance(value, str | bool):
            key += [(1, 0.0, str(value))]
        else:
            key += [(0, float(value), "")]
    return [*key, *natural(point.workload)]


def _of_every_trial(metric: str) -> bool:
    return metric.startswith(("cpu_", "wire_", "overhead_", "outer_", "compression_"))
