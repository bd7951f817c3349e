"""The base of everything a study file can set: frozen, and strict about unknown keys."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict

from tunnelmark.model.quantity import UNIT_KEY


class Params(BaseModel):
    """Parameters of a driver, as one table of the study file.

    Subclasses add fields with the types of ``tunnelmark.model.quantity``. A scalar field may be
    given as a list in the study file: the study then varies it (one point per value).
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False, allow_inf_nan=False)

    def columns(self) -> dict[str, object]:
        """Return all values, defaults included, under their names with the unit of the number.

        ``gap`` in nanoseconds is ``gap_ns``; a name that ends in its unit stays as it is. Tables
        within are flattened with a dot. These are the typed columns of a result.
        """
        return _columns(self, "")


@cache
def units(kind: type[BaseModel]) -> Mapping[str, str | None]:
    """Return the unit of each field's number as the end of a name: ``ns``, ``bit_s``; or None."""
    properties: Mapping[str, Any] = kind.model_json_schema().get("properties", {})
    return {name: _unit(schema) for name, schema in properties.items()}


def _columns(params: BaseModel, prefix: str) -> dict[str, object]:
    columns: dict[str, object] = {}
    for name, unit in units(type(params)).items():
        value = getattr(params, name)
        if isinstance(value, BaseModel):
            columns |= _columns(value, f"{prefix}{name}.")
            continue
        column = name if unit is None or name.endswith(f"_{unit}") else f"{name}_{unit}"
        if isinstance(value, tuple):
            value = [v.columns() if isinstance(v, Params) else v for v in value]
        columns[prefix + column] = value
    return columns


def _unit(schema: Mapping[str, Any]) -> str | None:
    """Return the unit of a field that may also be null or a plain number."""
    if UNIT_KEY in schema:
        return str(schema[UNIT_KEY])
    found = {_unit(part) for part in schema.get("anyOf", ())} - {None}
    return found.pop() if len(found) == 1 else None
