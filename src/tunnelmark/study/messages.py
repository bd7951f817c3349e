"""What is wrong with a table of a study, in one sentence: value, limit, nearest known key."""

import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from tunnelmark.model.params import units
from tunnelmark.study.lines import Path

SHOWN_CHARACTERS: Final = 60
"""Longer values are cut in a message."""


def most_telling(errors: Sequence[ErrorDetails]) -> ErrorDetails:
    """Return the error to show: a key that is not known is the cause where another is missing."""
    return next((error for error in errors if error["type"] == "extra_forbidden"), errors[0])


def sentence(error: ErrorDetails, section: str, kind: type[BaseModel]) -> tuple[Path, str]:
    """Return where in the table the error is, and ``tunnel.mtu is 9000, must be at most 1500``."""
    place: Path = error["loc"]
    name = ".".join((section, *map(str, place)))
    if error["type"] == "extra_forbidden":
        known = _fields(kind, place[:-1])
        return place, f"{name} is not a key of this {section}{nearest(str(place[-1]), known)}"
    if error["type"] == "missing":
        return place[:-1], f"{name} is missing"
    text = _limit(error, units(kind).get(str(place[0])) if place else None)
    if not place:
        # A check over several keys names the one to change first.
        key = text.split(maxsplit=1)[0]
        return (
            ((key,), f"{section}.{text}") if key in kind.model_fields else ((), f"{section} {text}")
        )
    joint = ", which " if text.startswith(("is ", "has ")) else ", "
    return place, f"{name} is {shown(error['input'])}{joint}{text}"


def shown(value: object) -> str:
    """Return a value much as the file writes it, cut to a bearable length."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):  # a date, or a number that JSON does not have
        text = str(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def nearest(key: str, known: Iterable[str]) -> str:
    """Return a hint behind a name that is not known: the nearest one, or all."""
    names = list(known)
    if near := difflib.get_close_matches(key, names, 1):
        return f", did you mean {near[0]}?"
    return f"; known: {', '.join(names)}" if names else "; there are none"


def in_unit(value: float, unit: str | None) -> str:
    """Return a limit in the unit in which a study writes it: 60000000000 ns is ``60 s``."""
    for name, size in _SCALES.get(unit or "", ()):
        if value >= size and value % size == 0:
            return f"{value / size:g} {name}"
    return f"{value:g}" if isinstance(value, float) else str(value)


_SCALES: Final[Mapping[str, Sequence[tuple[str, int]]]] = {
    "ns": (("s", 10**9), ("ms", 10**6), ("us", 1000), ("ns", 1)),
    "bit_s": (("Gbit/s", 10**9), ("Mbit/s", 10**6), ("kbit/s", 1000), ("bit/s", 1)),
    "bytes": (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1024), ("B", 1)),
}
_BOUNDS: Final = {
    "less_than_equal": ("le", "must be at most"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be less than"),
    "greater_than": ("gt", "must be more than"),
}
_KINDS: Final = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "string_type": "a string",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "finite_number": "a finite number",
}


def _limit(error: ErrorDetails, unit: str | None) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return f"{words} {in_unit(context[key], unit)}"
    if kind in _KINDS:
        return f"must be {_KINDS[kind]}"
    if kind == "literal_error":
        return _one_of(str(error["input"]), str(context["expected"]))
    message = str(error["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    message = message.replace("Input should", "must").replace("String should", "must")
    return message[:1].lower() + message[1:].rstrip(".")


def _one_of(value: str, expected: str) -> str:
    choices = [part.strip(" '") for part in expected.replace(" or ", ", ").split(",")]
    near = difflib.get_close_matches(value, choices, 1)
    hint = f", did you mean {near[0]}?" if near else ""
    return f"must be one of {', '.join(choices)}{hint}"


def _fields(kind: type[BaseModel], place: Path) -> Sequence[str]:
    """Return the keys of the table in which an unknown key stands, also of one within a table."""
    inner: type[BaseModel] | None = kind
    for step in place:
        field = inner.model_fields.get(str(step)) if inner is not None else None
        inner = _model_in(field.annotation) if field is not None else inner
    return list(inner.model_fields) if inner is not None else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    is_model: Callable[[Any], bool] = lambda part: (  # noqa: E731 - said once, used twice
        isinstance(part, type) and issubclass(part, BaseModel)
    )
    if is_model(annotation):
        found: type[BaseModel] = annotation
        return found
    return next((part for part in getattr(annotation, "__args__", ()) if is_model(part)), None)
