"""The HTML report: one file, works offline, asks nothing of any other place."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

import jinja2
import plotly.offline
import polars as pl
from markupsafe import Markup

from tunnelmark.analysis.delays import ecdf
from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.engine.records import MISSING_NS, read_send
from tunnelmark.model.block import BlockRecord
from tunnelmark.model.errors import ResultError
from tunnelmark.model.metrics import METRICS
from tunnelmark.report.figures import AGAINST_SIZE, against_size, distribution, to_div
from tunnelmark.report.show import change, figure, unit
from tunnelmark.report.summary import Summary
from tunnelmark.store import Result

_TABLE = (
    "goodput_bit_s",
    "loss_forward_ratio",
    "loss_reverse_ratio",
    "rtt_p50_ns",
    "rtt_p99_ns",
    "owd_forward_p50_ns",
    "owd_reverse_p50_ns",
    "cpu_tunnel_ratio",
    "cpu_cost_s_per_gib",
    "overhead_bytes",
)
_MOST_SAMPLE_FILES = 400
"""Record files read for the distributions; more would make a page nobody can open."""


@dataclass(frozen=True)
class _Picture:
    title: str
    about: str
    div: Markup


@dataclass(frozen=True)
class _Section:
    """What belongs to one link and device."""

    title: str
    pictures: tuple[_Picture, ...]
    points: tuple[PointEstimates, ...]


def to_html(summary: Summary, result: Result) -> str:
    """Return the page."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(
        files(__package__).joinpath("report.html.j2").read_text(encoding="utf-8")
    )
    return template.render(
        summary=summary,
        manifest=summary.manifest,
        sections=_sections(summary, result),
        metrics=METRICS,
        table=_TABLE,
        unit=unit,
        figure=figure,
        change=change,
        seconds=lambda value: f"{value:.1f} s",
        plotly=Markup(plotly.offline.get_plotlyjs()),  # noqa: S704 - the library's own script
    )


def _sections(summary: Summary, result: Result) -> list[_Section]:
    sections = []
    places = sorted({(p.link, p.device) for p in summary.points})
    for number, (link, device) in enumerate(places):
        points = tuple(p for p in summary.points if (p.link, p.device) == (link, device))
        fragmentation = _fragmentation(summary.blocks, link)
        order = list(dict.fromkeys(point.tunnel for point in points))
        pictures = []
        for metric in AGAINST_SIZE:
            drawn = against_size(points, metric, fragmentation, order)
            if drawn is None:
                continue
            div = Markup(to_div(drawn, f"f{number}-{metric}"))  # noqa: S704 - plotly escapes labels
            pictures.append(_Picture(METRICS[metric].title, METRICS[metric].definition, div))
        curves = distribution(_curves(result, link, device), order)
        if curves is not None:
            div = Markup(to_div(curves, f"f{number}-ecdf"))  # noqa: S704 - likewise
            about = "share of all packets of valid trials, all sizes, answered within a time"
            pictures.append(_Picture("Distribution of the RTT", about, div))
        title = link if device == "host" else f"{link}, {device}"
        sections.append(_Section(title, tuple(pictures), points))
    return sections


def _fragmentation(blocks: tuple[BlockRecord, ...], link: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for block in blocks:
        if block.link != link:
            continue
        for tunnel, proofs in (("none", block.baseline_proofs), (block.tunnel, block.proofs)):
            if proofs and (point := proofs[0].fragmentation_point_bytes) is not None:
                found[tunnel] = point
    return found


def _curves(
    result: Result, link: str, device: str
) -> Mapping[str, tuple[list[float], list[float]]]:
    """Read the RTT of every packet of the valid trials, by tunnel; nothing without samples."""
    rows = result.trials().filter(
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
        if delays:
            found[str(tunnel)] = ecdf(delays)
    return found
