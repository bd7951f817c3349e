"""The HTML report: one file, works offline, asks nothing of any other place."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

import jinja2
import numpy as np
import numpy.typing as npt
import polars as pl
from markupsafe import Markup

from tunnelmark.analysis.delays import ecdf
from tunnelmark.analysis.strata import set_apart
from tunnelmark.analysis.units import unit
from tunnelmark.engine.records import MISSING_NS, read_send
from tunnelmark.model.block import Stratum, time_by_place
from tunnelmark.model.errors import ResultError
from tunnelmark.model.lateness import LATE_TAIL
from tunnelmark.model.metrics import METRICS
from tunnelmark.report import plotly
from tunnelmark.report.brief import brief
from tunnelmark.report.charts import Chart, Dot, Line, Surface
from tunnelmark.report.cpu_table import ABOUT, TITLE, cpu_table
from tunnelmark.report.families import families
from tunnelmark.report.figures import to_json
from tunnelmark.report.layers import layer_table
from tunnelmark.report.predicted import HEADS
from tunnelmark.report.sections import Section, place_name, tunnels, workload_title
from tunnelmark.report.show import cell, change
from tunnelmark.report.summary import Summary
from tunnelmark.report.tables import SMOKE
from tunnelmark.report.verdicts import needed
from tunnelmark.store import Result

_MOST_SAMPLE_FILES = 400
"""Record files read for the distributions; more would make a page nobody can open."""
_OPEN_SECTIONS = 4
"""Of more places the figures and tables are folded."""
_OPEN_FINDINGS = 12
_MOST_CARDS = 2
"""Uses that are shown in full; more are a table, so that the first page fits on a sheet."""
_MOST_ROWS = 12
"""Of this table on the first page."""


@dataclass(frozen=True)
class Picture:
    """A figure as the templates draw it."""

    key: str
    title: str
    about: str
    json: Markup


@dataclass(frozen=True)
class Shown:
    """A section with its figures as the page has them."""

    section: Section
    pictures: tuple[tuple[str, tuple[Picture, ...], tuple[str, ...]], ...]
    """Title, figures and notes of each kind of workload."""


def to_html(
    summary: Summary,
    result: Result,
    *,
    plotly_src: str | None = None,
    links: Sequence[tuple[str, str]] = (),
) -> str:
    """Return the page.

    ``plotly_src`` is where the page has Plotly from, ``plotly.FILE_NAME`` beside it or an address;
    None: within itself. ``links`` are words and addresses of pages around it.
    """
    distributions = _distributions(summary, result)
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            summary=summary,
            brief=brief(summary),
            manifest=summary.manifest,
            shown=[shown(s, distributions.get(s.key)) for s in summary.sections],
            classic=[picture(c) for c in summary.comparison.charts] if summary.comparison else [],
            predicted=[picture(c) for c in summary.prediction.charts] if summary.prediction else [],
            predicted_heads=HEADS,
            across=[picture(chart) for chart in summary.across],
            paths=[
                (workload_title(family.kind), family)
                for family in families([p for p in summary.paths if not p.is_baseline])
            ],
            place_name=place_name,
            places=time_by_place(summary.blocks),
            simulated={block.stratum for block in summary.blocks} == {Stratum.SIMULATION},
            layer_table=layer_table,
            cpu_table=cpu_table,
            cpu_title=TITLE,
            cpu_about=ABOUT,
            needed=needed,
            verdicts_open=any(map(needed, summary.own_verdicts)),
            smoke=SMOKE,
            seconds=lambda value: f"{value:.1f} s",
            open_sections=_OPEN_SECTIONS,
            open_findings=_OPEN_FINDINGS,
            most_cards=_MOST_CARDS,
            most_rows=_MOST_ROWS,
            links=links,
            plotly_src=plotly_src,
            plotly=Markup(plotly.packed() if plotly_src is None else ""),  # noqa: S704 - base64
            script=Markup(resource("page.js")),  # noqa: S704 - our own
        )
    )


def environment(*further: jinja2.BaseLoader) -> jinja2.Environment:
    """Return the templates of this package, then those of ``further``, with what they all need."""
    own = jinja2.FunctionLoader(
        lambda name: resource(name) if name in {"report.html.j2", "parts.html.j2"} else None
    )
    found = jinja2.Environment(
        loader=jinja2.ChoiceLoader([own, *further]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    style = Markup(resource("page.css"))  # noqa: S704 - our own
    found.globals |= {"metrics": METRICS, "unit": unit, "cell": cell, "change": change}
    found.globals |= {"style": style}
    return found


def charts_of(summary: Summary, result: Result) -> tuple[Chart | Surface, ...]:
    """Return every figure of the page, in its order."""
    found: list[Chart | Surface] = list(summary.comparison.charts) if summary.comparison else []
    found += summary.prediction.charts if summary.prediction else ()
    distributions = _distributions(summary, result)
    for section in summary.sections:
        for part in section.parts:
            found += part.charts
        if (curves := distributions.get(section.key)) is not None:
            found.append(curves)
    return (*found, *summary.across)


def resource(name: str) -> str:
    """Return a file of this package as text."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def shown(section: Section, further: Chart | None = None) -> Shown:
    """Return a section as the templates draw it; ``further`` is a figure behind its own."""
    parts = [
        (part.title, tuple(picture(chart) for chart in part.charts), part.notes)
        for part in section.parts
    ]
    if further is not None:
        parts.append(("Single packets", (picture(further),), ()))
    return Shown(section, tuple(parts))


