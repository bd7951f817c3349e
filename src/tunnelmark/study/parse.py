"""Text to Study: strict, bounded, and every error names file, line, key, value and limit."""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from tunnelmark.devices.registry import DEVICES, params_type
from tunnelmark.links.registry import link_kinds
from tunnelmark.model import toml
from tunnelmark.model.errors import StudyError
from tunnelmark.model.params import Params
from tunnelmark.model.registry import make
from tunnelmark.model.rules import Limits, Precision, Probes, TopologyParams
from tunnelmark.model.trial import BASELINE, DriverSpec
from tunnelmark.study.background import OWN_KEYS, WORKLOAD_KEYS, accompanied, backgrounds
from tunnelmark.study.drivers import MOST_POINTS, OwnKind, Section, checked_table
from tunnelmark.study.gateway import gateway_refused
from tunnelmark.study.hypotheses import RUN_METRICS, at_scale, hypotheses
from tunnelmark.study.lines import Path, line_index, line_of
from tunnelmark.study.messages import nearest, shown
from tunnelmark.study.recipes import own_kinds
from tunnelmark.study.restarts import no_joins, no_restarts
from tunnelmark.study.scale import FULL, Scaled, names, scaled
from tunnelmark.study.study import PlaceParams, Study
from tunnelmark.study.traces import check_tables
from tunnelmark.tunnels.registry import tunnel_kinds
from tunnelmark.workloads.base import Workload
from tunnelmark.workloads.registry import workload_kinds

FORMAT: Final = 1
LARGEST_FILE_BYTES: Final = 1 << 20
NAME_PATTERN: Final = "^[a-z0-9][a-z0-9-]{0,63}$"
MOST_TEXT_CHARACTERS: Final = 10_000
"""A page of text, for title and description."""
MOST_DEPTH: Final = 8
TOP_KEYS: Final = (
    *("format", "name", "title", "description", "seed", "precision", "validity", "topology"),
    *("probes", "place", "recipe", "trace"),
    *("tunnel", "link", "device", "background", "workload", "hypothesis", "scale"),
)
_P = TypeVar("_P", bound=Params)


