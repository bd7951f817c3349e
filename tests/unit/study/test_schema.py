"""The schema is valid, accepts what the parser accepts, and refuses what it can."""

import json
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import jsonschema
import pytest

from tunnelmark.links.registry import link_kinds
from tunnelmark.model.errors import StudyError
from tunnelmark.study import list_studies, load_study, parse_study
from tunnelmark.study.schema import study_schema
from tunnelmark.tunnels.registry import tunnel_kinds
from tunnelmark.workloads.registry import workload_kinds

SCHEMA = study_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

TOP = 'format = 1\nname = "a"\ntitle = "A"\n'
LINK = '[[link]]\nkind = "serial"\nrate = "8 Mbit/s"\n'
ECHO = '[[workload]]\nkind = "udp_echo"\ngap = "5 ms"\npackets = 9\npayload_bytes = 64\n'


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", list_studies())
def test_built_in_studies_conform(name: str) -> None:
    VALIDATOR.validate(tomllib.loads(load_study(name).text))


def test_every_driver_and_preset_is_in_it() -> None:
    kinds = {
        section: {
            alternative["properties"]["kind"]["const"]
            for alternative in SCHEMA["properties"][section]["items"]["oneOf"]
            if "const" in alternative["properties"].get("kind", {})
        }
        for section in ("tunnel", "link", "workload")
    }
    assert kinds == {
        "tunnel": set(tunnel_kinds()),
        "link": set(link_kinds()),
        "workload": set(workload_kinds()),
    }
    presets = {
        preset
        for alternative in SCHEMA["properties"]["link"]["items"]["oneOf"]
        for preset in alternative["properties"].get("preset", {}).get("enum", ())
    }
    assert presets == {preset for link in link_kinds().values() for preset in link.presets}


GOOD = [
    TOP + LINK + ECHO,
    TOP + LINK + ECHO + '[[tunnel]]\nkind = "openvpn"\ncipher = ["BF-CBC", "AES-256-GCM"]\n',
    TOP + LINK.replace('"8 Mbit/s"', '["2 Mbit/s", "8 Mbit/s"]') + ECHO,
    TOP + '[[link]]\npreset = "serial-8m-41ms"\nloss_forward = [0.1, "2 %"]\n' + ECHO,
    TOP + "[validity]\nsteal = 0.5\n" + LINK + ECHO,
    TOP + LINK + ECHO + "[scale.smoke]\nprecision.max_repeats = 5\nworkload.udp_echo.packets = 3\n",
    TOP + '[precision.metrics]\nudp_echo = "rtt_p50_ns"\n' + LINK + ECHO,
    TOP
    + LINK
    + ECHO
    + '[[background]]\nkind = "bursts"\n[scale.smoke]\nworkload.udp_echo.background = "none"\n'
    + 'background.bursts = { packet_rate = 200, path = "outside" }\n',
]
BAD = [
    "",
    TOP,
    TOP + LINK,
    TOP + "x = 1\n" + LINK + ECHO,
    TOP + LINK + "x = 1\n" + ECHO,
    TOP + LINK + ECHO.replace('"5 ms"', "5"),
    TOP + LINK + ECHO.replace('"5 ms"', '"5 parsec"'),
    TOP + LINK + ECHO.replace("packets = 9", 'packets = "9"'),
    TOP + LINK + ECHO.replace("64", "[64, 24]"),
    TOP + LINK + ECHO.replace("64", "[]"),
    TOP + LINK + ECHO + '[[tunnel]]\nkind = "openvpn"\ncipher = "ROT13"\n',
    TOP + LINK + ECHO + '[[tunnel]]\nkind = "telepathy"\n',
    TOP + LINK + ECHO + '[[tunnel]]\nkind = "none"\nlabel = ""\n',
    TOP + LINK + 'preset = "serial-8m-41ms"\n' + ECHO,
    TOP + '[precision]\nmetric = "speed"\n' + LINK + ECHO,
    TOP.replace("1", "2") + LINK + ECHO,
    TOP + LINK + ECHO + "[scale.tiny]\n",
    TOP + LINK + ECHO + "[scale.smoke]\npacket = 3\n",
    TOP + LINK + ECHO + "[scale.smoke.workload.udp_echo]\npacket = 3\n",
    TOP + LINK + ECHO + "[scale.smoke.only]\nworkload = []\n",
    TOP + '[precision.metrics]\nudp_eco = "rtt_p50_ns"\n' + LINK + ECHO,
    TOP + "[precision]\nconfidence = 0.4\n" + LINK + ECHO,
    TOP + "[precision]\nrelative_half_width = 0.0\n" + LINK + ECHO,
    TOP + LINK + ECHO + '[[workload]]\nkind = "rate_search"\nframe_bytes = 64\nwidth = 0.6\n',
    TOP + LINK + ECHO + '[[workload]]\nkind = "udp_load"\nframe_bytes = 64\nload = 0.0\n',
]


@pytest.mark.parametrize("text", GOOD)
def test_what_the_parser_takes_conforms(text: str) -> None:
    assert parse_study(text, "a.toml")
    VALIDATOR.validate(tomllib.loads(text))


@pytest.mark.parametrize("text", BAD)
def test_what_does_not_conform_the_parser_refuses_too(text: str) -> None:
    assert not VALIDATOR.is_valid(tomllib.loads(text))
    with pytest.raises(StudyError):
        parse_study(text, "a.toml")


def test_a_scale_may_change_what_only_a_recipe_has() -> None:
    recipe = (files("tunnelmark.tunnels") / "recipes/vtun.toml").read_text("utf-8")
    own = recipe.replace("parameters.cipher", "parameters.own").replace("set.cipher", "set.own")
    text = f"""{TOP + LINK + ECHO}[[tunnel]]
kind = "./own.toml"
own = "aes128cbc"
[[recipe]]
path = "./own.toml"
text = {json.dumps(own)}
[scale.smoke.tunnel."./own.toml"]
own = "aes256cbc"
"""
    (tunnel,) = parse_study(text, "a.toml", "smoke").tunnels
    assert tunnel.params["settings"] == {"own": "aes256cbc"}
    VALIDATOR.validate(tomllib.loads(text))


def test_the_seed_that_it_names_is_that_of_a_study_without_one() -> None:
    study = parse_study(TOP + LINK + ECHO, "a.toml")
    assert study.seed == SCHEMA["properties"]["seed"]["default"]


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for part in schema.values():
            yield from objects(part)
    if isinstance(schema, list):
        for part in schema:
            yield from objects(part)


def test_no_table_takes_keys_that_are_not_known_and_none_takes_null() -> None:
    tables = [table for table in objects(SCHEMA) if "oneOf" not in table]
    assert len(tables) > len(tunnel_kinds())
    # A table whose keys are chosen by the author has a rule for their names instead.
    assert all(
        table.get("additionalProperties") is False or "propertyNames" in table for table in tables
    )
    assert '"null"' not in str(SCHEMA).replace("'", '"')