def picture(chart: Chart | Surface) -> Picture:
    """Return a figure as the templates draw it."""
    return Picture(chart.key, chart.title, chart.about, Markup(to_json(chart)))  # noqa: S704 - escaped


def _distributions(summary: Summary, result: Result) -> dict[str, Chart]:
    """Return the distribution of each section that has samples, by the section's key."""
    # Read once: a study of many lines has a section for each.
    trials = set_apart(result.trials(), result.blocks.values()).filter(
        (pl.col("path") == "total")
        & pl.col("valid")
        & ~pl.col("checks").str.contains(f'"{LATE_TAIL}', literal=True)
    )
    found = {s.key: _distribution(s, summary, result, trials) for s in summary.sections}
    return {key: chart for key, chart in found.items() if chart is not None}


def _distribution(
    section: Section, summary: Summary, result: Result, trials: pl.DataFrame
) -> Chart | None:
    curves = _curves(result, trials, section.link, section.device)
    lines = tuple(
        Line(name, style, tuple(Dot(x, y) for x, y in zip(*curves[name], strict=True)))
        for style, name in enumerate(tunnels(summary.points))
        if name in curves
    )
    if not lines:
        return None
    return Chart(
        key=f"{section.key}-rtt-distribution",
        title="Distribution of the RTT",
        about="share of all echo packets of valid trials, all sizes, whose reply came within a "
        "time; a curve that ends below 1 has lost the others. Trials in which the computer "
        "delayed single packets are not in it",
        x_title="RTT [ms]",
        y_title="share of packets at or below",
        lines=lines,
        steps=True,
    )


def _curves(
    result: Result, trials: pl.DataFrame, link: str, device: str
) -> Mapping[str, tuple[list[float], list[float]]]:
    """Read the RTT of every packet of the valid trials, by tunnel; nothing without samples.

    A workload without a single reply at this place sends one way: its packets are not lost.
    """
    rows = trials.filter((pl.col("link") == link) & (pl.col("device") == device))
    delays: dict[str, list[npt.NDArray[np.int64]]] = defaultdict(list)
    packets = Counter[tuple[str, str]]()
    answered = set[str]()
    for (tunnel,), group in rows.group_by("tunnel", maintain_order=True):
        names = [
            (workload, name)
            for workload, names in group.select("workload", "samples").iter_rows()
            for name in names
            if name.endswith(".send.rec")
        ]
        for workload, name in names[:_MOST_SAMPLE_FILES]:
            try:
                table = read_send(result.samples(name), name)
            except ResultError:
                continue  # removed by hand to save space: the figure then has fewer packets
            sent = table["sent_ns"] != MISSING_NS
            back = (table["returned_ns"] != MISSING_NS) & sent
            packets[str(tunnel), workload] += int(np.count_nonzero(sent))
            if back.any():
                answered.add(workload)
                delays[str(tunnel)].append(table["returned_ns"][back] - table["sent_ns"][back])
    return {
        tunnel: ecdf(found, sum(packets[tunnel, workload] for workload in answered))
        for tunnel, found in delays.items()
    }
