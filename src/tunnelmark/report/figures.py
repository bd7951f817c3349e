"""The figures of the HTML report: one line a tunnel, intervals as bars, safe in grey."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import plotly.graph_objects as go

from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.model.metrics import METRICS
from tunnelmark.report.show import unit

# Okabe and Ito's palette, told apart with any colour vision; markers and dashes tell in grey.
_COLOURS: Final = (
    *("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442"),
)
_MARKERS: Final = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star", "hexagon")
_DASHES: Final = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
AGAINST_SIZE: Final = (
    "goodput_bit_s",
    "loss_forward_ratio",
    "loss_reverse_ratio",
    "rtt_p50_ns",
    "rtt_p99_ns",
    "cpu_tunnel_ratio",
    "cpu_machine_ratio",
)


def against_size(
    points: Sequence[PointEstimates],
    metric: str,
    fragmentation: Mapping[str, int],
    order: Sequence[str],
) -> go.Figure | None:
    """Draw a metric against payload size; None where no point has both.

    ``order`` lists all tunnels: a tunnel has the same colour and marker in every figure.
    """
    scale = unit(metric)
    figure = go.Figure()
    tunnels = list(dict.fromkeys(point.tunnel for point in points))
    for tunnel in tunnels:
        number = order.index(tunnel)
        rows = [
            (point.payload_bytes, found)
            for point in points
            if point.tunnel == tunnel
            and point.payload_bytes is not None
            and (found := point.estimates.get(metric)) is not None
        ]
        if not rows:
            continue
        rows.sort(key=lambda row: row[0])
        centre = [found.value * scale.factor for _, found in rows]
        up = [
            ((f.high if f.high is not None else f.value) - f.value) * scale.factor for _, f in rows
        ]
        down = [
            (f.value - (f.low if f.low is not None else f.value)) * scale.factor for _, f in rows
        ]
        colour = _COLOURS[number % len(_COLOURS)]
        figure.add_trace(
            go.Scatter(
                x=[size for size, _ in rows],
                y=centre,
                error_y={"type": "data", "array": up, "arrayminus": down, "thickness": 1.2},
                name=tunnel,
                mode="lines+markers",
                line={"color": colour, "dash": _DASHES[number % len(_DASHES)], "width": 1.6},
                marker={"symbol": _MARKERS[number % len(_MARKERS)], "size": 8},
            )
        )
        if tunnel in fragmentation:
            figure.add_vline(
                x=fragmentation[tunnel], line={"color": colour, "width": 1, "dash": "dot"}
            )
    if not figure.data:
        return None
    shown = f"{METRICS[metric].title} [{scale.name or METRICS[metric].unit}]"
    _lay_out(figure, "payload size [byte]", shown)
    if METRICS[metric].unit == "ratio":
        # Without this a loss of nothing at all is drawn in the middle of -1 to +1.
        figure.update_yaxes(rangemode="nonnegative", minallowed=0)
    return figure


def distribution(
    curves: Mapping[str, tuple[list[float], list[float]]], order: Sequence[str]
) -> go.Figure | None:
    """Draw distribution functions of the RTT, one a tunnel."""
    figure = go.Figure()
    for number, tunnel in enumerate(order):
        if tunnel not in curves:
            continue
        delays_ms, shares = curves[tunnel]
        figure.add_trace(
            go.Scatter(
                x=delays_ms,
                y=shares,
                name=tunnel,
                mode="lines",
                line={
                    "color": _COLOURS[number % len(_COLOURS)],
                    "dash": _DASHES[number % len(_DASHES)],
                    "shape": "hv",
                    "width": 1.6,
                },
            )
        )
    if not figure.data:
        return None
    _lay_out(figure, "RTT [ms]", "share of packets at or below")
    return figure


def to_div(figure: go.Figure, name: str) -> str:
    """Return the figure as HTML that needs plotly.js in the page, and nothing from elsewhere."""
    config: dict[str, Any] = {"displaylogo": False, "responsive": True}
    return str(figure.to_html(full_html=False, include_plotlyjs=False, div_id=name, config=config))


def _lay_out(figure: go.Figure, x: str, y: str) -> None:
    figure.update_layout(
        template="plotly_white",
        xaxis_title=x,
        yaxis_title=y,
        legend={"orientation": "h", "yanchor": "top", "y": -0.2, "x": 0},
        margin={"l": 64, "r": 16, "t": 16, "b": 48},
        height=380,
        font={"family": "system-ui, sans-serif", "size": 13},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        hovermode="x unified",
    )
