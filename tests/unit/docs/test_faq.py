"""docs/faq.md says what the program does: ports, phases, limits, folders of a result."""

import re
from pathlib import Path
from typing import Final, get_args

import pytest

from tunnelmark.model.block import Phase
from tunnelmark.model.registry import make
from tunnelmark.model.rules import Precision
from tunnelmark.model.trial import DriverSpec
from tunnelmark.store.layout import FOLDERS, MANIFEST
from tunnelmark.study.drivers import MOST_POINTS
from tunnelmark.study.hypotheses import MOST_HYPOTHESES
from tunnelmark.study.recipes import MOST_RECIPES
from tunnelmark.tunnels.registry import tunnel_kinds
from tunnelmark.workloads.registry import workload_kinds

PAGE: Final = (Path(__file__).parents[3] / "docs/faq.md").read_text(encoding="utf-8")
_SECTIONS: Final = dict(part.split("\n", 1) for part in PAGE.split("\n## ")[1:])


def _rows(section: str) -> dict[str, str]:
    """Return what the rows of a section's table say, by each name in their first column."""
    rows = re.findall(r"^\| (`[^|]+) \| ([^|]+) \|$", _SECTIONS[section], re.MULTILINE)
    return {name: words for names, words in rows for name in re.findall(r"`([^`]+)`", names)}


@pytest.mark.parametrize("kind", sorted(tunnel_kinds().keys() - {"none"}))
def test_it_has_the_ports_of_each_tunnel(kind: str) -> None:
    words = _rows("Which ports do tunnels use?")[kind]
    tunnel = make(tunnel_kinds(), DriverSpec(kind, kind, {}))
    for ports in tunnel.forwarded() or ():
        assert f"{ports.protocol.upper()} {ports.first}" in words


def test_it_has_every_phase_and_every_folder() -> None:
    phases = _rows("What do the phases in the progress display mean?")
    assert phases.keys() == {*get_args(Phase), "again"}
    found = _rows("What is in a result directory?")
    assert found.keys() == {MANIFEST, *(f"{name}/" for name in FOLDERS)}


def test_its_limits_are_those_of_the_program() -> None:
    limits = _SECTIONS["How large may a study be?"]
    for words in (
        f"{MOST_POINTS:,} points",
        f"{MOST_HYPOTHESES} hypotheses",
        f"{MOST_RECIPES} recipes",
    ):
        assert words in limits
    most = Precision.model_fields["max_invalid"].default
    assert f"({most} unless the study says otherwise)" in PAGE


def test_it_names_the_workloads_that_give_the_default_metric() -> None:
    section = next(text for name, text in _SECTIONS.items() if "does not give" in name)
    default = Precision.model_fields["metric"].default
    named = set(
        re.findall(r"`([a-z_]+)`", section.partition("is given only by")[2].partition(". ")[0])
    )
    assert named == {kind for kind, one in workload_kinds().items() if default in one.metrics}
