"""The JSON Schema of study files, for editors: one document, every driver by its ``kind``."""

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, get_args

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tunnelmark.devices.registry import DEVICES, params_type
from tunnelmark.links.registry import link_kinds
from tunnelmark.model.hypothesis import FRAGMENTATION_POINT
from tunnelmark.model.params import Params
from tunnelmark.model.quantity import UNIT_KEY
from tunnelmark.model.rules import Limits, Precision, Probes, TopologyParams
from tunnelmark.study.background import PATHS
from tunnelmark.study.drivers import LABEL
from tunnelmark.study.hypotheses import MOST_HYPOTHESES, RUN_METRICS, HypothesisTable
from tunnelmark.study.parse import FORMAT, MOST_TEXT_CHARACTERS, NAME_PATTERN
from tunnelmark.study.recipes import MOST_RECIPES
from tunnelmark.study.scale import SECTIONS, SMALLER
from tunnelmark.study.selections import AXES
from tunnelmark.study.study import PlaceParams
from tunnelmark.tunnels.registry import tunnel_kinds
from tunnelmark.workloads.registry import workload_kinds

Schema = dict[str, Any]

_BACKGROUND_PATH: Final[Schema] = {
    "enum": list(PATHS),
    "default": PATHS[0],
    "description": "through the tunnel, or outside it on the same link",
}
_LABEL_OF: Final[Schema] = {"type": "string", "description": "label of a [[background]], or none"}
_BESIDE: Final[Schema] = {
    "anyOf": [
        _LABEL_OF,
        {"type": "array", "items": _LABEL_OF, "minItems": 1, "uniqueItems": True},
    ],
    "description": "which load runs beside the workload; default: all of the study's",
}

_LABEL: Final[Schema] = {
    "type": "string",
    "pattern": LABEL.pattern,
    "description": "name in reports, unique in the study",
}
_OF_A_RECIPE: Final[Schema] = {
    "title": "your own recipe",
    "description": "its other keys are the recipe's own parameters",
    "required": ["kind"],
    "propertyNames": {"pattern": "^[a-z][a-z0-9_]*$"},
    "properties": {
        "kind": {
            "type": "string",
            "pattern": r"/.*\.toml$",
            "examples": ["./mytun.toml"],
            "description": "a path is that of your own recipe, relative to the study "
            "(docs/adding-a-driver.md)",
        },
        "label": _LABEL,
    },
}

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def study_schema() -> Schema:
    """Return the schema: what it refuses the parser refuses too.

    The parser refuses more: what no schema can say, such as the number of points.
    """
    definitions: Schema = {}
    text = {"type": "string", "maxLength": MOST_TEXT_CHARACTERS}
    tunnels = {kind: driver.params_type for kind, driver in tunnel_kinds().items()}
    workloads = {kind: driver.params_type for kind, driver in workload_kinds().items()}
    titles = {
        **{kind: driver.title for kind, driver in tunnel_kinds().items()},
        **{kind: driver.title for kind, driver in workload_kinds().items()},
        **{kind: driver.title for kind, driver in link_kinds().items()},
        **{device.kind: device.title for device in DEVICES.values()},
    }
    loads = {
        kind: workloads[kind] for kind, one in workload_kinds().items() if one.may_be_background
    }
    links = [_table(kind, link.params_type, titles, definitions) for kind, link in _links()]
    presets = [
        _preset_table(kind, link.params_type, list(link.presets), definitions)
        for kind, link in _links()
        if link.presets
    ]
    precision = _model(Precision, definitions)
    precision["properties"]["metric"] |= {"enum": sorted(_metrics())}
    precision["properties"]["metrics"] |= {
        "additionalProperties": {"enum": sorted(_metrics())},
        "propertyNames": {"enum": sorted(workloads)},
    }
    return {
        "$schema": DIALECT,
        "title": "Tunnelmark study",
        "type": "object",
        "additionalProperties": False,
        "required": ["format", "name", "title", "link", "workload"],
        "properties": {
            "format": {"const": FORMAT, "description": "version of the file format"},
            "name": {
                "type": "string",
                "pattern": NAME_PATTERN,
                "description": "name of the study; the result directory's name starts with it",
            },
            "title": {**text, "description": "one line, for lists and reports"},
            "description": {**text, "description": "description of the study, for the report"},
            "seed": {
                "type": "integer",
                "minimum": 0,
                "maximum": (1 << 63) - 1,
                "default": 1,
                "description": "decides every random choice: order, loss, payload",
            },
            "precision": precision,
            "validity": _model(Limits, definitions),
            "topology": _model(TopologyParams, definitions),
            "probes": _model(Probes, definitions),
            "place": _model(PlaceParams, definitions),
            "scale": _scales(
                precision,
                definitions,
                {
                    "link": [link.params_type for _, link in _links()],
                    "device": [params_type(kind) for kind in DEVICES],
                    "background": loads.values(),
                    "workload": workloads.values(),
                },
            ),
            "tunnel": _tables(
                [
                    *(
                        _table(kind, params, titles, definitions)
                        for kind, params in tunnels.items()
                    ),
                    _OF_A_RECIPE,
                ],
                "what is compared with the baseline without a tunnel, which is always measured too",
            ),
            "link": _tables([*links, *presets], "between client and server", least=1),
            "device": _tables(
                [_table(kind, params_type(kind), titles, definitions) for kind in DEVICES],
                "CPU of an endpoint; default: this computer's",
            ),
            "background": _tables(
                [
                    _with(_table(kind, params, titles, definitions), "path", _BACKGROUND_PATH)
                    for kind, params in loads.items()
                ],
                "background loads that run in parallel with the workloads",
            ),
            "workload": _tables(
                [
                    _with(_table(kind, params, titles, definitions), "background", _BESIDE)
                    for kind, params in workloads.items()
                ],
                "the traffic",
                least=1,
            ),
            "recipe": {
                "type": "array",
                "maxItems": MOST_RECIPES,
                "description": "tunnels that the study defines; loading a study adds those "
                "that its tunnels name by path",
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["path", "text"],
                    "properties": {"path": {"type": "string"}, "text": {"type": "string"}},
                },
            },
            "trace": {
                "type": "array",
                "description": "what the traces of its links contain; loading a study adds them, "
                "and another content is refused",
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["path", "sha256"],
                    "properties": {
                        "path": {"type": "string"},
                        "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
                    },
                },
            },
            "hypothesis": {
                "type": "array",
                "maxItems": MOST_HYPOTHESES,
                "description": "what is claimed before the run; the report gives the verdict",
                "items": _hypothesis(definitions),
            },
        },
        "$defs": definitions,
    }


