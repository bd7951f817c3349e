"""Figures for print: SVG and PDF with their fonts, readable in grey and with any colour vision."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import matplotlib as mpl
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from tunnelmark.report.charts import Chart, Line, Surface
from tunnelmark.report.figures import COLOURS

Form = Literal["svg", "pdf"]

MOST_FIGURES: Final = 400
"""More would fill a disk rather than a page."""
_MARKERS: Final = ("o", "s", "D", "^", "X", "P", "*", "h")
_DASHES: Final[Sequence[Any]] = (
    *("-", "--", ":", "-."),
    *((0, (8, 3)), (0, (8, 3, 2, 3))),
)
_STYLE: Final[Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.grid": True,
    "grid.color": "#e0e0e0",
    "grid.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    # TrueType in PDF, outlines in SVG: looks alike everywhere, needs no font of the reader's.
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "tunnelmark",
    # A label is text: it may have any character, "$" too.
    "text.parse_math": False,
}


def write_figures(charts: Sequence[Chart | Surface], folder: Path) -> tuple[str, ...]:
    """Write each figure as ``<key>.svg`` and ``<key>.pdf``; return the keys."""
    folder.mkdir(parents=True, exist_ok=True)
    for chart in charts[:MOST_FIGURES]:
        for form in ("svg", "pdf"):
            (folder / f"{chart.key}.{form}").write_bytes(render(chart, form))
    return tuple(chart.key for chart in charts[:MOST_FIGURES])


def render(chart: Chart | Surface, form: Form) -> bytes:
    """Return the file; the same chart gives the same bytes."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(5.2, 3.4), layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(chart.title, fontsize=9, loc="left")
        axes.set_xlabel(chart.x_title)
        axes.set_ylabel(chart.y_title)
        if isinstance(chart, Surface):
            _contours(figure, axes, chart)
        else:
            _lines(figure, axes, chart)
        out = io.BytesIO()
        if form == "svg":
            canvas: Any = FigureCanvasSVG(figure)
            canvas.print_svg(out, metadata={"Date": None})
        else:
            canvas = FigureCanvasPdf(figure)
            canvas.print_pdf(out, metadata={"CreationDate": None})
        return out.getvalue()


def _lines(figure: Figure, axes: Any, chart: Chart) -> None:
    for line in chart.lines:
        _draw(axes, chart, line)
    for mark in chart.marks:
        axes.axvline(mark.x, color=COLOURS[mark.style % len(COLOURS)], linewidth=0.7, ls=":")
    if chart.categories is not None:
        axes.set_xticks(range(len(chart.categories)), [_short(c) for c in chart.categories])
        if len(chart.categories) > 4:  # noqa: PLR2004 - as many fit side by side
            axes.tick_params(axis="x", rotation=30)
        axes.margins(x=0.1)
    if chart.from_zero:
        axes.set_ylim(bottom=0)
    if chart.top is not None:
        low = min(d.value if d.low is None else d.low for line in chart.lines for d in line.dots)
        axes.set_ylim(0 if chart.from_zero else max(low, -0.1 * chart.top), chart.top)
    if not chart.named_on_axis and (len(chart.lines) > 1 or chart.joined):
        figure.legend(loc="outside lower center", ncols=min(3, len(chart.lines)), frameon=False)


def _contours(figure: Figure, axes: Any, chart: Surface) -> None:
    """Draw heights as shades with the points on top: a surface in space cannot be read off."""
    x, y, z = ([dot[axis] for dot in chart.dots] for axis in (1, 2, 3))
    try:
        shades = axes.tricontourf(x, y, z, levels=8, cmap="cividis")
    except (RuntimeError, ValueError):
        # All points on one line have no area between them.
        shades = axes.scatter(x, y, c=z, cmap="cividis")
    figure.colorbar(shades, ax=axes, label=chart.z_title)
    for style, name in enumerate(dict.fromkeys(dot[0] for dot in chart.dots)):
        own = [dot for dot in chart.dots if dot[0] == name]
        axes.plot(
            [dot[1] for dot in own],
            [dot[2] for dot in own],
            linestyle="none",
            marker=_MARKERS[style % len(_MARKERS)],
            markersize=4,
            markerfacecolor="white",
            markeredgecolor="black",
            label=name,
        )
    figure.legend(loc="outside lower center", ncols=3, frameon=False)


def _draw(axes: Any, chart: Chart, line: Line) -> None:
    colour = COLOURS[line.style % len(COLOURS)]
    if chart.categories is None:
        x = [float(dot.x) for dot in line.dots]
    else:
        x = [float(chart.categories.index(str(dot.x))) for dot in line.dots]
    y = [dot.value for dot in line.dots]
    dashes = _DASHES[line.style % len(_DASHES)]
    if chart.steps:
        axes.step(x, y, where="post", color=colour, linestyle=dashes, lw=1.1, label=line.name)
        return
    axes.errorbar(
        x,
        y,
        yerr=[
            [dot.value - (dot.value if dot.low is None else dot.low) for dot in line.dots],
            [(dot.value if dot.high is None else dot.high) - dot.value for dot in line.dots],
        ],
        label=line.name,
        color=colour,
        linestyle=dashes if chart.joined and not line.published else "none",
        linewidth=1.1,
        marker=_MARKERS[line.style % len(_MARKERS)],
        markersize=6 if line.published else 4,
        markerfacecolor="none" if line.published else colour,
        capsize=2,
        elinewidth=0.8,
    )


def _short(text: str) -> str:
    return text if len(text) <= 24 else f"{text[:23]}…"  # noqa: PLR2004 - what fits under a tick
