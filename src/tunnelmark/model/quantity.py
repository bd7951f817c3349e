"""Quantities as a study file writes them: a number and a unit, parsed once into an integer.

``percent`` writes a share back for a reader.

Each annotated type below is a pydantic field type: it accepts a string with a unit, freezes to a
plain number in the unit its name states, and appears in the JSON Schema with a pattern. As JSON it
is written so that it parses to the same number: ``"5000000 ns"``.
"""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

_LONGEST: Final = 40
_NUMBER: Final = r"[0-9]+(?:\.[0-9]+)?"

_TIME_NS: Final = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9}
_RATE_BIT_S: Final = {
    "bit/s": 1,
    "kbit/s": 10**3,
    "Mbit/s": 10**6,
    "Gbit/s": 10**9,
}
_SIZE_BYTES: Final = {
    "B": 1,
    "byte": 1,
    "bytes": 1,
    "kB": 1000,
    "KiB": 1024,
    "MB": 10**6,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
}
_RATIO: Final = {"%": Decimal("0.01")}

UNITS: Final[Mapping[str, Mapping[str, int]]] = {
    "ns": _TIME_NS,
    "bit/s": _RATE_BIT_S,
    "byte": _SIZE_BYTES,
}
"""Stored unit to the units that a study may write, each with its size in stored ones."""


def _parser(
    units: Mapping[str, int | Decimal], example: str, *, whole: bool
) -> Callable[[Any], Any]:
    pattern = re.compile(rf"^\s*({_NUMBER})\s*(\S*)\s*$")

    def parse(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(f"must be a quantity such as {example!r}")  # noqa: TRY004 - pydantic wants ValueError
        match = pattern.match(value) if isinstance(value, str) else None
        if isinstance(value, str) and (match is None or len(value) > _LONGEST):
            raise ValueError(f"must be a quantity such as {example!r}")
        number, unit = match.groups() if match else (value, "")
        if not unit:
            raise ValueError(f"has no unit; write it as {example!r}")
        if unit not in units:
            known = ", ".join(units)
            raise ValueError(f"has the unit {unit!r}; known: {known}")
        result = Decimal(number) * units[unit]
        if not whole:
            return float(result)
        if result != result.to_integral_value():
            raise ValueError("is not a whole number of the smallest unit")
        return int(result)

    return parse


def _share(example: str) -> Callable[[Any], Any]:
    """Return a parser of shares: with ``%``, or a plain number below 1.

    ``1`` could be 1 % as well as all of it, so it is neither.
    """
    with_unit = _parser(_RATIO, example, whole=False)

    def parse(value: Any) -> Any:
        if isinstance(value, int | float) and not isinstance(value, bool) and value < 1:
            return float(value)
        try:
            return with_unit(value)
        except ValueError as error:
            hint = ", or as a number below 1 (0.02 is 2 %)" if "no unit" in str(error) else ""
            raise ValueError(f"{error}{hint}") from None

    return parse


def _written(unit: str) -> PlainSerializer:
    return PlainSerializer(lambda number: f"{number} {unit}", when_used="json")


def _written_share(share: float) -> float | str:
    """Return a share below 1 as it is, others with ``%``: 1 alone could be 1 % as well."""
    return share if share < 1 else f"{Decimal(repr(share)) * 100:f} %"


_SHARE_AS_JSON: Final = PlainSerializer(_written_share, when_used="json")

UNIT_KEY: Final = "x-unit"
"""Key of a JSON Schema that says in which unit the parsed number is: ``ns``, ``bit_s`` …."""


def percent(share: float, places: int = 0, *, sign: bool = False) -> str:
    """Return ``31 %`` for 0.31, with as many decimal places, as a reader sees it everywhere."""
    return f"{100 * share:{'+' if sign else ''}z.{places}f} %"


def _schema(units: Mapping[str, object], example: str, unit: str) -> WithJsonSchema:
    alternatives = "|".join(re.escape(u) for u in units)
    return WithJsonSchema(
        {
            "type": "string",
            "pattern": rf"^\s*{_NUMBER}\s*({alternatives})\s*$",
            "examples": [example],
            UNIT_KEY: unit,
        }
    )


DurationNs = Annotated[
    int,
    BeforeValidator(_parser(_TIME_NS, "5 ms", whole=True)),
    _written("ns"),
    _schema(_TIME_NS, "5 ms", "ns"),
]
"""A duration in nanoseconds, written ``"5 ms"``."""

RateBitS = Annotated[
    int,
    BeforeValidator(_parser(_RATE_BIT_S, "8 Mbit/s", whole=True)),
    Field(gt=0),
    _written("bit/s"),
    _schema(_RATE_BIT_S, "8 Mbit/s", "bit_s"),
]
"""A rate in bit/s, written ``"8 Mbit/s"``."""

SizeBytes = Annotated[
    int,
    BeforeValidator(_parser(_SIZE_BYTES, "64 KiB", whole=True)),
    _written("bytes"),
    _schema(_SIZE_BYTES, "64 KiB", "bytes"),
]
"""A size in bytes, written ``"64 KiB"``."""


def _share_schema(example: str) -> WithJsonSchema:
    pattern = rf"^\s*{_NUMBER}\s*%\s*$"
    return WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
                {"type": "string", "pattern": pattern, "examples": [example]},
            ],
            UNIT_KEY: "ratio",
        }
    )


Ratio = Annotated[
    float,
    BeforeValidator(_share("2 %")),
    Field(ge=0, le=1),
    _SHARE_AS_JSON,
    _share_schema("2 %"),
]
"""A share from 0 to 1, written ``"2 %"`` or ``0.02``; all of it is ``"100 %"``."""

CoreShare = Annotated[
    float,
    BeforeValidator(_share("90 %")),
    Field(ge=0, le=64),
    _SHARE_AS_JSON,
    _share_schema("90 %"),
]
"""A share of one core, written ``"90 %"`` or ``0.9``; of several ``"250 %"``."""
