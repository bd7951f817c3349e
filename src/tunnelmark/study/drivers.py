"""Tables of a study to drivers: presets, lists that vary a parameter, labels."""

import itertools
import json
import math
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from tunnelmark.model.errors import StudyError
from tunnelmark.model.params import Params
from tunnelmark.model.trial import DriverSpec
from tunnelmark.study.lines import Path
from tunnelmark.study.messages import most_telling, nearest, sentence, shown

MOST_POINTS: Final = 100_000
"""No study has more points: at a second a trial they take a day."""

LABEL: Final = re.compile(r"^[A-Za-z0-9][A-Za-z0-9 ._+/()-]{0,63}$")
_LABEL_CHARACTERS: Final = 64

Fail = Callable[[Path, str], StudyError]
"""Makes the error for a place of the document."""

_M = TypeVar("_M", bound=BaseModel)


@dataclass(frozen=True)
class OwnKind:
    """A kind that a study brings along."""

    kind: str
    """Of the driver that carries it out."""
    label: str
    """Of a table that has none."""
    params_type: type[Params]
    carried: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    """What a table sets to what the driver takes."""
    columns: Mapping[str, object]
    """What a result says of it beside the parameters."""


@dataclass(frozen=True)
class Section:
    """What may stand in the tables of one name."""

    name: str
    """``tunnel``, ``link``, ``device`` or ``workload``."""
    kinds: Mapping[str, type[Params]]
    presets: Mapping[str, Mapping[str, object]]
    """Name to parameters with their ``kind``."""
    fail: Fail
    beside: tuple[str, ...] = ()
    """Keys of a table that are not the driver's own."""
    own: Mapping[str, "OwnKind"] = field(default_factory=dict)
    """Kinds that the study itself brings along, by the name that its tables give them."""

    def placed(self, tables: object) -> tuple[tuple[int, DriverSpec], ...]:
        """Return one driver for each choice of what a table varies, and the number of the table.

        Raises ``StudyError`` with place, value and limit.
        """
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise self.fail((self.name,), f"{self.name} must be written as [[{self.name}]]")
        found: dict[str, DriverSpec] = {}
        places: list[int] = []
        same: dict[str, str] = {}
        for position, table in enumerate(tables):
            place: Path = (self.name, position)
            for spec in self._varied(place, table):
                others = [table.get(key) for key in self.beside]
                contents = json.dumps(
                    [spec.kind, spec.columns, others], sort_keys=True, default=str
                )
                if contents in same:
                    raise self.fail(
                        place,
                        f"{self.name} {spec.label} repeats {same[contents]}",
                    )
                if "label" in table and spec.label in found:
                    raise self.fail(
                        (*place, "label"),
                        f"{self.name}.label is {shown(spec.label)}, which is taken",
                    )
                unique = _unique(spec, found)
                same[contents] = unique.label
                found[unique.label] = unique
                places.append(position)
                if len(found) > MOST_POINTS:
                    raise self.fail(
                        place, f"the study has more than {MOST_POINTS} of [[{self.name}]]"
                    )
        return tuple(zip(places, found.values(), strict=True))

    def _varied(self, place: Path, table: Mapping[str, Any]) -> Iterator[DriverSpec]:
        label = self._given_label(place, table)
        kind, preset, values = self._kind(place, table)
        own = self.own.get(kind)
        params_type = own.params_type if own else self.kinds[kind]
        lists = [key for key in values if self._is_varied(place, params_type, key, values[key])]
        count = math.prod(len(values[key]) for key in lists)
        if count > MOST_POINTS:
            raise self.fail(
                place, f"{self.name} varies over {count} points, at most {MOST_POINTS} are allowed"
            )
        for choice in itertools.product(*(range(len(values[key])) for key in lists)):
            at = dict(zip(lists, choice, strict=True))
            params = {key: value[at[key]] if key in at else value for key, value in values.items()}
            checked = checked_table(params, params_type, self.name, self._fail_in(place, at))
            name = label or preset or (own.label if own else kind)
            parts = [_slug(params[key]) for key in (lists if label or preset else params)]
            if self.name in ("workload", "background"):
                parts = [_slug(params[key]) for key in lists]
            text = (" " if self.name in ("workload", "background") else "-").join([name, *parts])
            text = text[:_LABEL_CHARACTERS]
            if own:
                columns = {**own.columns, **checked.columns()}
                yield DriverSpec(own.kind, text, dict(own.carried(params)), columns)
            else:
                yield DriverSpec(kind, text, params, checked.columns())

    def _kind(
        self, place: Path, table: Mapping[str, Any]
    ) -> tuple[str, str | None, dict[str, Any]]:
        """Return kind, name of the preset if one was used, and the parameters."""
        others = ("label", "preset", *self.beside)
        values = {key: value for key, value in table.items() if key not in others}
        preset = table.get("preset")
        if "preset" in table and self.presets:
            if "kind" in table:
                raise self.fail(
                    (*place, "kind"),
                    f"{self.name} has both preset and kind; a preset sets the kind",
                )
            if not isinstance(preset, str) or preset not in self.presets:
                raise self.fail(
                    (*place, "preset"),
                    f"{self.name}.preset is {shown(preset)}, must be one of "
                    f"{', '.join(self.presets)}{_hint(preset, self.presets)}",
                )
            values = {**self.presets[preset], **values}
        elif "preset" in table:
            raise self.fail((*place, "preset"), f"{self.name} has no presets")
        if "kind" not in values:
            wanted = "kind or preset" if self.presets else "kind"
            raise self.fail(place, f"{self.name} has no {wanted}; known: {', '.join(self.kinds)}")
        kind = values.pop("kind")
        if not isinstance(kind, str) or kind not in (*self.kinds, *self.own):
            raise self.fail(
                (*place, "kind"),
                f"{self.name}.kind is {shown(kind)}, must be one of "
                f"{', '.join(self.kinds)}{_hint(kind, self.kinds)}",
            )
        return kind, preset, values

    def _given_label(self, place: Path, table: Mapping[str, Any]) -> str | None:
        label = table.get("label")
        if "label" in table and not (isinstance(label, str) and LABEL.match(label)):
            raise self.fail(
                (*place, "label"),
                f"{self.name}.label is {shown(label)}, must be 1 to {_LABEL_CHARACTERS} letters, "
                "digits, spaces or ._+/()-, a letter or digit first",
            )
        return label

    def _is_varied(self, place: Path, params_type: type[Params], key: str, value: object) -> bool:
        """Say whether a value is a list of choices; refuse one that is empty or repeats itself."""
        if not isinstance(value, list) or key not in params_type.model_fields:
            return False
        if takes_list(params_type.model_fields[key].annotation):
            if not value or not all(isinstance(part, list) for part in value):
                return False
        elif not value:
            raise self.fail(
                (*place, key), f"{self.name}.{key} is an empty list, must have at least one value"
            )
        known: set[tuple[type[object], str]] = set()
        for position, part in enumerate(value):
            before = len(known)
            known.add((type(part), json.dumps(part, sort_keys=True, default=str)))
            if len(known) == before:
                raise self.fail(
                    (*place, key, position), f"{self.name}.{key} has {shown(part)} more than once"
                )
        return True

    def _fail_in(self, place: Path, at: Mapping[str, int]) -> Fail:
        """Return a ``Fail`` that knows which element of a list was chosen."""

        def fail(within: Path, message: str) -> StudyError:
            if within and within[0] in at:
                within = (within[0], at[str(within[0])], *within[1:])
            return self.fail((*place, *within), message)

        return fail


