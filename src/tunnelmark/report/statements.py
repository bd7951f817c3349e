"""Everything a report may say of differences, decided together: whoever says it asks here."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from tunnelmark.analysis.door import Contrast, Decision, between, decide, to_baseline
from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.model.metrics import METRICS
from tunnelmark.report.families import Family
from tunnelmark.report.sections import Part, Section

OFFERED = "goodput_bit_s"
_ALSO_STATED = ("loss_forward_ratio", "loss_reverse_ratio", "voip_mos_min")


@dataclass(frozen=True)
class Statement:
    """One difference, of a tunnel to no tunnel or to another tunnel."""

    section: str
    """Key of the section."""
    part: str
    """Kind of the workload."""
    tunnel: str
    rival: str | None
    """None: no tunnel."""
    points: tuple[PointEstimates, ...]
    """Of the tunnel, over which the difference is the mean."""
    decision: Decision

    @property
    def better(self) -> bool:
        """Whether the tunnel has the better figure, as far as its estimate says."""
        metric = METRICS[self.decision.metric]
        return (self.decision.value > 0) == (metric.better == "higher")

    @property
    def winner(self) -> str:
        """Which of the two has the better figure; of a difference between two tunnels."""
        return self.tunnel if self.better else self.rival or ""

    @property
    def loser(self) -> str:
        """The other one."""
        return (self.rival or "") if self.better else self.tunnel

    def seen_by(self, name: str) -> tuple[float, float | None, float | None]:
        """Return value, low and high of the difference as one of the two tunnels sees it."""
        d = self.decision
        if name == self.tunnel:
            return d.value, d.low, d.high
        value, low, high = (_turned(end, d.metric) for end in (d.value, d.high, d.low))
        return value or 0.0, low, high


def statements_of(
    sections: Sequence[Section], *, confidence: float, moments: int
) -> tuple[Statement, ...]:
    """Decide all that the report of these sections may state, as one family."""
    asked = [one for s in sections for part in s.parts for one in _asked(s, part)]
    found = decide([c for *_, c in asked], confidence=confidence, moments=moments)
    return tuple(
        Statement(section, kind, tunnel, rival, points, decision)
        for (section, kind, tunnel, rival, points, _), decision in zip(asked, found, strict=True)
    )


def leading_metric(family: Family) -> str | None:
    """Return the metric by which tunnels are set against each other."""
    if family.named in family.compared:
        return family.named
    # A stream at a fixed gap passes or does not; other metrics show how much a tunnel carries.
    telling = [m for m in family.compared if m != OFFERED] or list(family.compared)
    directed = [m for m in telling if METRICS[m].better != "neither"]
    return directed[0] if directed else None


def _turned(value: float | None, metric: str) -> float | None:
    """Return a difference as the other of the two sees it."""
    if value is None:
        return None
    if METRICS[metric].scale != "log":
        return -value
    return 1 / (1 + value) - 1 if value > -1 else math.inf


_Asked = tuple[str, str, str, str | None, tuple[PointEstimates, ...], Contrast]


def _asked(section: Section, part: Part) -> Iterable[_Asked]:
    family = part.family
    also = (m for m in family.metrics if m in _ALSO_STATED)
    metrics = tuple(dict.fromkeys((*family.compared, *also)))
    by_tunnel: dict[str, list[PointEstimates]] = {}
    for point in family.points:
        if not point.is_baseline and not point.broken:
            by_tunnel.setdefault(point.tunnel, []).append(point)
    for tunnel, points in by_tunnel.items():
        for metric in metrics:
            if (own := to_baseline(points, metric)) is not None:
                yield section.key, family.kind, tunnel, None, _with(points, metric), own
    yield from _pairs(section, family, by_tunnel)


def _pairs(
    section: Section, family: Family, by_tunnel: Mapping[str, Sequence[PointEstimates]]
) -> Iterable[_Asked]:
    leading = leading_metric(family)
    for first, second in combinations(by_tunnel, 2) if leading is not None else ():
        if leading is None or by_tunnel[first][0].league != by_tunnel[second][0].league:
            continue
        one, other = (_with(by_tunnel[name], leading) for name in (first, second))
        common = {p.workload for p in one} & {p.workload for p in other}
        own, its = (tuple(p for p in points if p.workload in common) for points in (one, other))
        if (found := between(own, its, leading)) is not None:
            contrast, turned = found
            names = (second, first) if turned else (first, second)
            yield section.key, family.kind, *names, its if turned else own, contrast


def _with(points: Iterable[PointEstimates], metric: str) -> tuple[PointEstimates, ...]:
    return tuple(p for p in points if metric in p.differences)