def _scales(
    precision: Schema, definitions: Schema, params: Mapping[str, Iterable[type[Params]]]
) -> Schema:
    """Return the smaller versions of a study: what each changes, by label, preset or kind."""
    some = {"type": "array", "minItems": 1, "items": {"type": "string"}}
    keys: dict[str, Schema] = {
        # A recipe has keys of its own.
        "tunnel": _OF_A_RECIPE["propertyNames"],
        **{
            section: {"enum": sorted({key for one in own for key in one.model_fields})}
            for section, own in params.items()
        },
    }
    keys["background"]["enum"] += ["path"]
    keys["workload"]["enum"] += ["background"]
    named: Schema = {"anyOf": [{"pattern": LABEL.pattern}, _OF_A_RECIPE["properties"]["kind"]]}
    changes = {
        section: {
            "type": "object",
            "description": "keys with a different value, by label, preset or kind of the table",
            "propertyNames": named,
            "additionalProperties": {"type": "object", "propertyNames": own},
        }
        for section, own in keys.items()
    }
    one = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "only": {
                "type": "object",
                "description": "parts of the study to keep, by label, preset or kind",
                "additionalProperties": False,
                "properties": {
                    **dict.fromkeys(SECTIONS, some),
                    "device": {
                        **some,
                        "minItems": 0,
                        "description": "none: this computer without a limit",
                    },
                },
            },
            "precision": precision,
            "validity": _model(Limits, definitions),
            **changes,
        },
    }
    return {
        "type": "object",
        "description": "smaller versions of the study, for run --scale",
        "additionalProperties": False,
        "properties": dict.fromkeys(SMALLER, one),
    }


def _hypothesis(definitions: Schema) -> Schema:
    table = _model(HypothesisTable, definitions)
    table["properties"]["metric"] |= {"enum": [*sorted(_metrics()), FRAGMENTATION_POINT]}
    for chosen in (table["properties"]["where"], table["properties"]["groups"]["items"]):
        chosen |= {"additionalProperties": False, "properties": _chosen()}
    return table


def _chosen() -> Schema:
    """Return the keys by which a hypothesis names points: axes, parameters of any workload."""
    plain = {"type": ["string", "number", "boolean"]}
    label = {"type": "string"}
    ends = {
        "type": "object",
        "additionalProperties": False,
        "minProperties": 1,
        "properties": {"from": plain, "to": plain},
    }
    names = {
        name: None for kind in workload_kinds().values() for name in kind.params_type.model_fields
    }
    return {
        **{axis: {"anyOf": [label, _several(label)]} for axis in AXES},
        **{name: {"anyOf": [plain, _several(plain), ends]} for name in names},
    }