def checked_table(values: Mapping[str, Any], kind: type[_M], section: str, fail: Fail) -> _M:
    """Return a table as its frozen type; nothing is converted but quantities with a unit."""
    for key, value in values.items():
        if (wrong := _not_json(value)) is not None:
            raise fail((key,), f"{section}.{key} is {shown(wrong)}, must be a single value")
    try:
        # As JSON and strict: TOML has types, so "5" is not a number and true is not 1.
        return kind.model_validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        place, message = sentence(most_telling(errors), section, kind)
        raise fail(place, message) from error


def takes_list(annotation: Any) -> bool:
    """Say whether a field of this type is itself written as a list."""
    origin = get_origin(annotation)
    if origin in (list, tuple, set, frozenset) or annotation in (list, tuple):
        return True
    if origin in (typing.Union, types.UnionType, typing.Annotated):
        return any(takes_list(part) for part in get_args(annotation))
    return False


def _not_json(value: object) -> object | None:
    """Return the first part of a value that a study cannot use: a date, an infinity."""
    if isinstance(value, list):
        return next((w for part in value if (w := _not_json(part)) is not None), None)
    if isinstance(value, dict):
        return next((w for part in value.values() if (w := _not_json(part)) is not None), None)
    if isinstance(value, float) and not math.isfinite(value):
        return value
    return None if isinstance(value, str | int | float | bool) else value


def _slug(value: object) -> str:
    """Return a value as part of a label."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value) if isinstance(value, str | int | float) else shown(value)
    return re.sub(r"[^a-z0-9._+/-]", "", text.lower())


def _unique(spec: DriverSpec, taken: Mapping[str, object]) -> DriverSpec:
    label, number = spec.label, 1
    while label in taken:
        number += 1
        label = f"{spec.label[: _LABEL_CHARACTERS - 6]}-{number}"
    return DriverSpec(spec.kind, label, spec.params, spec.columns)


def _hint(value: object, known: Mapping[str, object]) -> str:
    hint = nearest(str(value), known)
    return hint if hint.startswith(", did") else ""
