"""What stands in the columns of trials: nothing is missing, and texts are what readers take."""

import json
from collections.abc import Callable
from typing import Any, Final

import polars as pl
from pydantic_core import from_json

from tunnelmark.model.block import Stratum
from tunnelmark.model.errors import ResultError

_MAY_BE_EMPTY: Final = "stratum"
"""The one column in which results of older formats have nothing: the block says it."""
_ID: Final = r"\A[0-9A-Za-z][0-9A-Za-z._-]{0,149}\z"
"""Names of files are made of them. Ours are ``b``, a hash, and numbers."""


def check_values(frame: pl.DataFrame, columns: frozenset[str], place: str) -> None:
    """Raise ``ResultError`` naming ``place`` and the trial for what no trial of ours has.

    ``columns`` are those of every trial.
    """
    full, kinds = sorted(columns - {_MAY_BE_EMPTY}), frame.schema
    gaps = frame.select(_has_gaps(name, kinds[name]) for name in full).row(0, named=True)
    if empty := [name for name in full if gaps[name]]:
        raise ResultError(f"{place}: column {empty[0]} has an empty row")
    for name in ("trial_id", "block_id", "point_id"):
        values = frame[name].unique()
        if (wrong := values.filter(~values.str.contains(_ID))).len():
            raise ResultError(
                f"{place}: {name} is {wrong[0][:80]!r}, must be letters, digits, '.', '_' and '-', "
                "at most 150 and a letter or digit first"
            )
    strata = frame[_MAY_BE_EMPTY].drop_nulls().unique()
    if strange := sorted(set(strata) - set(Stratum)):
        raise ResultError(f"{place}: stratum is {strange[0][:80]!r}, which is none")
    for name in ("params", "details"):
        _check_json(frame, name, _is_object, "JSON object", place)
    _check_json(frame, "checks", _are_objects, "JSON list of objects", place)


def parsed(text: str) -> Any:
    """Return what ``json.loads`` does; three times as quickly, results have 100,000 of them."""
    try:
        return from_json(text)
    except ValueError:
        # It refuses some that readers take: half of a surrogate pair, 200 levels.
        return json.loads(text)


def _has_gaps(name: str, kind: pl.DataType) -> pl.Expr:
    column = pl.col(name)
    gaps = column.is_null().any()
    if kind == pl.List:
        gaps |= column.list.eval(pl.element().is_null()).list.any().any()
    return gaps.alias(name)


def _check_json(
    frame: pl.DataFrame, name: str, fits: Callable[[object], bool], kind: str, place: str
) -> None:
    # Once each: paths of a trial have the same, and often all trials.
    for text in frame[name].unique(maintain_order=True):
        try:
            found = parsed(text)
        except (ValueError, RecursionError) as error:
            raise ResultError(
                f"{place}: {name} of trial {_trial_with(frame, name, text)} are damaged: {error}"
            ) from error
        if not fits(found):
            trial = _trial_with(frame, name, text)
            raise ResultError(f"{place}: {name} of trial {trial} are no {kind}")


def _is_object(found: object) -> bool:
    return isinstance(found, dict)


def _are_objects(found: object) -> bool:
    return isinstance(found, list) and all(map(_is_object, found))


def _trial_with(frame: pl.DataFrame, name: str, text: str) -> str:
    trial: str = frame.filter(pl.col(name) == text)["trial_id"][0]
    return trial
