"""Renew docs/drivers.md from the drivers: python scripts/drivers_page.py."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tunnelmark.links.registry import link_kinds
from tunnelmark.model.params import Params
from tunnelmark.tunnels.registry import tunnel_kinds
from tunnelmark.workloads.registry import workload_kinds

PAGE = Path(__file__).parents[1] / "docs" / "drivers.md"
_HEAD = """\
# Every tunnel, link and workload, with its parameters

Made by `make drivers-page` from the drivers themselves; a test holds it to them. In a study each is
a table with `kind` and `label`, and what is set is written beside them. A list in place of a value
varies it: each value is a point of its own.
A share is written with `%` or as a number below 1 (`0.02` is 2 %); `1` and `"1"` could be 1 % or
all of it and are refused.
"""
_TABLE = "| key | values | without it | meaning |\n| --- | --- | --- | --- |"


def main() -> None:
    """Write the page anew."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the whole page."""
    lines = [_HEAD]
    lines += ["## Tunnels: `[[tunnel]]`", ""]
    for kind, tunnel in sorted(tunnel_kinds().items()):
        routers = ", ".join(f"`{router}`" for router in tunnel.routers)
        lines += [f"### `{kind}`: {tunnel.title}", "", f"Routers on the way: {routers}.", ""]
        lines += _parameters(tunnel.params_type)
        if tunnel.deviations:
            lines += ["Set although it is not the program's own default:", ""]
            lines += [f"- {what}: {why}." for what, why in tunnel.deviations.items()]
            lines += [""]
    lines += ["## Links: `[[link]]`", ""]
    for kind, link in sorted(link_kinds().items()):
        lines += [f"### `{kind}`: {_first_sentence(link)}", "", *_parameters(link.params_type)]
    lines += ["## Workloads: `[[workload]]`, and `[[background]]` beside them", ""]
    for kind, workload in sorted(workload_kinds().items()):
        lines += [f"### `{kind}`: {workload.title}", "", *_parameters(workload.params_type)]
    return "\n".join(lines)


def _parameters(params: type[Params]) -> list[str]:
    schema = params.model_json_schema()
    rows = [
        f"| `{name}` | {_values(one, schema)} | {_default(name, one, schema)} | "
        f"{_cell(str(one.get('description', '')))} |"
        for name, one in schema.get("properties", {}).items()
    ]
    return [_TABLE, *rows, ""] if rows else []


def _first_sentence(driver: type) -> str:
    words = (driver.__doc__ or "").split(". ")[0].splitlines()[0]
    return words.rstrip(".")


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
        yield "table of " + ", ".join(f"`{name}`" for name in schema.get("properties", {}))
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
    ends = {
        (True, True): f"{above}{_number(low)} to {below}{_number(high)}",
        (True, False): f"{above or 'from '}{_number(low)}",
        (False, True): f"at most {_number(high)}",
        (False, False): "a number",
    }
    return ends[low is not None, high is not None]


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
        shown = {"bit_s": "bit/s", "bytes": "byte", "ratio": ""}.get(unit, unit)
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
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:g}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    main()
