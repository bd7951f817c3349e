"""Text to Study: strict, bounded, and every error names file, line, key, value and limit."""

import difflib
import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar, get_args, get_origin

from pydantic import ValidationError

from tunnelmark.devices.registry import DEVICES, DeviceParams
from tunnelmark.links.registry import link_kinds
from tunnelmark.model.errors import StudyError
from tunnelmark.model.params import Params
from tunnelmark.model.trial import BASELINE, DriverSpec
from tunnelmark.study.lines import Path, line_index, line_of
from tunnelmark.study.study import Limits, Precision, Study
from tunnelmark.tunnels.registry import tunnel_kinds
from tunnelmark.workloads.registry import workload_kinds

FORMAT: Final = 1
LARGEST_FILE_BYTES: Final = 1 << 20
MOST_POINTS: Final = 10_000
_MOST_DEPTH: Final = 8
_NAME: Final = re.compile(r"^[a-z0-9][a-z0-9-]{0,63}$")
_LABEL: Final = re.compile(r"^[A-Za-z0-9][A-Za-z0-9 ._+/()-]{0,63}$")
_TOP: Final = (
    *("format", "name", "title", "description", "seed", "precision", "validity"),
    *("tunnel", "link", "device", "workload"),
)
_P = TypeVar("_P", bound=Params)


def parse_study(text: str, source: str) -> Study:
    """Parse a study; ``source`` is its name in messages, such as ``voip.toml``."""
    if len(text.encode()) > LARGEST_FILE_BYTES:
        raise StudyError(f"{source}: is longer than {LARGEST_FILE_BYTES} byte")
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        what = re.sub(r" \(at .*\)$", "", str(error))
        raise StudyError(f"{source}:{line.group(1) if line else 1}: {_lower(what)}") from error
    except RecursionError as error:
        raise StudyError(f"{source}: is nested too deeply") from error
    return _Parser(source, line_index(text)).study(document, text)


