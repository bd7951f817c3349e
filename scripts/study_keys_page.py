"""Renew docs/study-keys.md from the schema of study files: python scripts/study_keys_page.py."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from schema_table import table

from tunnelmark.devices.registry import DEVICES, params_type
from tunnelmark.study.schema import study_schema

PAGE = Path(__file__).parents[1] / "docs" / "study-keys.md"
_HEAD = """\
# Study keys

Every key of a study file but those of the drivers, which have [a page of their own](drivers.md).
`make pages` writes this page from the schema that `tunnelmark studies schema` prints; a test
compares the two. A key that is not listed is an error. [Studies](studies.md) explains how the parts
work together.

Times, rates and sizes are text with a unit: `"20 ms"`, `"8 Mbit/s"`, `"64 KiB"`. A share is written
with `%` or as a number below 1.
"""
_INSTEAD: Final[Mapping[str, Mapping[str, Any]]] = {
    "metric": {"examples": ["rtt_p50_ns"]},
    "metrics": {"type": "object"},
    "groups": {"type": "array", "items": {"type": "object"}},
    "where": {"type": "object"},
}
"""What is shown of keys that take every metric, or every parameter of a workload."""
_SECTIONS: Final = ("precision", "validity", "topology", "probes", "place")
_DRIVERS: Final = {
    "tunnel": "`kind` chooses the [tunnel](drivers.md), which has its own keys beside these.",
    "link": "`kind` chooses the [link](drivers.md), which has its own keys beside these. `preset` "
    "in its place chooses a link whose keys have values; what is set beside it replaces them.",
    "workload": "`kind` chooses the [workload](drivers.md), which has its own keys beside these.",
    "background": "`kind` chooses the [workload](drivers.md) that is the load.",
    "device": "`kind` chooses the CPU. [Devices](devices.md) has the source of their figures.",
}


def main() -> None:
    """Write the page again."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the whole page."""
    schema = study_schema()
    keys: Mapping[str, Any] = schema["properties"]
    plain = {name: one for name, one in keys.items() if _is_plain(one)}
    lines = [_HEAD, "## At the top of the file", ""]
    lines += table({"properties": plain, "required": schema["required"]})
    for name in _SECTIONS:
        lines += [f"## `[{name}]`", "", _sentence(keys[name]), ""]
        lines += table(_shown(keys[name]))
    for name, says in _DRIVERS.items():
        lines += _driver(name, says, keys[name])
    lines += ["## `[[hypothesis]]`", "", _sentence(keys["hypothesis"]), ""]
    lines += ["[Statistics](statistics.md) explains the kinds.", ""]
    lines += ["A group, and `where`, chooses by `tunnel`, `link`, `device`, `workload` and the "]
    lines[-1] += "[parameters of workloads](drivers.md): a value, a list, or `from` and `to`."
    lines += ["", *table(_shown(keys["hypothesis"]["items"]))]
    lines += ["## `[scale.smoke]` and `[scale.short]`", "", _sentence(keys["scale"]), ""]
    lines += table(keys["scale"]["properties"]["smoke"])
    return re.sub(r"docs/([a-z-]+)\.md", r"[\1](\1.md)", "\n".join(lines))


def _is_plain(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") not in ("object", "array") and "properties" not in schema


def _shown(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema with a link in place of each list of all metrics or all parameters."""
    changed = dict(schema["properties"])
    for name, instead in _INSTEAD.items():
        if name in changed:
            says = changed[name].get("description", "")
            default = changed[name].get("default")
            changed[name] = {"default": default, "description": says, **instead}
    return {**schema, "properties": changed}


def _driver(name: str, says: str, schema: Mapping[str, Any]) -> list[str]:
    """Return the section of a driver's table: the keys that every kind has."""
    kinds = schema["items"]["oneOf"]
    chosen: dict[str, Any] = {}
    for choice in ("kind", "preset"):
        own = [one["properties"][choice] for one in kinds if choice in one["properties"]]
        if own:
            words = "; ".join(one["description"] for one in own if "description" in one)
            chosen[choice] = {"anyOf": own, "description": words}
    tables = [one["properties"] for one in kinds]
    shared = {
        key: one
        for key, one in tables[0].items()
        if key not in chosen and all(one == other.get(key) for other in tables)
    }
    if name == "device":
        shared |= _of_devices()
    required = () if "preset" in chosen else ("kind",)
    lines = [f"## `[[{name}]]`", "", _sentence(schema), says, ""]
    return lines + table({"properties": chosen | shared, "required": required})


def _of_devices() -> dict[str, Any]:
    """Return the keys of every device with a limit; the values are those of any of them."""
    found: dict[str, list[dict[str, Any]]] = {}
    for kind in DEVICES:
        for key, one in params_type(kind).model_json_schema().get("properties", {}).items():
            found.setdefault(key, []).append(one)
    return {
        key: kinds[0] if all(one == kinds[0] for one in kinds) else {**kinds[0], "anyOf": kinds}
        for key, kinds in found.items()
    }


def _sentence(schema: Mapping[str, Any]) -> str:
    words = str(schema["description"])
    return words[0].upper() + words[1:].rstrip(".") + "."


if __name__ == "__main__":
    main()
