"""Figures for the HTML page: plotly's JSON, which the page draws when it is scrolled into view."""

import html
import json
from typing import Any, Final

from tunnelmark.report.charts import Chart, Line, Surface

# Okabe and Ito's palette, distinguishable with any colour vision; markers and dashes in grey.
COLOURS: Final = (
    *("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a7a00"),
)
_MARKERS: Final = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star", "hexagon")
_CIVIDIS: Final = [
    [0, "#00204d"],
    [0.25, "#414d6b"],
    [0.5, "#7c7b78"],
    [0.75, "#bcae6c"],
    [1, "#ffea46"],
]
_DASHES: Final = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


def to_json(chart: Chart | Surface) -> str:
    """Return what ``Plotly.newPlot`` takes, fit to stand in a script element."""
    config = {
        "displaylogo": False,
        "responsive": True,
        "modeBarButtonsToRemove": ["lasso2d", "select2d"],
    }
    if isinstance(chart, Surface):
        figure = {"data": _surface(chart), "layout": _shades(chart), "config": config}
    else:
        figure = {
            "data": [_trace(chart, line) for line in chart.lines],
            "layout": _layout(chart),
            "config": config,
        }
    text = json.dumps(figure, separators=(",", ":"), allow_nan=False)
    # A script element ends at the first "</", whatever the quotes around it.
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _surface(chart: Surface) -> list[dict[str, Any]]:
    """Return heights as shades: a surface in space cannot be read off."""
    traces = []
    for style, name in enumerate(dict.fromkeys(dot[0] for dot in chart.dots)):
        own = [dot for dot in chart.dots if dot[0] == name]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": html.escape(name),
                "x": [dot[1] for dot in own],
                "y": [dot[2] for dot in own],
                "text": [f"{dot[3]:g}" for dot in own],
                "marker": {
                    "size": 14,
                    "color": [dot[3] for dot in own],
                    "coloraxis": "coloraxis",
                    "symbol": _MARKERS[style % len(_MARKERS)],
                },
            }
        )
    return traces


def _shades(chart: Surface) -> dict[str, Any]:
    return {
        "xaxis": {"title": _title(chart.x_title), "automargin": True},
        "yaxis": {"title": _title(chart.y_title), "automargin": True},
        # Its lightness rises steadily: the same order in grey and with any colour vision.
        "coloraxis": {
            "colorscale": _CIVIDIS,
            "colorbar": {"title": {"text": html.escape(chart.z_title)}},
        },
        "legend": {"orientation": "h", "yanchor": "top", "y": -0.22, "x": 0},
        "margin": {"l": 64, "r": 16, "t": 36, "b": 48},
        "height": 440,
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "#222"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
    }


def _trace(chart: Chart, line: Line) -> dict[str, Any]:
    colour = COLOURS[line.style % len(COLOURS)]
    joined = chart.joined and not line.published
    dashes = _DASHES[line.style % len(_DASHES)]
    trace: dict[str, Any] = {
        "type": "scatter",
        # Plotly reads labels as HTML; a result directory may come from anyone.
        "name": html.escape(line.name),
        "x": [html.escape(d.x) if isinstance(d.x, str) else _brief(d.x) for d in line.dots],
        "y": [_brief(d.value) for d in line.dots],
        "mode": "lines" if chart.steps else ("lines+markers" if joined else "markers"),
        "line": {"color": colour, "dash": dashes, "width": 1.6},
    }
    if chart.steps:
        trace["line"]["shape"] = "hv"
        return trace
    symbol = _MARKERS[line.style % len(_MARKERS)]
    trace["marker"] = {
        "symbol": f"{symbol}-open" if line.published else symbol,
        "size": 11 if line.published else 8,
        "color": colour,
    }
    if any(d.low is not None for d in line.dots):
        trace["error_y"] = {
            "type": "data",
            "array": [_brief(0 if d.high is None else d.high - d.value, 4) for d in line.dots],
            "arrayminus": [_brief(0 if d.low is None else d.value - d.low, 4) for d in line.dots],
            "thickness": 1.2,
        }
    return trace


def _brief(value: float, digits: int = 7) -> float | int:
    """Return a value without digits that nobody sees: they were a quarter of a large page."""
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() else short


def _title(text: str) -> dict[str, Any]:
    """Return the title of an axis: Plotly's own size is cut off where a figure is low."""
    return {"text": html.escape(text), "font": {"size": 12}, "standoff": 8}


def _layout(chart: Chart) -> dict[str, Any]:
    x: dict[str, Any] = {"title": _title(chart.x_title)}
    if chart.categories is not None:
        x |= {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": [html.escape(name) for name in chart.categories],
            "tickvals": [html.escape(name) for name in chart.categories],
            # In one line "wireguard (simulated)" is slanted, and takes a third of a phone's width.
            "ticktext": [html.escape(name).replace(" (", "<br>(") for name in chart.categories],
            # By itself the axis ends at the first and the last one, whose marks would be cut.
            "range": [-0.5, len(chart.categories) - 0.5],
        }
    y: dict[str, Any] = {"title": _title(chart.y_title)}
    if chart.top is not None:
        low = min(d.value if d.low is None else d.low for line in chart.lines for d in line.dots)
        y |= {"range": [max(low, -0.1 * chart.top), chart.top]}
    elif chart.from_zero:
        y |= {"rangemode": "nonnegative", "minallowed": 0}
    return {
        "xaxis": {**x, "gridcolor": "#e6e6e6", "zeroline": False, "automargin": True},
        "yaxis": {**y, "gridcolor": "#e6e6e6", "zerolinecolor": "#bbb", "automargin": True},
        # Words on the axis may be slanted and then reach down far.
        "legend": {
            "orientation": "h",
            "yanchor": "top",
            "y": -0.3 if chart.categories is None else -0.5,
            "x": 0,
        },
        "showlegend": not chart.named_on_axis and (len(chart.lines) > 1 or chart.joined),
        "margin": {"l": 64, "r": 16, "t": 36, "b": 48},
        "height": 380,
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "#222"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "#999", "activecolor": "#333"},
        "hovermode": "x unified" if chart.joined else "closest",
        "shapes": [
            {
                "type": "line",
                "x0": mark.x,
                "x1": mark.x,
                "yref": "paper",
                "y0": 0,
                "y1": 1,
                "line": {
                    "color": COLOURS[mark.style % len(COLOURS)],
                    "width": 1,
                    "dash": "dot",
                },
            }
            for mark in chart.marks
        ],
    }