class _Parser:
    def __init__(self, source: str, lines: Mapping[Path, int]) -> None:
        self._source = source
        self._lines = lines

    def study(self, document: Mapping[str, Any], text: str) -> Study:
        self._bounded(document)
        self._only(document, _TOP, ())
        if document.get("format") != FORMAT:
            raise self._error(
                ("format",), f"format is {document.get('format')!r}, must be {FORMAT}"
            )
        tunnels = self._drivers(
            document, "tunnel", {k: c.params_type for k, c in tunnel_kinds().items()}
        )
        links = self._drivers(
            document, "link", {k: c.params_type for k, c in link_kinds().items()}, need=True
        )
        workloads = self._drivers(
            document, "workload", {k: c.params_type for k, c in workload_kinds().items()}, need=True
        )
        devices = self._drivers(document, "device", dict.fromkeys(DEVICES, DeviceParams))
        devices = devices or (DriverSpec("host", "host", {}),)
        points = (len(tunnels) + 1) * len(links) * len(devices) * len(workloads)
        if points > MOST_POINTS:
            raise self._error(
                (), f"the study has {points} points, at most {MOST_POINTS} are allowed"
            )
        return Study(
            name=self._text(document, "name", _NAME, "a name such as branch-office"),
            title=self._text(document, "title"),
            description=self._text(document, "description", default=""),
            seed=self._seed(document),
            precision=self._table(document, "precision", Precision),
            limits=self._table(document, "validity", Limits),
            tunnels=tuple(t for t in tunnels if t.kind != BASELINE),
            links=links,
            devices=devices,
            workloads=workloads,
            text=text,
            source=self._source,
        )

    def _drivers(
        self,
        document: Mapping[str, Any],
        section: str,
        kinds: Mapping[str, type[Params]],
        *,
        need: bool = False,
    ) -> tuple[DriverSpec, ...]:
        tables = document.get(section, [])
        if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
            raise self._error((section,), f"{section} must be written as [[{section}]]")
        if need and not tables:
            raise self._error((), f"the study has no [[{section}]]")
        found = [
            spec
            for position, table in enumerate(tables)
            for spec in self._driver(section, position, table, kinds)
        ]
        labels: dict[str, int] = {}
        for spec in found:
            labels[spec.label] = labels.get(spec.label, 0) + 1
        if doubled := [label for label, count in labels.items() if count > 1]:
            raise self._error(
                (section,), f"two [[{section}]] are both labelled {doubled[0]!r}; give them a label"
            )
        return tuple(found)

    def _driver(
        self,
        section: str,
        position: int,
        table: Mapping[str, Any],
        kinds: Mapping[str, type[Params]],
    ) -> Iterator[DriverSpec]:
        place: Path = (section, position)
        values = dict(table)
        label = values.pop("label", None)
        if label is not None and (not isinstance(label, str) or not _LABEL.match(label)):
            raise self._error(
                (*place, "label"), f"{section}.label is {label!r}, must be 1 to 64 plain characters"
            )
        if section == "link" and "preset" in values:
            values = self._preset(place, values)
        kind = values.pop("kind", None)
        if kind not in kinds:
            near = difflib.get_close_matches(str(kind), kinds, 1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise self._error(
                (*place, "kind"),
                f"{section}.kind is {kind!r}, must be one of {', '.join(sorted(kinds))}{hint}",
            )
        params_type = kinds[kind]
        varied = [key for key, value in values.items() if isinstance(value, list)]
        for key in varied:
            if not values[key] or _takes_list(params_type, key):
                raise self._error(
                    (*place, key), f"{section}.{key} is an empty list, must have a value"
                )
        choices = itertools.product(*(values[key] for key in varied))
        for number, choice in enumerate(choices):
            if number >= MOST_POINTS:
                raise self._error(place, f"{section} varies over more than {MOST_POINTS} points")
            params = {**values, **dict(zip(varied, choice, strict=True))}
            self._validated(params_type, params, place, section)
            yield DriverSpec(
                kind, self._label(section, kind, label, params, varied, params_type), params
            )

    def _label(  # noqa: PLR0917 - all of one kind
        self,
        section: str,
        kind: str,
        label: str | None,
        params: Mapping[str, Any],
        varied: Sequence[str],
        params_type: type[Params],
    ) -> str:
        shown = [key for key in params_type.model_fields if key in params]
        if section == "workload" or label is not None:
            shown = list(varied)
        parts = [str(params[key]).lower().replace(" ", "") for key in shown]
        return (
            " ".join([label or kind, *parts])
            if section == "workload"
            else "-".join([label or kind, *parts])
        )

    def _preset(self, place: Path, values: dict[str, Any]) -> dict[str, Any]:
        name = values.pop("preset")
        presets = {
            preset: {"kind": kind, **table}
            for kind, link in link_kinds().items()
            for preset, table in link.presets.items()
        }
        if name not in presets:
            raise self._error(
                (*place, "preset"),
                f"link.preset is {name!r}, must be one of {', '.join(sorted(presets))}",
            )
        if "kind" in values:
            raise self._error(
                (*place, "kind"), "link has both preset and kind, a preset has its own kind"
            )
        return {**presets[name], **values}

    def _table(self, document: Mapping[str, Any], section: str, kind: type[_P]) -> _P:
        table = document.get(section, {})
        if not isinstance(table, dict):
            raise self._error((section,), f"{section} must be written as [{section}]")
        return self._validated(kind, table, (section,), section)

    def _validated(
        self, kind: type[_P], values: Mapping[str, Any], place: Path, section: str
    ) -> _P:
        try:
            return kind.model_validate(dict(values))
        except ValidationError as error:
            # A key that is not known is the cause where another is missing.
            found = error.errors(include_url=False)
            first = next((e for e in found if e["type"] == "extra_forbidden"), found[0])
            key = str(first["loc"][0]) if first["loc"] else ""
            raise self._error(
                (*place, key) if key else place, _sentence(first, section, key, kind, values)
            ) from error

    def _text(
        self,
        document: Mapping[str, Any],
        key: str,
        pattern: re.Pattern[str] | None = None,
        what: str = "a text",
        default: str | None = None,
    ) -> str:
        value = document.get(key, default)
        if not isinstance(value, str) or len(value) > 10_000:  # noqa: PLR2004 - a page of text
            raise self._error((key,), f"{key} is {value!r}, must be {what}")
        if pattern is not None and not pattern.match(value):
            raise self._error((key,), f"{key} is {value!r}, must be {what}")
        return value

    def _seed(self, document: Mapping[str, Any]) -> int:
        seed = document.get("seed", 1)
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 63:
            raise self._error(("seed",), f"seed is {seed!r}, must be 0 to 2^63 - 1")
        return seed

    def _only(self, table: Mapping[str, Any], known: Sequence[str], place: Path) -> None:
        for key in table:
            if key not in known:
                raise self._error((*place, key), f"{key} is no key of a study{_near(key, known)}")

    def _bounded(self, value: object, depth: int = 0) -> None:
        if depth > _MOST_DEPTH:
            raise StudyError(f"{self._source}: is nested more than {_MOST_DEPTH} deep")
        if isinstance(value, dict):
            for inner in value.values():
                self._bounded(inner, depth + 1)
        elif isinstance(value, list):
            for inner in value:
                self._bounded(inner, depth + 1)

    def _error(self, place: Path, message: str) -> StudyError:
        return StudyError(f"{self._source}:{line_of(self._lines, place)}: {message}")


def _sentence(
    first: Any, section: str, key: str, kind: type[Params], values: Mapping[str, Any]
) -> str:
    if first["type"] == "extra_forbidden":
        return f"{section}.{key} is no key of this {section}{_near(key, list(kind.model_fields))}"
    if first["type"] == "missing":
        return f"{section}.{key} is missing"
    message = str(first["msg"]).removeprefix("Value error, ")
    if not key:
        return f"{section} {message}"
    message = message.replace("Input should be", "must be")
    joint = ", which " if message.startswith(("is ", "has ")) else ", "
    return f"{section}.{key} is {values.get(key)!r}{joint}{_lower(message)}"


def _near(key: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(key, known, 1)
    return f" (did you mean {near[0]!r}?)" if near else f"; known are {', '.join(known)}"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:].rstrip(".")


def _takes_list(kind: type[Params], key: str) -> bool:
    field = kind.model_fields.get(key)
    if field is None:
        return False
    kinds = (field.annotation, *get_args(field.annotation))
    return any(get_origin(k) in (list, tuple) or k in (list, tuple) for k in kinds)
