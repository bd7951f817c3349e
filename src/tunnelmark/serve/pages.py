"""What the server shows: templates filled from results, with the report's own pieces."""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, Final
from urllib.parse import quote, urlencode

import jinja2
import polars as pl
from markupsafe import Markup

from tunnelmark.analysis.compare import compare, headline_metrics
from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.analysis.strata import set_apart
from tunnelmark.analysis.units import unit
from tunnelmark.model.errors import ResultError
from tunnelmark.model.metrics import METRICS
from tunnelmark.report import plotly
from tunnelmark.report.compared import HEADS, row, run_of
from tunnelmark.report.html import environment, resource, shown, to_html
from tunnelmark.report.sections import place_name, sections
from tunnelmark.report.show import digits, shown_duration
from tunnelmark.report.summary import Summary
from tunnelmark.report.verdicts import deciding_of
from tunnelmark.serve.library import Library
from tunnelmark.serve.runs import Runner
from tunnelmark.study import list_studies, scales_of

PLOTLY_SRC: Final = f"/static/{plotly.FILE_NAME}"
_MOST_POINTS: Final = 200
_MOST_PICTURES: Final = 12
_MOST_CHANGES: Final = 500
_PAGE: Final = 100
"""Trials on a page."""
_TEMPLATES: Final = (
    *("page", "index", "points", "trials", "trial", "compare", "run", "run_part"),
    *("progress", "progress_part", "error"),
)

Query = Mapping[str, str]


