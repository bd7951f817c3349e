"""Figures as data: lines of estimates over one axis, whatever draws them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.analysis.units import unit
from tunnelmark.model.metrics import METRICS
from tunnelmark.report.parameters import in_words, number, parameter

PLACES: Final = ("tunnel", "link", "device", "workload")
"""Axes that every point has, beside the parameters of its workload."""

_FAR: Final = 2.5
"""Intervals are shown up to so many times the largest estimate."""


@dataclass(frozen=True)
class Dot:
    """One estimate, in shown units."""

    x: float | str
    value: float
    low: float | None = None
    """None, like ``high``: too few repeats for an interval."""
    high: float | None = None
    n: int | None = None


@dataclass(frozen=True)
class Line:
    """Estimates that belong together."""

    name: str
    style: int
    """Number of the colour, marker and dash: a tunnel has the same one in every figure."""
    dots: tuple[Dot, ...]
    published: bool = False
    """Values of a publication, drawn hollow and without a line between them."""


@dataclass(frozen=True)
class Mark:
    """A vertical line, such as a fragmentation point."""

    x: float
    name: str
    style: int


@dataclass(frozen=True)
class Chart:
    """One figure."""

    key: str
    """Part of file names and of the page's identifiers: letters, digits and hyphens."""
    title: str
    about: str
    x_title: str
    y_title: str
    lines: tuple[Line, ...]
    marks: tuple[Mark, ...] = ()
    categories: tuple[str, ...] | None = None
    """Order of the words on the axis; None: numbers."""
    joined: bool = True
    """Whether the dots of a line are joined."""
    steps: bool = False
    """A distribution function."""
    from_zero: bool = False
    """Without this a share of nothing at all is drawn in the middle of -1 to +1."""

    @property
    def named_on_axis(self) -> bool:
        """Whether each line is one dot that stands at its own name: a legend would say it again."""
        return all([dot.x for dot in line.dots] == [line.name] for line in self.lines)

    @property
    def top(self) -> float | None:
        """Where the figure ends above, if an interval reaches far beyond every estimate.

        Of two or three repeats intervals may be thousands of times as wide as what they are of;
        the figure would show nothing else.
        """
        dots = [dot for line in self.lines for dot in line.dots]
        largest = max(dot.value for dot in dots)
        highest = max(dot.value if dot.high is None else dot.high for dot in dots)
        if largest <= 0 or highest <= _FAR * largest:
            return None
        return _FAR * largest

    @property
    def constant(self) -> float | None:
        """The one value that every dot has, or None."""
        values = {dot.value for line in self.lines for dot in line.dots}
        return values.pop() if len(values) == 1 else None


@dataclass(frozen=True)
class Surface:
    """A figure over two axes, the second of them measured too."""

    key: str
    title: str
    about: str
    x_title: str
    y_title: str
    z_title: str
    dots: tuple[tuple[str, float, float, float], ...]
    """Name of the tunnel, and where it stands on each axis, in shown units."""


def surface(
    points: Sequence[PointEstimates],
    metric: str,
    axis: str,
    against: str,
    *,
    key: str,
    title: str,
    order: Sequence[str],
) -> Surface | None:
    """Return a metric over a parameter and another metric; None with fewer than three points."""
    dots = tuple(
        (point.tunnel, x, y.value * unit(against).factor, z.value * unit(metric).factor)
        for point in sorted(points, key=lambda p: order.index(p.tunnel))
        if (x := _number(point, axis)) is not None
        and (y := point.estimates.get(against)) is not None
        and (z := point.estimates.get(metric)) is not None
    )
    if len(dots) < 3:  # noqa: PLR2004 - a plane
        return None
    return Surface(
        key,
        title,
        METRICS[metric].definition,
        parameter(axis).heading,
        _heading(against),
        _heading(metric),
        dots,
    )


def chart(
    points: Sequence[PointEstimates],
    metric: str,
    axis: str,
    *,
    key: str,
    lines: str = "tunnel",
    order: Sequence[str] = (),
    title: str = "",
    marks: Mapping[str, float] | None = None,
) -> Chart | None:
    """Return a metric over ``axis``, one line for each value of ``lines``; None without a figure.

    Both are one of ``PLACES`` or a parameter of the workload. ``order`` lists all names that lines
    have in the report; ``marks`` are places on the axis, in stored units, by the name of the line.
    """
    drawn = [
        p for p in points if metric in p.estimates and _at(p, axis) != "" and _at(p, lines) != ""
    ]
    if not drawn:
        return None
    words = axis in PLACES or any(_number(p, axis) is None for p in drawn)
    names = list(dict.fromkeys(_at(p, lines) for p in drawn))
    full = [*order, *(name for name in names if name not in order)]
    found = tuple(
        _line(
            name, full.index(name), [p for p in drawn if _at(p, lines) == name], metric, axis, words
        )
        for name in sorted(names, key=full.index)
    )
    shown = METRICS[metric]
    return Chart(
        key=key,
        title=title or shown.title,
        about=shown.definition,
        x_title=axis if axis in PLACES else parameter(axis).heading,
        y_title=_heading(metric),
        lines=found,
        marks=tuple(
            Mark((marks or {})[name] * parameter(axis).factor, name, full.index(name))
            for name in names
            if name in (marks or {}) and not words
        ),
        categories=tuple(dict.fromkeys(_at(p, axis) for p in drawn)) if words else None,
        joined=axis not in PLACES,
        from_zero=shown.unit == "ratio",
    )


def _heading(metric: str) -> str:
    return f"{METRICS[metric].title} [{unit(metric).name or METRICS[metric].unit}]"


def _line(  # noqa: PLR0917 - one call
    name: str,
    style: int,
    points: Sequence[PointEstimates],
    metric: str,
    axis: str,
    words: bool,
) -> Line:
    factor = unit(metric).factor
    dots = []
    for point in points:
        estimate = point.estimates[metric]
        place = _at(point, axis) if words else _number(point, axis)
        dots.append(
            Dot(
                "" if place is None else place,
                _exact(estimate.value * factor),
                None if estimate.low is None else _exact(estimate.low * factor),
                None if estimate.high is None else _exact(estimate.high * factor),
                estimate.n,
            )
        )
    if not words:
        dots.sort(key=lambda dot: float(dot.x))
    return Line(name, style, tuple(dots))


def _exact(value: float) -> float:
    """Return a value without its last digits: an axis would be drawn for their rounding alone."""
    return float(f"{value:.12g}")


def _at(point: PointEstimates, axis: str) -> str:
    """Return where a point stands, in words; nothing where it has no such parameter."""
    if axis in PLACES:
        return str(getattr(point, axis))
    return in_words(axis, point.params[axis]) if axis in point.params else ""


def _number(point: PointEstimates, axis: str) -> float | None:
    return number(axis, point.params[axis]) if axis in point.params else None
