"""The README names what there is: every driver, device and built-in study."""

import re
from pathlib import Path

import pytest

from tunnelmark.devices.registry import DEVICES
from tunnelmark.links.registry import link_kinds
from tunnelmark.study import list_studies
from tunnelmark.tunnels.registry import tunnel_kinds
from tunnelmark.workloads.registry import workload_kinds

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(sorted(tunnel_kinds()), id="tunnels"),
        pytest.param(sorted(link_kinds()), id="links"),
        pytest.param(sorted(workload_kinds()), id="workloads"),
        pytest.param(sorted(DEVICES), id="devices"),
        pytest.param(sorted(list_studies()), id="studies"),
    ],
)
def test_the_readme_names_every_one(names: list[str]) -> None:
    told = set(re.findall(r"`([a-z0-9_-]+)`", README.read_text(encoding="utf-8")))
    assert [name for name in names if name not in told] == []


def test_every_page_of_the_readme_is_there() -> None:
    pages = re.findall(r"\]\(([^)]+)\)", README.read_text(encoding="utf-8"))
    assert pages
    assert [page for page in pages if not (README.parent / page).exists()] == []