class Pages:
    """Each method returns one page as HTML, or raises ``TunnelmarkError``."""

    def __init__(self, library: Library, runner: Runner | None) -> None:
        """Take what is shown; ``runner`` is None where nothing may be run."""
        self._library = library
        self._runner = runner
        self._reports: dict[str, tuple[Summary, str]] = {}
        """The page that was made last, with the summary that it is of."""
        own = jinja2.DictLoader({f"{name}.html.j2": _file(name) for name in _TEMPLATES})
        self._templates = environment(own)
        self._templates.globals |= {
            "serve_style": Markup(_read("serve.css")),  # noqa: S704 - our own
            "allow_runs": runner is not None,
            "duration": shown_duration,
        }

    def index(self) -> str:
        """List the results."""
        entries = self._library.entries()
        found = [(one.manifest.study, one.name) for one in entries if one.manifest is not None]
        # The newest against the one before it of the same study: others cannot be compared.
        earlier = [name for study, name in found[1:] if study == found[0][0]]
        return self._render(
            "index",
            "Results",
            folder=str(self._library.folder),
            entries=entries,
            picked={"a": earlier[:1], "b": [name for _, name in found[:1]]},
        )

    def report(self, name: str) -> str:
        """Return the report of a result, as ``tunnelmark report`` makes it."""
        result, summary = self._library.summary(name)
        made = self._reports.get(name)
        if made is None or made[0] is not summary:
            links = [("Results", "/"), *_links(name)]
            made = (summary, to_html(summary, result, plotly_src=PLOTLY_SRC, links=links))
            self._reports = {name: made}
        return made[1]

    def points(self, name: str, query: Query) -> str:
        """Return the points of a result that a query asks for, drawn and as tables."""
        result, points = self._library.points(name)
        sides = ("tunnel", "link", "device", "workload_kind")
        chosen = {side: query.get(side, "") for side in sides}
        text = query.get("text", "")[:100]
        found = [
            point
            for point in points
            if all(not value or getattr(point, side) == value for side, value in chosen.items())
            and text.casefold() in point.workload.casefold()
        ]
        drawn = sections(found[:_MOST_POINTS], tuple(result.blocks.values()), deciding_of(result))
        return self._render(
            "points",
            f"Points of {result.manifest.title}",
            links=[("Report", _address(name)), *_links(name)],
            choices=[(side, side.partition("_")[0], _values(points, side)) for side in sides],
            chosen={**chosen, "text": text},
            count=len(found),
            of=len(points),
            most=_MOST_POINTS,
            most_pictures=_MOST_PICTURES,
            shown=[shown(section) for section in drawn],
            plotly_src=PLOTLY_SRC,
            script=Markup(resource("page.js")),  # noqa: S704 - our own
        )

    def trials(self, name: str, query: Query) -> str:
        """List the trials of a result, valid or not, a page at a time."""
        result = self._library.open(name)
        metric = result.manifest.precision_metric
        trials = _total(result.trials(), result.blocks.values())
        tunnels = sorted(set(trials["tunnel"]))
        chosen = {side: query.get(side, "") for side in ("valid", "tunnel")}
        if chosen["valid"] in {"yes", "no"}:
            trials = trials.filter(pl.col("valid") == (chosen["valid"] == "yes"))
        if chosen["tunnel"]:
            trials = trials.filter(pl.col("tunnel") == chosen["tunnel"])
        pages = max(1, -(-trials.height // _PAGE))
        page = min(pages, _number(query.get("page", "1")))

        def turned(to: int) -> str:
            kept = {side: value for side, value in chosen.items() if value}
            return f"?{urlencode({**kept, 'page': to})}" if 1 <= to <= pages else ""

        rows = trials.slice((page - 1) * _PAGE, _PAGE).iter_rows(named=True)
        return self._render(
            "trials",
            f"Trials of {result.manifest.title}",
            links=[("Report", _address(name)), *_links(name)],
            chosen=chosen,
            tunnels=tunnels,
            count=trials.height,
            page=page,
            pages=pages,
            earlier=turned(page - 1),
            later=turned(page + 1),
            metric_title=METRICS[metric].title if metric in METRICS else metric,
            rows=[_row(name, one, metric) for one in rows],
        )

    def trial(self, name: str, query: Query) -> str:
        """Return everything that is known of one attempt, and why it does not count if so."""
        result = self._library.open(name)
        trials = _total(result.trials(), result.blocks.values())
        wanted = (pl.col("trial_id") == query.get("id", "")) & (
            pl.col("attempt") == _number(query.get("attempt", "1"))
        )
        found = trials.filter(wanted)
        if found.is_empty():
            raise ResultError("there is no such trial in this result")
        one = found.row(0, named=True)
        figures = [(m, _figure(m, one[m])) for m in METRICS if one.get(m) is not None]
        facts = [
            ("trial", one["trial_id"]),
            ("place", place_name(one["link"], one["device"])),
            ("started", one["started_at"].isoformat(sep=" ", timespec="seconds")),
            ("duration", f"{one['duration_s']:.2f} s"),
            ("repeat, bring-up, attempt", f"{one['repeat']}, {one['bring_up']}, {one['attempt']}"),
            ("workload's parameters", _flat(one["params"])),
            ("details", _flat(one["details"])),
            ("records", ", ".join(one["samples"] or ()) or "none"),
        ]
        return self._render(
            "trial",
            f"{one['tunnel']}, {one['workload']}, repeat {one['repeat']}",
            links=[("Report", _address(name)), *_links(name)],
            valid=one["valid"],
            reasons=one["reasons"],
            checks=_checks(one["checks"]),
            figures=figures,
            facts=facts,
        )

    def compared(self, query: Query) -> str:
        """Set two results beside each other."""
        a, b = query.get("a", ""), query.get("b", "")
        if not a or not b:
            raise ResultError("choose two results, A and B")
        first, second = self._library.open(a), self._library.open(b)
        one, other = run_of(first), run_of(second)
        every, to_baseline = query.get("all") == "yes", query.get("baseline") == "yes"
        found = compare(
            one,
            other,
            headline_metrics(one.trials, other.trials),
            confidence=max(first.manifest.confidence, second.manifest.confidence),
            to_baseline=to_baseline,
        )
        changes = [change for change in found.changes if every or change.clear]
        return self._render(
            "compare",
            "Comparison of two results",
            a=a,
            b=b,
            every=every,
            to_baseline=to_baseline,
            found=found,
            heads=HEADS,
            rows=[(row(change), change.clear) for change in changes[:_MOST_CHANGES]],
            left_out=max(0, len(changes) - _MOST_CHANGES),
        )

    def progress(self, name: str, *, part: bool = False) -> str:
        """Say how far a run has come, by its records; ``part`` is what changes."""
        seen = self._library.seen(name)
        if part:
            return self._templates.get_template("progress_part.html.j2").render(seen=seen)
        links = [("Report", _address(name)), *_links(name)]
        address = f"{_address(name)}/progress/part"
        return self._render("progress", f"Progress of {name}", links=links, seen=seen, part=address)

    def run(self, *, error: str = "", part: bool = False) -> str:
        """Say how far the run of this server is; start another one."""
        if self._runner is None:
            raise ResultError("there is no run page on this server: start it with --allow-runs")
        progress = self._runner.progress()
        if part:
            return self._templates.get_template("run_part.html.j2").render(progress=progress)
        return self._render(
            "run",
            "Run",
            error=error,
            progress=progress,
            studies=[(name, scales_of(name)) for name in list_studies()],
            folder=str(self._library.folder),
        )

    def error(self, title: str, message: str) -> str:
        """Say what went wrong, in one line."""
        return self._render("error", title, message=message)

    def _render(self, template: str, title: str, **values: Any) -> str:
        links: Sequence[tuple[str, str]] = values.pop("links", ())
        found = self._templates.get_template(f"{template}.html.j2")
        return found.render(title=title, links=links, **values)


def _address(name: str) -> str:
    return f"/results/{quote(name, safe='')}"


def _links(name: str) -> list[tuple[str, str]]:
    parts = ("Points", "points"), ("Trials", "trials"), ("Progress", "progress")
    return [(text, f"{_address(name)}/{part}") for text, part in parts]


def _values(points: Sequence[PointEstimates], side: str) -> list[str]:
    return list(dict.fromkeys(getattr(point, side) for point in points))


def _total(trials: pl.DataFrame, blocks: Any) -> pl.DataFrame:
    return set_apart(trials, blocks).filter(pl.col("path") == "total")


def _number(text: str) -> int:
    """Return a number of a query; 1 for what is none."""
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) <= 6 else 1  # noqa: PLR2004


def _row(name: str, one: Mapping[str, Any], metric: str) -> Mapping[str, Any]:
    query = urlencode({"id": one["trial_id"], "attempt": one["attempt"]})
    return {
        **{key: one[key] for key in ("tunnel", "workload", "repeat", "bring_up", "attempt")},
        "address": f"{_address(name)}/trial?{query}",
        "place": place_name(one["link"], one["device"]),
        "started": one["started_at"].strftime("%H:%M:%S"),
        "figure": _figure(metric, one.get(metric)),
        "valid": one["valid"],
        "reasons": one["reasons"] or (),
    }


def _figure(metric: str, value: float | None) -> str:
    if value is None:
        return "-"
    if metric not in METRICS:
        return f"{value:g}"
    shown_as = unit(metric)
    value *= shown_as.factor
    return f"{value:.{digits(value, None)}f} {shown_as.name}".rstrip()


def _checks(text: str) -> list[Mapping[str, Any]]:
    """Return the checks of an attempt; what is not a list of checks is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    names = {"name", "ok", "message"}
    return [one for one in found if isinstance(one, dict) and names <= one.keys()]


def _flat(text: str | None) -> str:
    """Return ``name: value; …`` of a JSON object."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return text or ""
    if not isinstance(found, dict):
        return str(found)
    return "; ".join(f"{key}: {value}" for key, value in found.items()) or "none"


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _file(template: str) -> str:
    return _read(f"templates/{template}.html.j2")
