"""What a JSON Schema says of the keys of a table, as a table in Markdown."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

_HEAD: Final = "| key | values | without it | meaning |\n| --- | --- | --- | --- |"


def table(schema: Mapping[str, Any]) -> list[str]:
    """Return the lines of a table with a row for each property; none if it has no property."""
    rows = [
        f"| `{name}` | {_values(one, schema)} | {_default(name, one, schema)} | "
        f"{_cell(str(one.get('description', '')))} |"
        for name, one in schema.get("properties", {}).items()
    ]
    return [_HEAD, *rows, ""] if rows else []


def _values(schema: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    return _cell(" or ".join(dict.fromkeys(_kinds(schema, root))))


def _kinds(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[str]:  # noqa: C901 - a case for each form
    if "$ref" in schema:
        yield from _kinds(root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root)
    elif "anyOf" in schema or "oneOf" in schema:
        for one in schema.get("anyOf") or schema["oneOf"]:
            yield from _kinds(one, root)
    elif "enum" in schema:
        yield from (f"`{json.dumps(value)}`" for value in schema["enum"])
    elif "const" in schema:
        yield f"`{json.dumps(schema['const'])}`"
    elif schema.get("examples"):
        yield " or ".join(f"`{json.dumps(value)}`" for value in schema["examples"])
    elif schema.get("type") == "array":
        inner = schema.get("items") or {}
        yield "list of " + (" or ".join(dict.fromkeys(_kinds(inner, root))) or "values")
    elif schema.get("type") == "object":
        names = ", ".join(f"`{name}`" for name in schema.get("properties", {}))
        inside = schema.get("additionalProperties") or {}
        for one in schema.get("patternProperties", {}).values():
            inside = one
        held = " or ".join(_kinds(inside, root)) or "values"
        yield f"table of {names or ('tables' if held.startswith('table') else held)}"
    elif schema.get("type") in ("integer", "number"):
        yield _range(schema)
    elif schema.get("type") == "boolean":
        yield "`true`"
        yield "`false`"
    elif schema.get("type") == "string":
        yield "text"


def _range(schema: Mapping[str, Any]) -> str:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    above = "above " if "exclusiveMinimum" in schema else ""
    below = "below " if "exclusiveMaximum" in schema else ""
    if low is None:
        return "a number" if high is None else f"at most {_number(high)}"
    if high is None:
        return f"{above or 'from '}{_number(low)}"
    return f"{above}{_number(low)} to {below}{_number(high)}"


def _default(name: str, schema: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    if name in root.get("required", ()):
        return "must be set"
    value = schema.get("default")
    if value is None or isinstance(value, (dict, list)):
        return "-" if not value else f"`{json.dumps(value)}`"
    unit = _unit(schema)
    if unit == "ns" and isinstance(value, (int, float)):
        return _time(value)
    if unit is not None and not isinstance(value, str):
        shown = {"bit_s": "bit/s", "ratio": ""}.get(unit, unit)
        return f"{_number(value)} {shown}".strip()
    return f"`{json.dumps(value)}`"


def _unit(schema: Mapping[str, Any]) -> str | None:
    if "x-unit" in schema:
        return str(schema["x-unit"])
    found = (_unit(one) for one in schema.get("anyOf", ()))
    return next((unit for unit in found if unit), None)


def _time(ns: float) -> str:
    for size, name in ((10**9, "s"), (10**6, "ms"), (10**3, "µs")):
        if ns >= size and ns % (size / 1000) == 0:
            return f"{_number(ns / size)} {name}"
    return f"{_number(ns)} ns"


def _number(value: float) -> str:
    return f"{int(value):,}" if float(value).is_integer() else f"{value:g}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