def parse_study(text: str, source: str, scale: str = FULL) -> Study:
    """Parse a study; ``source`` is its name in messages, such as ``voip.toml``.

    All its scales are checked, whichever is asked for. Raises ``StudyError`` with one line: file,
    line, key, value and limit.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > LARGEST_FILE_BYTES:
        raise StudyError(f"{source}: has {size} bytes, must be at most {LARGEST_FILE_BYTES}")
    try:
        document = toml.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise StudyError(_syntax(source, text, str(error))) from error
    except RecursionError as error:
        raise StudyError(f"{source}: is nested more than {MOST_DEPTH} deep") from error
    except ValueError as error:  # a number of thousands of digits
        raise StudyError(f"{source}: has a number that is too long") from error
    if _depth(document) > MOST_DEPTH:
        raise StudyError(f"{source}: is nested more than {MOST_DEPTH} deep")
    lines = line_index(text)

    def fail(place: Path, message: str) -> StudyError:
        return StudyError(f"{source}:{line_of(lines, place)}: {message}")

    # The study as it stands first: what is wrong in it is not the fault of a scale.
    found = {
        name: _Parser(source, lines, scaled(document, name, fail)).study(text, name)
        for name in (FULL, *(name for name in names(document) if name != FULL))
    }
    if scale not in found:
        raise fail((), f"the study has no [scale.{scale}], only {', '.join(names(document))}")
    tables = document.get("hypothesis", [])
    claims = hypotheses(tables, found[FULL], fail)
    if scale != FULL:
        claims = at_scale(tables, claims, found[scale])
    return replace(found[scale], hypotheses=claims)


class _Parser:
    def __init__(self, source: str, lines: Mapping[Path, int], scaled_: Scaled) -> None:
        self._source = source
        self._lines = lines
        self._scaled = scaled_
        self._document = scaled_.document
        self._tables: dict[tuple[str, str], int] = {}
        """Number of its table by section and label of what stands there."""

    def study(self, text: str, scale: str) -> Study:
        self._format()
        for key in self._document:
            if key not in TOP_KEYS:
                raise self._error((key,), f"{key} is not a key of a study{nearest(key, TOP_KEYS)}")
        own = own_kinds(self._document, self._error)
        tunnels = self._section(
            "tunnel", {k: c.params_type for k, c in tunnel_kinds().items()}, own=own
        )
        links = self._section(
            "link",
            {k: c.params_type for k, c in link_kinds().items()},
            {
                name: {"kind": kind, **table}
                for kind, link in link_kinds().items()
                for name, table in link.presets.items()
            },
            needed=True,
        )
        check_tables(self._document, self._error)
        devices = self._section("device", {kind: params_type(kind) for kind in DEVICES})
        workloads = self._workloads()
        study = Study(
            name=self._text("name", pattern=NAME_PATTERN),
            title=self._text("title"),
            description=self._text("description", default=""),
            seed=self._seed(),
            precision=self._table("precision", Precision),
            limits=self._table("validity", Limits),
            topology=self._table("topology", TopologyParams),
            probes=self._table("probes", Probes),
            place=self._table("place", PlaceParams),
            tunnels=self._compared(tunnels),
            links=links,
            devices=devices or (DriverSpec("host", "host", {}),),
            workloads=workloads,
            text=text,
            source=self._source,
            scale=scale,
        )
        self._bounded(study)
        self._fits_together(study)
        return study

    def _format(self) -> None:
        """Ask for the format first: keys of another one would only mislead."""
        found = self._document.get("format")
        if found is None:
            raise self._error((), f"format is missing, must be {FORMAT}")
        if isinstance(found, bool) or found != FORMAT:
            raise self._error(("format",), f"format is {shown(found)}, must be {FORMAT}")

    def _section(
        self,
        name: str,
        kinds: Mapping[str, type[Params]],
        presets: Mapping[str, Mapping[str, object]] | None = None,
        *,
        needed: bool = False,
        own: Mapping[str, OwnKind] | None = None,
    ) -> tuple[DriverSpec, ...]:
        tables = self._document.get(name, [])
        if needed and tables == []:
            raise self._error((), f"the study has no [[{name}]]")
        section = Section(name, kinds, presets or {}, self._error, own=own or {})
        return self._noted(name, section.placed(tables))

    def _workloads(self) -> tuple[DriverSpec, ...]:
        kinds = {kind: driver.params_type for kind, driver in workload_kinds().items()}
        beside = backgrounds(
            Section("background", kinds, {}, self._error, OWN_KEYS),
            self._document.get("background", []),
        )
        tables = self._document.get("workload", [])
        if tables == []:
            raise self._error((), "the study has no [[workload]]")
        section = Section("workload", kinds, {}, self._error, WORKLOAD_KEYS)
        return self._noted("workload", accompanied(section, tables, beside))

    def _noted(self, name: str, placed: Iterable[tuple[int, DriverSpec]]) -> tuple[DriverSpec, ...]:
        found = tuple(placed)
        self._tables |= {(name, spec.label): position for position, spec in found}
        return tuple(spec for _, spec in found)

    def _compared(self, tunnels: tuple[DriverSpec, ...]) -> tuple[DriverSpec, ...]:
        """Return the tunnels beside which the baseline is run; where there are none, itself."""
        others = tuple(spec for spec in tunnels if spec.kind != BASELINE)
        bare = [spec for spec in tunnels if spec.kind == BASELINE]
        if others and any(spec.params for spec in bare):
            tables = self._document["tunnel"]
            position = next(i for i, t in enumerate(tables) if t.get("kind") == BASELINE)
            raise self._error(
                ("tunnel", position),
                "tunnel none has parameters, must have none beside other tunnels: it has as many "
                "paths as the tunnel that it is compared with",
            )
        return others or tuple(spec for spec in bare if spec.params)

    def _bounded(self, study: Study) -> None:
        tunnels = max(1, len(study.tunnels))
        blocks = tunnels * len(study.links) * len(study.devices)
        points = blocks * len(study.workloads) * (2 if study.tunnels else 1)
        if points > MOST_POINTS:
            raise self._error(
                (),
                f"the study has {points} points in {blocks} blocks, "
                f"at most {MOST_POINTS} points are allowed",
            )

    def _fits_together(self, study: Study) -> None:
        """Refuse what no trial could do, before anything is made."""
        precision = study.precision
        # Only what an author wrote: the default is for studies with more repeats than it.
        if "bring_ups" in precision.model_fields_set and (
            precision.bring_ups > precision.min_repeats
        ):
            raise self._error(
                ("precision", "bring_ups"),
                f"precision.bring_ups is {precision.bring_ups}, must be at most min_repeats, "
                f"{precision.min_repeats}",
            )
        kinds = {spec.kind for spec in study.workloads}
        for name in study.precision.metrics:
            # A smaller scale may have left the workload out.
            if name not in kinds and study.scale == FULL:
                raise self._error(
                    ("precision", "metrics", name),
                    f"precision.metrics.{name} is not a workload of the study"
                    f"{nearest(name, sorted(kinds))}",
                )
        self._tunnels_fit(study)
        paths = {make(tunnel_kinds(), spec).params.paths for spec in study.tunnels}
        counts = paths | {1}
        for spec in study.workloads:
            kind = workload_kinds()[spec.kind]
            place = self._place("workload", spec)
            metric = study.precision.metric_of(spec.kind)
            if metric not in kind.metrics and metric not in RUN_METRICS:
                own = spec.kind in study.precision.metrics
                key = ("metrics", spec.kind) if own else ("metric",)
                raise self._error(
                    ("precision", *key),
                    f"precision.{'.'.join(key)} is {shown(metric)}, which {spec.kind} does "
                    f"not give; it gives {', '.join(kind.metrics)}",
                )
            workload = make(workload_kinds(), spec)
            if reason := workload.withheld(metric, min(paths, default=1)):
                raise self._error(place, f"workload {spec.label}: {reason}")
            if workload.restarts and (reason := no_restarts(study, spec)):
                raise self._error(place, f"workload {spec.label}: {reason}")
            if (joining := workload.joining) and (reason := no_joins(study, spec, joining)):
                raise self._error(place, f"workload {spec.label}: {reason}")
            self._serves(study, f"workload {spec.label}", workload, place, counts)
            for one in spec.background:
                beside = make(workload_kinds(), DriverSpec(one.kind, one.label, one.params))
                self._serves(study, f"background {one.label}", beside, ("background",), counts)

    def _tunnels_fit(self, study: Study) -> None:
        """Refuse a tunnel on a link that it cannot have."""
        for spec in study.tunnels:
            tunnel = make(tunnel_kinds(), spec)
            if tunnel.params.clients is not None and (reason := gateway_refused(study, tunnel)):
                place = self._place("tunnel", spec)
                raise self._error(place, f"tunnel {spec.label}: {reason}")
            if reason := tunnel.no_carrier():
                place = (*self._place("tunnel", spec), "congestion")
                raise self._error(place, f"tunnel {spec.label}: {reason}")
            for link_spec in study.links:
                link = make(link_kinds(), link_spec)
                if reason := tunnel.unfit(link.spec(study.seed), link.mtu_bytes):
                    raise self._error(
                        self._place("tunnel", spec),
                        f"tunnel {spec.label}: {reason} (link {link_spec.label})",
                    )

    def _serves(
        self, study: Study, name: str, workload: Workload, place: Path, counts: set[int]
    ) -> None:
        """Refuse a load that a link or a number of tunnels cannot have."""
        for spec in study.links:
            link = make(link_kinds(), spec)
            if reason := workload.unfit(link.spec(study.seed), link.mtu_bytes):
                raise self._error(place, f"{name}: {reason} (link {spec.label})")
        for count in sorted(counts):
            if reason := workload.conflict(count):
                raise self._error(place, f"{name}: {reason}")

    def _place(self, section: str, spec: DriverSpec) -> Path:
        return section, self._tables[section, spec.label]

    def _table(self, name: str, kind: type[_P]) -> _P:
        table = self._document.get(name, {})
        if not isinstance(table, dict):
            raise self._error((name,), f"{name} must be written as [{name}]")
        return checked_table(
            table, kind, name, lambda within, message: self._error((name, *within), message)
        )

    def _text(self, key: str, *, pattern: str = "", default: str | None = None) -> str:
        value = self._document.get(key, default)
        if value is None:
            raise self._error((), f"{key} is missing")
        if not isinstance(value, str) or len(value) > MOST_TEXT_CHARACTERS:
            raise self._error(
                (key,),
                f"{key} is {shown(value)}, must be a string of at most {MOST_TEXT_CHARACTERS} "
                "characters",
            )
        if not re.search(pattern, value) or (value.endswith("\n") and pattern):
            raise self._error(
                (key,),
                f"{key} is {shown(value)}, must be 1 to 64 lower-case letters, digits and hyphens",
            )
        return value

    def _seed(self) -> int:
        seed = self._document.get("seed", 1)
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 63:
            raise self._error(("seed",), f"seed is {shown(seed)}, must be 0 to {(1 << 63) - 1}")
        return seed

    def _error(self, place: Path, message: str) -> StudyError:
        line = line_of(self._lines, self._scaled.origin(place))
        return StudyError(f"{self._source}:{line}: {message}")


def _syntax(source: str, text: str, message: str) -> str:
    """Return tomllib's complaint as ours: the line in front, lower case."""
    found = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", message)
    line = int(found[1]) if found and found[1] else len(text.splitlines()) or 1
    words = message[: found.start()] if found else message
    return f"{source}:{line}: {words[:1].lower()}{words[1:].rstrip('.')}"


def _depth(value: object) -> int:
    """Return how deep lists and tables are nested; no deeper than one past the limit is looked."""
    level: Sequence[object] = [value]
    for depth in range(MOST_DEPTH + 2):
        below: list[object] = []
        for part in level:
            if isinstance(part, dict):
                below += part.values()
            elif isinstance(part, list):
                below += part
        if not below:
            return depth
        level = below
    return MOST_DEPTH + 1
