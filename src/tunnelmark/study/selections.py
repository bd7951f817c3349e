"""Which points of a study a hypothesis means."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Annotated, Any, Final

from pydantic import TypeAdapter, ValidationError

from tunnelmark.model.errors import StudyError
from tunnelmark.model.hypothesis import Range, Selection, param_fits
from tunnelmark.model.params import Params, units
from tunnelmark.model.trial import Point
from tunnelmark.study.drivers import Fail
from tunnelmark.study.messages import nearest, shown
from tunnelmark.study.points import blocks
from tunnelmark.study.study import Study
from tunnelmark.workloads.registry import workload_kinds

AXES: Final = ("tunnel", "link", "device", "workload")
_RANGE: Final = frozenset({"from", "to"})


@dataclass(frozen=True)
class _Parameter:
    column: str
    parse: Callable[[object], object]


class Points:
    """All points of a study, baselines included, and the parameters of their workloads."""

    def __init__(self, study: Study) -> None:
        """Take the study; its hypotheses are not looked at."""
        self._study = study
        self._points = [point for block in blocks(study) for point in block.points]

    def selection(self, table: Mapping[str, Any], fail: Fail) -> Selection:
        """Return what a table such as ``{tunnel = "wireguard", payload_bytes = 64}`` means.

        Raises what ``fail`` makes if it means no point, or names what the study does not have.
        """
        labels: dict[str, tuple[str, ...]] = {}
        params: dict[str, tuple[object, ...] | Range] = {}
        for key, value in table.items():
            if key in AXES:
                labels[key] = self._labels(key, value, fail)
            elif key in self._parameters:
                column, wanted = self._meant(key, value, fail)
                params[column] = wanted
            else:
                known = [*AXES, *self._parameters]
                raise fail((key,), f"{key} is not part of a point{nearest(key, known)}")
        found = Selection(labels, params)
        if not self.any(found):
            raise fail((), "the study has no such point")
        return found

    def any(self, *selections: Selection) -> bool:
        """Say whether a point is in all selections."""
        return any(True for _ in self._chosen(*selections))

    def workload_kinds(self, *selections: Selection) -> frozenset[str]:
        """Return the kinds of the workloads that are in all selections."""
        return frozenset(point.workload.kind for point in self._chosen(*selections))

    def column(self, name: str) -> str | None:
        """Return the column of a parameter that the study varies and that is a number."""
        return next((p.column for p in self._parameters.get(name, ()) if self._varies(p)), None)

    def numeric(self) -> tuple[str, ...]:
        """Return the parameters that have two or more numbers in this study."""
        return tuple(name for name in self._parameters if self.column(name) is not None)

    def _varies(self, parameter: _Parameter) -> bool:
        return len({v for v in self._values(parameter.column) if _is_number(v)}) > 1

    def value(self, name: str, given: object, fail: Callable[[str], Exception]) -> object:
        """Return a value of a parameter that varies in the unit of its column."""
        varied = sorted(self._parameters[name], key=lambda one: not self._varies(one))
        return self._parsed(varied[0], given, fail)

    def _parsed(
        self, parameter: _Parameter, given: object, fail: Callable[[str], Exception]
    ) -> object:
        try:
            return parameter.parse(given)
        except ValidationError as error:
            text = str(error.errors(include_url=False)[0]["msg"]).removeprefix("Value error, ")
            raise fail(f"is {shown(given)}, {text[:1].lower()}{text[1:]}") from None

    def _chosen(self, *selections: Selection) -> Iterator[Point]:
        for point in self._points:
            if all(means(selection, point) for selection in selections):
                yield point

    def _labels(self, axis: str, value: object, fail: Fail) -> tuple[str, ...]:
        """Return the labels that are meant: by label, else by kind, else by ``*``."""
        patterns = value if isinstance(value, list) else [value]
        kinds = self._kinds[axis]
        found: dict[str, None] = {}
        for pattern in patterns:
            if not isinstance(pattern, str):
                raise fail((axis,), f"{axis} is {shown(pattern)}, must be a label or a kind")
            if pattern in kinds:
                meant = [pattern]
            elif pattern in kinds.values():
                meant = [label for label, kind in kinds.items() if kind == pattern]
            else:
                meant = [label for label in kinds if fnmatchcase(label, pattern)]
            if not meant:
                raise fail(
                    (axis,),
                    f"{axis} is {shown(pattern)}, which the study does not have"
                    f"{nearest(pattern, kinds)}",
                )
            found |= dict.fromkeys(meant)
        if not patterns:
            raise fail((axis,), f"{axis} is an empty list, must have at least one value")
        return tuple(found)

    def _meant(self, key: str, value: object, fail: Fail) -> tuple[str, tuple[object, ...] | Range]:
        """Return the column that a parameter means, and what is wanted of it.

        Workloads of two kinds may have one of that name, each its own: that is meant which has such
        a value.
        """
        problems: list[StudyError] = []
        for parameter in self._parameters[key]:
            try:
                return parameter.column, self._wanted(parameter, key, value, fail)
            except StudyError as problem:
                problems.append(problem)
        raise problems[0]

    def _wanted(
        self, parameter: _Parameter, key: str, value: object, fail: Fail
    ) -> tuple[object, ...] | Range:
        parse: Callable[[object], object] = lambda given: self._parsed(  # noqa: E731 - said once
            parameter, given, lambda message: fail((key,), f"{key} {message}")
        )
        have = self._values(parameter.column)
        if isinstance(value, dict):
            if not value or not value.keys() <= _RANGE:
                raise fail((key,), f"{key} is {shown(value)}, must be a value or {{from, to}}")
            ends = {name: parse(given) for name, given in value.items()}
            numbers = {name: float(v) for name, v in ends.items() if isinstance(v, int | float)}
            if len(numbers) < len(ends):
                raise fail((key,), f"{key} is {shown(value)}, must be from one number to another")
            wanted: tuple[object, ...] | Range = Range(numbers.get("from"), numbers.get("to"))
            if not any(param_fits(v, wanted) for v in have):
                raise fail(
                    (key,), f"{key} is {shown(value)}, a range in which the study has no value"
                )
            return wanted
        values = tuple(parse(v) for v in (value if isinstance(value, list) else [value]))
        for given in values:
            if not any(param_fits(v, (given,)) for v in have):
                raise fail(
                    (key,), f"{key} is {shown(value)}, a value that no workload of the study has"
                )
        if not values:
            raise fail((key,), f"{key} is an empty list, must have at least one value")
        return values

    def _values(self, column: str) -> list[Any]:
        return [point.workload.columns.get(column) for point in self._points]

    @cached_property
    def _kinds(self) -> Mapping[str, Mapping[str, str]]:
        """Labels to kinds, by axis, in the order of the study."""
        return {
            axis: {getattr(p, axis).label: getattr(p, axis).kind for p in self._points}
            for axis in AXES
        }

    @cached_property
    def _parameters(self) -> Mapping[str, Sequence[_Parameter]]:
        """Return the plain parameters of the study's workloads by the name in the file.

        Of each kind of workload that has one of that name.
        """
        found: dict[str, list[_Parameter]] = {}
        for kind in dict.fromkeys(spec.kind for spec in self._study.workloads):
            params = workload_kinds()[kind].params_type
            for name, unit in units(params).items():
                suffix = f"_{unit}"
                column = name if unit is None or name.endswith(suffix) else name + suffix
                if any(column in spec.columns for spec in self._study.workloads):
                    own = _Parameter(column, _parser(params, name))
                    found.setdefault(name, []).append(own)
        return found


def means(selection: Selection, point: Point) -> bool:
    """Say whether a selection means a point."""
    for axis, labels in selection.labels.items():
        if getattr(point, axis).label not in labels:
            return False
    columns = point.workload.columns
    return all(param_fits(columns.get(key), want) for key, want in selection.params.items())


def _parser(params: type[Params], name: str) -> Callable[[object], object]:
    field = params.model_fields[name]
    # mypy cannot know what a field is made of at run time.
    kind: Any = (
        Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
    )
    adapter: TypeAdapter[object] = TypeAdapter(kind)
    return lambda given: adapter.validate_python(given, strict=True)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
