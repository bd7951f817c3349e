"""A study whose tunnel is a recipe of one's own, run as a user would."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tunnelmark.tunnels
from small_study import one_echo

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.xdist_group("runs")]

RECIPES = Path(tunnelmark.tunnels.__path__[0]) / "recipes"
TUNNELS = """\
[[tunnel]]
kind = "./recipes/mytun.toml"
cipher = "aes256cbc"

[[tunnel]]
kind = "./recipes/other.toml"
mtu_bytes = 1400
"""


def test_a_recipe_of_one_s_own_is_measured_and_recorded(
    study: Callable[[str], Any], tmp_path: Path
) -> None:
    folder = tmp_path / "recipes"
    folder.mkdir()
    for name, own in (("vtun", "mytun"), ("socat_tls", "other")):
        (folder / f"{own}.toml").write_bytes((RECIPES / f"{name}.toml").read_bytes())
    one = study(one_echo("mine", "Tunnels of one's own", TUNNELS))
    one.run()
    blocks = {
        record["tunnel"]: record
        for path in one.directory.glob("**/*.json")
        if isinstance(record := json.loads(path.read_text("utf-8")), dict) and "tunnel" in record
    }
    assert sorted(blocks) == ["mytun-aes256cbc", "other-1400"]
    mine, other = (blocks[label]["negotiated"][0] for label in sorted(blocks))
    assert (mine["cipher"], mine["details"]["encryption"]) == ("aes256cbc", "AES-256-CBC")
    assert (other["mtu_bytes"], other["implementation"]) == (1400, "socat")
    assert blocks["mytun-aes256cbc"]["layers"] == []
    assert blocks["other-1400"]["layers"]
    # Whoever has the result has the recipe.
    manifest = json.loads((one.directory / "manifest.json").read_text("utf-8"))
    assert "VTun over TCP" in manifest["study_text"]
    report = (one.directory / "report" / "report.md").read_text("utf-8")
    reported = "the largest payload in one packet on the link is"
    (line,) = [line for line in report.splitlines() if reported in line]
    assert "mytun-aes256cbc" in line
    assert one.leftovers() == []
