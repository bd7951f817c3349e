"""The tables ``[[hypothesis]]`` of a study: what is claimed before the run, parsed strictly."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from tunnelmark.model.errors import StudyError
from tunnelmark.model.hypothesis import (
    FRAGMENTATION_POINT,
    Hypothesis,
    Kind,
    Margin,
    Selection,
    Shape,
)
from tunnelmark.model.metrics import METRICS
from tunnelmark.model.params import Params
from tunnelmark.study.drivers import Fail, checked_table
from tunnelmark.study.figures import figure_in, margin_in, shift_in
from tunnelmark.study.lines import Path
from tunnelmark.study.messages import nearest, shown
from tunnelmark.study.selections import Points
from tunnelmark.study.study import Study
from tunnelmark.workloads.registry import workload_kinds

RUN_METRICS: Final = frozenset(
    name
    for name in METRICS
    if name.startswith(("background_", "cpu_", "wire_", "overhead_", "outer_", "paths_"))
)
"""Metrics that the run itself gives, whatever the workload."""
MOST_HYPOTHESES: Final = 200
NAME: Final = "^[a-z0-9][a-z0-9-]{0,63}$"
AT_FRAGMENTATION_POINT: Final = "fragmentation point"

_Value = str | int | float | bool
_Text = Annotated[str, Field(max_length=1000)]
_Name = Annotated[str, Field(pattern=NAME)]
_Chosen = dict[str, _Value | list[_Value] | dict[str, _Value]]


class HypothesisTable(Params):
    """One table of the file, before it is held against the rest of the study."""

    name: _Name
    kind: Kind
    metric: str = Field(description=f"a metric, or {FRAGMENTATION_POINT} with a threshold")
    claim: _Text = Field("", description="the claim in words, for the report")
    family: _Name = Field(
        "study", description="hypotheses that are corrected together, by Holm's method"
    )
    groups: tuple[_Chosen, ...] = Field(
        (),
        description="what is compared: the first group with the second; for an order, from high "
        "to low",
    )
    where: _Chosen = Field({}, description="points to which the claim applies; default: all")
    hold: Literal["everywhere", "on_average"] = Field(
        "everywhere", description="at each point, or for the mean of all"
    )
    better: Literal["higher", "lower"] | None = Field(
        None, description="which direction the claim calls better; default: the metric's own"
    )
    margin: str | int | float | None = Field(
        None, description='with its unit: "5 %" of the second group, "1 Mbit/s", "2 points"'
    )
    by: str | int | float | None = Field(
        None,
        description="by how much the first group is claimed to exceed the second, the margin lying "
        'around this: "22 %" or "-3 Mbit/s", of the same sort as the margin',
    )
    along: str | None = Field(None, description="parameter along which a shape is claimed")
    shape: Shape | None = None
    at: str | int | float | None = Field(
        None, description=f'where the step or peak is: a value, or "{AT_FRAGMENTATION_POINT}"'
    )
    at_least: str | int | float | None = Field(None, description="with its unit")
    at_most: str | int | float | None = Field(None, description="with its unit")
    near: str | int | float | None = Field(None, description="with its unit; needs a margin")
    of: Literal["each", "highest", "lowest"] = Field(
        "each", description="points to which a threshold applies"
    )


def hypotheses(tables: object, study: Study, fail: Fail) -> tuple[Hypothesis, ...]:
    """Return the hypotheses of a study in their order.

    Raises what ``fail`` makes of a place and a message, for whatever no run could decide: a margin
    without unit, a tunnel that the study does not have, a metric that no workload gives.
    """
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise fail(("hypothesis",), "hypothesis must be written as [[hypothesis]]")
    if len(tables) > MOST_HYPOTHESES:
        raise fail(
            ("hypothesis", MOST_HYPOTHESES),
            f"the study has {len(tables)} hypotheses, at most {MOST_HYPOTHESES} are allowed",
        )
    found: dict[str, Hypothesis] = {}
    points = Points(study) if tables else None
    for position, table in enumerate(tables):
        one = _One(position, table, points, fail).hypothesis() if points else None
        if one is None:
            continue
        if one.name in found:
            place = ("hypothesis", position, "name")
            raise fail(place, f"hypothesis.name is {shown(one.name)}, which is taken")
        found[one.name] = one
    return tuple(found.values())


def at_scale(
    tables: Sequence[Mapping[str, Any]], found: Sequence[Hypothesis], study: Study
) -> tuple[Hypothesis, ...]:
    """Return the hypotheses of a smaller version of the study, ``found`` being those of the whole.

    One that speaks of something the smaller version leaves out stays as it is and says so: it will
    be reported as undecided, with that reason.
    """
    points = Points(study)
    smaller = []
    for position, (table, whole) in enumerate(zip(tables, found, strict=True)):
        try:
            smaller.append(_One(position, table, points, lambda _, m: StudyError(m)).hypothesis())
        except StudyError as error:
            # Without the hint: nobody has mistyped anything.
            message = re.split(", did you mean |; known: ", str(error))[0]
            smaller.append(replace(whole, left_out=message.removeprefix("hypothesis.")))
    return tuple(smaller)


_NEEDS: Final[Mapping[str, Sequence[str]]] = {
    "superiority": ("groups",),
    "non_inferiority": ("groups", "margin"),
    "equivalence": ("groups", "margin"),
    "order": ("groups",),
    "shape": ("along", "shape"),
    "threshold": (),
}
_MAY: Final[Mapping[str, Sequence[str]]] = {
    "superiority": ("margin", "better", "hold"),
    "non_inferiority": ("better", "hold"),
    "equivalence": ("hold", "by"),
    "order": ("margin", "hold"),
    "shape": ("at",),
    "threshold": ("at_least", "at_most", "near", "margin", "of"),
}
_ALWAYS: Final = ("name", "kind", "metric", "claim", "family", "where")
_STEPS: Final = ("rises_past", "falls_past", "peaks_at")
_BOUNDS: Final = ("at_least", "at_most", "near")


class _One:
    def __init__(self, position: int, table: Mapping[str, Any], points: Points, fail: Fail) -> None:
        self._place: Path = ("hypothesis", position)
        self._fail: Fail = fail
        self._points = points
        self._given = table
        self._table = checked_table(
            table,
            HypothesisTable,
            "hypothesis",
            lambda within, message: fail((*self._place, *within), message),
        )

    def hypothesis(self) -> Hypothesis:
        table = self._table
        self._keys()
        over = self._points.selection(table.where, self._within("where"))
        groups = tuple(
            self._points.selection(group, self._within("groups", position))
            for position, group in enumerate(table.groups)
        )
        self._groups(groups, over)
        self._metric(over)
        bound = next((key for key in _BOUNDS if getattr(table, key) is not None), None)
        return Hypothesis(
            name=table.name,
            kind=table.kind,
            metric=table.metric,
            claim=table.claim,
            family=table.family,
            groups=groups,
            over=over,
            hold=table.hold,
            better=self._better(),
            margin=self._margin(),
            by=self._by(),
            along=self._along(),
            shape=table.shape,
            at=self._at(),
            bound=bound,  # type: ignore[arg-type]
            limit=None if bound is None else self._figure(bound, getattr(table, bound)),
            of=table.of,
        )

    def _within(self, *place: str | int) -> Fail:
        name = ".".join(("hypothesis", *map(str, place)))

        def fail(within: Path, message: str) -> StudyError:
            joint = "." if within else " has no meaning: "
            return self._error((*place, *within), f"{name}{joint}{message}")

        return fail

    def _keys(self) -> None:
        """Refuse keys that this kind of hypothesis has no use for, and miss those that it needs."""
        kind = self._table.kind
        allowed = (*_ALWAYS, *_NEEDS[kind], *_MAY[kind])
        for key in self._given:
            if key not in allowed:
                raise self._error((key,), f"hypothesis.{key} has no meaning for {kind}")
        for key in _NEEDS[kind]:
            if key not in self._given:
                unit = ' with its unit, such as "5 %"' if key == "margin" else ""
                raise self._error((), f"hypothesis.{key} is missing: {kind} needs it{unit}")
        bounds = [key for key in _BOUNDS if key in self._given]
        if kind == "threshold" and len(bounds) != 1:
            given = " and ".join(bounds) or "none"
            raise self._error(
                (), f"hypothesis has {given} of at_least, at_most and near, a threshold needs one"
            )
        if kind == "threshold" and ("near" in bounds) != ("margin" in self._given):
            raise self._error((), "hypothesis.margin belongs to near, and near needs a margin")
        shape = self._table.shape
        if shape is not None and (shape in _STEPS) != ("at" in self._given):
            needs = "needs at" if shape in _STEPS else "has no use for at"
            raise self._error(("shape",), f"hypothesis.shape is {shown(shape)}, which {needs}")

    def _groups(self, groups: Sequence[Selection], over: Selection) -> None:
        kind = self._table.kind
        if "groups" not in _NEEDS[kind]:
            return
        if kind != "order" and len(groups) != 2:  # noqa: PLR2004 - one with the other
            raise self._error(("groups",), f"hypothesis.groups are {len(groups)}, must be two")
        if len(groups) < 2:  # noqa: PLR2004 - likewise
            raise self._error(
                ("groups",), f"hypothesis.groups are {len(groups)}, must be at least two"
            )
        for position, group in enumerate(groups):
            place: Path = ("groups", position)
            if not group.keys:
                raise self._error(place, "hypothesis.groups has a group that restricts nothing")
            if group in groups[:position]:
                raise self._error(place, "hypothesis.groups has the same group twice")
            if not self._points.any(group, over):
                raise self._error(place, "hypothesis.groups has a group without a point in where")

    def _metric(self, over: Selection) -> None:
        metric, kind = self._table.metric, self._table.kind
        if metric == FRAGMENTATION_POINT:
            if kind != "threshold":
                raise self._error(
                    ("metric",), f"hypothesis.metric is {metric}, which only a threshold can have"
                )
            if over.params or "workload" in over.labels:
                raise self._error(
                    ("where",), f"hypothesis.where must name no workload: {metric} has none"
                )
            return
        if metric not in METRICS:
            raise self._error(
                ("metric",),
                f"hypothesis.metric is {shown(metric)}, which is not a metric"
                f"{nearest(metric, METRICS)}",
            )
        kinds = self._points.workload_kinds(over)
        if metric not in RUN_METRICS and not any(
            metric in workload_kinds()[kind].metrics for kind in kinds
        ):
            raise self._error(
                ("metric",),
                f"hypothesis.metric is {metric}, which {' and '.join(sorted(kinds))} do not give",
            )

    def _better(self) -> Literal["higher", "lower"]:
        given = self._table.better
        if given is not None:
            return given
        metric = METRICS.get(self._table.metric)
        own = "neither" if metric is None else metric.better
        if own == "neither" and self._table.kind in ("superiority", "non_inferiority"):
            raise self._error(
                (),
                f"hypothesis.better is missing: neither direction of {self._table.metric} is "
                "better",
            )
        return "lower" if own == "lower" else "higher"

    def _margin(self) -> Margin | None:
        given = self._table.margin
        if given is None:
            return None
        try:
            return margin_in(given, self._table.metric)
        except ValueError as error:
            raise self._error(
                ("margin",), f"hypothesis.margin is {shown(given)}, {error}"
            ) from None

    def _by(self) -> Margin | None:
        given = self._table.by
        if given is None:
            return None
        try:
            found = shift_in(given, self._table.metric)
        except ValueError as error:
            raise self._error(("by",), f"hypothesis.by is {shown(given)}, {error}") from None
        margin = self._margin()
        if margin is not None and margin.relative != found.relative:
            raise self._error(
                ("by",),
                f"hypothesis.by is {shown(given)}, must have the same kind of unit as the margin",
            )
        if margin is not None and found.relative and found.value - margin.value <= -1:
            raise self._error(
                ("by",),
                f"hypothesis.by is {shown(given)} with a margin of {shown(self._table.margin)}, "
                f"must be above {100 * margin.value - 100:g} %",
            )
        return found

    def _figure(self, key: str, given: str | float) -> float:
        try:
            return figure_in(given, self._table.metric)
        except ValueError as error:
            raise self._error((key,), f"hypothesis.{key} is {shown(given)}, {error}") from None

    def _along(self) -> str | None:
        along = self._table.along
        if along is None:
            return None
        column = self._points.column(along)
        if column is None:
            known = self._points.numeric()
            raise self._error(
                ("along",),
                f"hypothesis.along is {shown(along)}, which the study does not vary"
                f"{nearest(along, known)}",
            )
        return column

    def _at(self) -> float | Literal["fragmentation_point"] | None:
        at, along = self._table.at, self._table.along
        if at is None or along is None:
            return None
        if at == AT_FRAGMENTATION_POINT:
            if along != "payload_bytes" or self._table.shape == "peaks_at":
                raise self._error(
                    ("at",),
                    f"hypothesis.at is {shown(at)}, which is valid only for a step along "
                    "payload_bytes",
                )
            return "fragmentation_point"
        value = self._points.value(along, at, lambda m: self._error(("at",), f"hypothesis.at {m}"))
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._error(("at",), f"hypothesis.at is {shown(at)}, must be a number")
        return float(value)

    def _error(self, within: Path, message: str) -> StudyError:
        return self._fail((*self._place, *within), message)
