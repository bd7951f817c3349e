"""The site is built without a network, has no broken link and loads nothing from elsewhere."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

_WITHOUT_NETWORK = """
import socket, sys
def refuse(*_args, **_kwargs):
    raise OSError("the site is built without a network")
socket.socket.connect = socket.getaddrinfo = refuse
from mkdocs.__main__ import cli
sys.exit(cli(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``make docs`` builds; a broken link or a page outside the menu fails it."""
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-c", _WITHOUT_NETWORK, "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


class _Loads(HTMLParser):
    """Collects what a browser fetches for a page, which is not what a reader may click."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        loads = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src"}
        at = loads.get(tag)
        if at is not None and given.get("rel") != "canonical":
            self.found.append(given.get(at) or "")


def test_every_page_is_in_the_site(site: Path) -> None:
    docs = ROOT / "docs"
    pages = [page.relative_to(docs).with_suffix(".html") for page in docs.rglob("*.md")]
    assert [str(page) for page in pages if not (site / page).is_file()] == []


def test_a_page_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loads = _Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        assert loads.found, page
        assert [one for one in loads.found if re.match(r"(https?:)?//", one)] == [], page


def test_a_style_loads_nothing_from_elsewhere(site: Path) -> None:
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^)\"']*", text) == [], style