def _several(one: Schema) -> Schema:
    return {"type": "array", "items": one, "minItems": 1}


def _links() -> list[tuple[str, Any]]:
    return list(link_kinds().items())


def _metrics() -> set[str]:
    return {name for kind in workload_kinds().values() for name in kind.metrics} | RUN_METRICS


def _tables(alternatives: list[Schema], description: str, *, least: int = 0) -> Schema:
    return {
        "type": "array",
        "minItems": least,
        "description": description,
        # One alternative matches by its kind, so an editor shows the complaints of that one.
        "items": {"type": "object", "oneOf": alternatives},
    }


def _table(
    kind: str, params: type[Params], titles: Mapping[str, str], definitions: Schema
) -> Schema:
    table = _varied(params, definitions)
    table["title"] = titles.get(kind, kind)
    table["properties"] = {"kind": {"const": kind}, "label": _LABEL, **table["properties"]}
    table["required"] = ["kind", *table.get("required", [])]
    return table


def _with(table: Schema, key: str, value: Schema) -> Schema:
    """Return the table with a key that is not the driver's."""
    return {**table, "properties": {**table["properties"], key: value}}


def _preset_table(
    kind: str, params: type[Params], presets: list[str], definitions: Schema
) -> Schema:
    table = _varied(params, definitions)
    table["title"] = f"preset of {kind}"
    table["properties"] = {"preset": {"enum": presets}, "label": _LABEL, **table["properties"]}
    # Everything that is needed comes from the preset.
    table["required"] = ["preset"]
    return table


def _varied(params: type[Params], definitions: Schema) -> Schema:
    """Return the table of a driver, in which a list of values varies a parameter."""
    schema = _model(params, definitions)
    for name in params.model_fields:
        one = schema["properties"][name]
        outside = {key: one.pop(key) for key in ("title", "description", "default") if key in one}
        listed = {"type": "array", "items": one, "minItems": 1, "uniqueItems": True}
        # One value of a list parameter is itself a list: a list of such lists varies it.
        schema["properties"][name] = {**outside, "anyOf": [one, listed]}
    schema.setdefault("properties", {})
    return schema


def _model(model: type[BaseModel], definitions: Schema) -> Schema:
    """Return a model's schema; models within it go to the shared definitions."""
    schema = copy.deepcopy(model.model_json_schema(ref_template="#/$defs/{model}"))
    for name, inner in schema.pop("$defs", {}).items():
        _without_null(inner)
        if definitions.setdefault(name, inner) != inner:
            raise TypeError(f"two different parameter types are both called {name}")
    schema.setdefault("properties", {})
    _without_null(schema)
    bound_shares(schema, model)
    return schema


def bound_shares(schema: Schema, model: type[BaseModel]) -> None:
    """Give each share in a model's schema its own bounds, which pydantic leaves out."""
    for name, field in model.model_fields.items():
        if schema["properties"][name].get(UNIT_KEY) == "ratio":
            _bound(schema["properties"][name], field)


def _bound(share: Schema, field: FieldInfo) -> None:
    number, text = share["anyOf"]
    optional = (one for part in get_args(field.annotation) for one in _metadata(part))
    for one in (*field.metadata, *optional):
        if isinstance(one, Gt):
            number.pop("minimum", None)
            number["exclusiveMinimum"] = one.gt
        elif isinstance(one, Ge):
            number["minimum"] = one.ge
        elif isinstance(one, Le) and one.le < 1:  # type: ignore[operator]
            number.pop("exclusiveMaximum", None)
            number["maximum"] = one.le
    if field.default:
        text["examples"] = [f"{100 * field.default:g} %"]


def _metadata(annotation: Any) -> Iterator[Any]:
    for one in getattr(annotation, "__metadata__", ()):
        yield from one.metadata if isinstance(one, FieldInfo) else (one,)


def _without_null(schema: Any) -> None:
    """Take ``null`` out of alternatives and defaults: TOML has none, a key is left out instead."""
    if isinstance(schema, list):
        for part in schema:
            _without_null(part)
    if not isinstance(schema, dict):
        return
    for part in schema.values():
        _without_null(part)
    if "anyOf" in schema:
        schema["anyOf"] = [part for part in schema["anyOf"] if part != {"type": "null"}]
        if len(schema["anyOf"]) == 1:
            schema |= schema.pop("anyOf")[0]
    if "default" in schema and schema["default"] is None:
        del schema["default"]
