"""Figures of a simulation beside those of a measured run, point by point; never pooled."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tunnelmark.analysis.estimate import Estimate
from tunnelmark.analysis.estimates import PointEstimates, point_estimates
from tunnelmark.analysis.fragmentation import fragmentation_points
from tunnelmark.analysis.strata import ELSEWHERE, set_apart
from tunnelmark.analysis.units import as_text, unit
from tunnelmark.model.block import BlockRecord, Stratum
from tunnelmark.model.errors import ResultError
from tunnelmark.model.metrics import METRICS
from tunnelmark.model.quantity import percent
from tunnelmark.report.charts import Chart, Dot, Line
from tunnelmark.report.families import slug
from tunnelmark.report.notes import notes_of
from tunnelmark.report.sections import tunnels
from tunnelmark.store import Result

HEADS: Final = ("point", "figure", "measured", "predicted", "difference", "limit", "within")
_OVERLOAD: Final = 0.01
"""Share of lost packets from which a point is overloaded."""
_RTT: Final = 0.02
_RATE: Final = 0.10
_RATES: Final = {
    "received_forward_packet_s": "loss_forward_ratio",
    "received_reverse_packet_s": "loss_reverse_ratio",
}
"""Rates that are those of saturation where so much is lost."""
_SEARCHED: Final = "throughput_lower_packet_s"
_GOODPUT: Final = "tcp_goodput_bit_s"
_LOSSES: Final = ("loss_forward_ratio", "loss_reverse_ratio")
_FRAGMENTATION: Final = "fragmentation_point_bytes"


@dataclass(frozen=True)
class Predicted:
    """One figure, in its metric's stored unit."""

    tunnel: str
    """As reports write the measured one."""
    link: str
    device: str
    workload: str
    """Empty for the fragmentation point, which is none's."""
    metric: str
    measured: float
    low: float | None
    """Interval of the measured figure; None, like ``high``: there is none."""
    high: float | None
    predicted: float
    limit: str
    """What is asked of a prediction, in words."""
    within: bool | None
    """None: the measured figure has no interval, so nobody knows."""

    @property
    def difference(self) -> float | None:
        """Predicted over measured less 1; None where that has no meaning."""
        return self.predicted / self.measured - 1 if self.measured > 0 else None

    @property
    def name(self) -> str:
        """Return the point in words."""
        place = (self.tunnel, self.workload, self.link, self.device)
        return ", ".join(part for part in place if part and part != "host")

    @property
    def title(self) -> str:
        """Return what the figure is called."""
        if self.metric == _FRAGMENTATION:
            return "Largest payload in one packet"
        return METRICS[self.metric].title

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the cells under ``HEADS``."""
        off = self.difference
        return (
            self.name,
            self.title,
            _text(self.measured, self.metric),
            _text(self.predicted, self.metric),
            "-" if off is None else percent(off, 1, sign=True),
            self.limit,
            {True: "yes", False: "no", None: "not known"}[self.within],
        )


@dataclass(frozen=True)
class Prediction:
    """All figures that a measured and a simulated result share."""

    source: str
    """Name of the simulated result."""
    rows: tuple[Predicted, ...]
    notes: tuple[str, ...]
    """What the simulation left out."""
    charts: tuple[Chart, ...]

    @property
    def said(self) -> str:
        """Return in one sentence how far the simulation can be trusted here."""
        off = [one for one in self.rows if one.within is False]
        judged = sum(one.within is not None for one in self.rows)
        if not judged:
            return "No figure of the simulation can be judged by this run."
        if not off:
            return f"All {judged} predicted figures that can be judged are within their limits."
        worst = max(off, key=lambda one: abs(one.difference or 0.0))
        figures = [_text(value, worst.metric) for value in (worst.predicted, worst.measured)]
        return (
            f"The simulation is off in {len(off)} of {judged} figures, most in "
            f"{worst.title} of {worst.name}: {figures[0]} predicted, {figures[1]} "
            "measured."
        )


def _text(value: float, metric: str) -> str:
    return f"{value:.0f} bytes" if metric == _FRAGMENTATION else as_text(value, metric)


def predict(measured: Result, simulated: Result) -> Prediction:
    """Set a simulated result beside a measured one.

    Raises ``ResultError`` where either is not what it is taken for, or they share no figure.
    """
    own, other = _points(measured, simulated=False), _points(simulated, simulated=True)
    if any(ELSEWHERE in point.tunnel for point in other):
        raise ResultError(f"{simulated.directory}: has figures of several sets of cost models")
    beside = {_id(point): point for point in other}
    rows = tuple(
        row
        for point in own
        if (found := beside.get(_id(point))) is not None
        for row in _rows(point, found)
    )
    rows += tuple(_fragmentation(measured.blocks.values(), simulated.blocks.values()))
    if not rows:
        raise ResultError(
            f"{simulated.directory}: shares no point and figure with {measured.directory}"
        )
    notes = notes_of(simulated.blocks.values())
    charts = tuple(_charts(rows, tunnels(own)))
    return Prediction(simulated.directory.resolve().name, rows, tuple(notes), charts)


def _points(result: Result, *, simulated: bool) -> tuple[PointEstimates, ...]:
    trials = result.trials()
    strata = set(trials["stratum"])
    if (strata != {Stratum.SIMULATION}) if simulated else (Stratum.SIMULATION in strata):
        what = "simulated" if simulated else "measured"
        raise ResultError(f"{result.directory}: is not a {what} result, which is needed here")
    trials = set_apart(trials, result.blocks.values())
    return point_estimates(trials, confidence=result.manifest.confidence)


def _id(point: PointEstimates) -> tuple[str, ...]:
    """Return what a point is, wherever it was measured."""
    return point.label, point.link, point.device, point.pair_id


def _rows(point: PointEstimates, beside: PointEstimates) -> Iterator[Predicted]:
    def row(metric: str, limit: str, *, within: bool | None) -> Predicted:
        own = point.estimates[metric]
        return Predicted(
            tunnel=point.tunnel,
            link=point.link,
            device=point.device,
            workload=point.workload,
            metric=metric,
            measured=own.value,
            low=own.low,
            high=own.high,
            predicted=beside.estimates[metric].value,
            limit=limit,
            within=within,
        )

    def both(metric: str) -> bool:
        return metric in point.estimates and metric in beside.estimates

    overloaded = any(_value(point, metric) > _OVERLOAD for metric in _LOSSES)
    if both("rtt_p50_ns") and not overloaded:
        yield row("rtt_p50_ns", "2 %", within=_near(point, beside, "rtt_p50_ns", _RTT))
    for metric in _LOSSES:
        if both(metric) and max(_value(point, metric), _value(beside, metric)) > _OVERLOAD:
            within = _inside(point.estimates[metric], beside.estimates[metric].value)
            yield row(metric, "measured interval", within=within)
    for metric, loss in _RATES.items():
        if both(metric) and _value(point, loss) > _OVERLOAD:
            yield row(metric, "10 %", within=_near(point, beside, metric, _RATE))
    if both(_SEARCHED):
        yield row(_SEARCHED, "10 %", within=_near(point, beside, _SEARCHED, _RATE))
    if both(_GOODPUT):
        # Under random loss a few short transfers differ by more than that among themselves.
        near = _near(point, beside, _GOODPUT, _RATE)
        chance = _inside(point.estimates[_GOODPUT], beside.estimates[_GOODPUT].value)
        yield row(_GOODPUT, "10 %, or measured interval", within=near or chance)


def _value(point: PointEstimates, metric: str) -> float:
    found = point.estimates.get(metric)
    return 0.0 if found is None else found.value


def _near(point: PointEstimates, beside: PointEstimates, metric: str, limit: float) -> bool:
    own, other = point.estimates[metric].value, beside.estimates[metric].value
    return abs(other - own) <= limit * abs(own)


def _inside(own: Estimate, predicted: float) -> bool | None:
    if own.low is None or own.high is None:
        return None
    return own.low <= predicted <= own.high


def _fragmentation(
    blocks: Iterable[BlockRecord], others: Iterable[BlockRecord]
) -> Iterator[Predicted]:
    predicted = fragmentation_points(others)
    for (link, device, tunnel), point in fragmentation_points(blocks).items():
        found = predicted.get((link, device, tunnel))
        if found is not None:
            yield Predicted(
                tunnel=tunnel,
                link=link,
                device=device,
                workload="",
                metric=_FRAGMENTATION,
                measured=float(point),
                low=None,
                high=None,
                predicted=float(found),
                limit="the same",
                within=found == point,
            )


def _charts(rows: Sequence[Predicted], order: Sequence[str]) -> Iterator[Chart]:
    """Yield how far each figure is off over what it is, by metric."""
    for metric in dict.fromkeys(row.metric for row in rows if row.metric != _FRAGMENTATION):
        factor = unit(metric).factor
        lines = []
        for style, tunnel in enumerate(order):
            own = [row for row in rows if (row.tunnel, row.metric) == (tunnel, metric)]
            known = [(row.measured * factor, row.difference) for row in own]
            dots = sorted((x, 100 * off) for x, off in known if off is not None)
            if dots:
                lines.append(Line(tunnel, style, tuple(Dot(x, off) for x, off in dots)))
        if lines:
            name = METRICS[metric].title
            yield Chart(
                key=f"predicted-{slug(metric)}",
                title=f"{name}: how far the simulation is off",
                about="predicted less measured, as a share of the measured figure, over the "
                "measured figure of each point",
                x_title=f"{name}, measured [{unit(metric).name}]",
                y_title="predicted less measured [%]",
                lines=tuple(lines),
                joined=False,
            )
