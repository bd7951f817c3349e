"""The HTML report: one file, works offline, asks nothing of any other place."""

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import jinja2
import plotly.offline
import polars as pl
from markupsafe import Markup

from tunnelmark.analysis.delays import ecdf
from tunnelmark.analysis.strata import set_apart
from tunnelmark.engine.records import MISSING_NS, read_send
from tunnelmark.model.block import time_by_place
from tunnelmark.model.errors import ResultError
from tunnelmark.model.metrics import METRICS
from tunnelmark.report.charts import Chart, Dot, Line, Surface
from tunnelmark.report.families import families
from tunnelmark.report.figures import to_json
from tunnelmark.report.layers import layer_table
from tunnelmark.report.sections import Section, place_name, tunnels, workload_title
from tunnelmark.report.show import cell, change, unit
from tunnelmark.report.summary import Summary
from tunnelmark.report.tables import SMOKE
from tunnelmark.report.verdicts import needed
from tunnelmark.store import Result

_MOST_SAMPLE_FILES = 400
"""Record files read for the distributions; more would make a page nobody can open."""
_OPEN_SECTIONS = 4
"""Of more places the figures and tables are folded."""
_OPEN_FINDINGS = 12


@dataclass(frozen=True)
class _Picture:
    key: str
    title: str
    about: str
    json: Markup


@dataclass(frozen=True)
class _Shown:
    """A section with its figures as the page has them."""

    section: Section
    pictures: tuple[tuple[str, tuple[_Picture, ...], tuple[str, ...]], ...]
    """Title, figures and notes of each kind of workload."""


def to_html(summary: Summary, result: Result) -> str:
    """Return the page."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(_resource("report.html.j2"))
    return template.render(
        summary=summary,
        manifest=summary.manifest,
        shown=[_shown(section, summary, result) for section in summary.sections],
        classic=[_picture(c) for c in summary.comparison.charts] if summary.comparison else [],
        across=[_picture(chart) for chart in summary.across],
        paths=[
            (workload_title(family.kind), family)
            for family in families([p for p in summary.paths if not p.is_baseline])
        ],
        place_name=place_name,
        places=time_by_place(summary.blocks),
        layer_table=layer_table,
        metrics=METRICS,
        unit=unit,
        cell=cell,
        change=change,
        needed=needed,
        smoke=SMOKE,
        seconds=lambda value: f"{value:.1f} s",
        open_sections=_OPEN_SECTIONS,
        open_findings=_OPEN_FINDINGS,
        plotly=Markup(_plotly()),  # noqa: S704 - base64
        script=Markup(_resource("page.js")),  # noqa: S704 - our own
    )


def charts_of(summary: Summary, result: Result) -> tuple[Chart | Surface, ...]:
    """Return every figure of the page, in its order."""
    found: list[Chart | Surface] = list(summary.comparison.charts) if summary.comparison else []
    for section in summary.sections:
        for part in section.parts:
            found += part.charts
        if (curves := _distribution(section, summary, result)) is not None:
            found.append(curves)
    return (*found, *summary.across)


def _resource(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    """Return plotly.js, packed (RFC 1951): two fifths of its size; page.js unpacks it."""
    script = plotly.offline.get_plotlyjs().encode()
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(packer.compress(script) + packer.flush()).decode()


def _shown(section: Section, summary: Summary, result: Result) -> _Shown:
    parts = [
        (part.title, tuple(_picture(chart) for chart in part.charts), part.notes)
        for part in section.parts
    ]
    if (curves := _distribution(section, summary, result)) is not None:
        parts.append(("Single packets", (_picture(curves),), ()))
    return _Shown(section, tuple(parts))


def _picture(chart: Chart | Surface) -> _Picture:
    return _Picture(chart.key, chart.title, chart.about, Markup(to_json(chart)))  # noqa: S704 - escaped


def _distribution(section: Section, summary: Summary, result: Result) -> Chart | None:
    curves = _curves(result, section.link, section.device)
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
        about="share of all packets of valid trials, all sizes, answered within a time",
        x_title="RTT [ms]",
        y_title="share of packets at or below",
        lines=lines,
        steps=True,
    )


def _curves(
    result: Result, link: str, device: str
) -> Mapping[str, tuple[list[float], list[float]]]:
    """Read the RTT of every packet of the valid trials, by tunnel; nothing without samples."""
    rows = set_apart(result.trials(), result.blocks.values()).filter(
        (pl.col("path") == "total")
        & pl.col("valid")
        & (pl.col("link") == link)
        & (pl.col("device") == device)
    )
    found = {}
    for (tunnel,), group in rows.group_by("tunnel", maintain_order=True):
        delays = []
        names = [n for names in group["samples"] for n in names if n.endswith(".send.rec")]
        for name in names[:_MOST_SAMPLE_FILES]:
            try:
                table = read_send(result.samples(name), name)
            except ResultError:
                continue  # removed by hand to save space: the figure then has fewer packets
            back = (table["returned_ns"] != MISSING_NS) & (table["sent_ns"] != MISSING_NS)
            delays.append(table["returned_ns"][back] - table["sent_ns"][back])
        if any(len(delay) for delay in delays):
            found[str(tunnel)] = ecdf(delays)
    return found
