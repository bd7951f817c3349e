"""Pages in a real browser: figures are drawn, nothing serious keeps anybody from reading them.

Chromium writes what a page has become; axe-core (its npm package, unchanged, MPL-2.0) looks for
what a keyboard or a screen reader cannot use.
"""

import gzip
import html
import json
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import uvicorn
from starlette.testclient import TestClient

from made_results import trial_result, write
from tunnelmark.report.html import to_html
from tunnelmark.report.summary import summarise
from tunnelmark.serve.app import make_app
from tunnelmark.serve.library import Library
from tunnelmark.serve.runs import Runner
from tunnelmark.store import open_result

AXE = Path(__file__).with_name("axe-4.14.1.min.js.gz")
RUN_AXE = """
setTimeout(() => axe.run().then(found => {
  const said = document.createElement("pre");
  said.id = "axe";
  said.textContent = JSON.stringify(found.violations.map(
    one => [one.id, one.impact, one.nodes.map(node => node.html.slice(0, 200))]));
  document.body.append(said);
}), 3000);
"""
DARK = "--blink-settings=preferredColorScheme=0"
TOKEN = "a-token"  # noqa: S105 - of a test


@pytest.fixture
def chromium(tmp_path: Path) -> tuple[str, ...]:
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("no chromium")
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    # Without its sandbox: tests run as root, and the pages are ours.
    return (found, "--headless", "--no-sandbox", "--disable-gpu", profile)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    made = [
        trial_result(
            tunnel, size, repeat, {"rtt_p50_ns": rtt + size + repeat, "goodput_bit_s": 8e6}
        )
        for tunnel, rtt in (("openvpn", 2e6), ("none", 1e6))
        for size in (64, 1000)
        for repeat in (1, 2, 3, 4)
    ]
    made.append(trial_result("openvpn", 64, 5, {"rtt_p50_ns": 9e6}, valid=False))
    write(tmp_path / "results", made, precision_metric="rtt_p50_ns", title="Made for a browser")
    return tmp_path / "results"


def became(chromium: tuple[str, ...], address: str, *further: str) -> str:
    """Return what a page has become a while after it was opened."""
    words = [*chromium, *further, "--virtual-time-budget=10000", "--dump-dom", address]
    return subprocess.run(words, capture_output=True, check=True, text=True, timeout=200).stdout


def serious(chromium: tuple[str, ...], page: str, file: Path, *further: str) -> list[str]:
    """Return what axe finds that keeps somebody from using a page."""
    axe = gzip.decompress(AXE.read_bytes()).decode()
    # Without the policy of a server: axe is no script of ours.
    scripts = f"<script>{axe}</script><script>{RUN_AXE}</script></body>"
    file.write_text(page.replace("</body>", scripts))
    found = re.search(
        r'<pre id="axe">(.*?)</pre>', became(chromium, f"file://{file}", *further), re.DOTALL
    )
    assert found is not None, "axe said nothing"
    said = json.loads(html.unescape(found[1]))
    return [str(one) for one in said if one[1] in {"serious", "critical"}]


@pytest.mark.parametrize("look", [(), (DARK,)], ids=["light", "dark"])
def test_anybody_can_read_the_report(
    chromium: tuple[str, ...], results: Path, tmp_path: Path, look: tuple[str, ...]
) -> None:
    result = open_result(results / "result")
    page = to_html(summarise(result), result)
    assert serious(chromium, page, tmp_path / "page.html", *look) == []


def test_the_figures_are_drawn_from_the_page_itself(
    chromium: tuple[str, ...], results: Path, tmp_path: Path
) -> None:
    result = open_result(results / "result")
    page = to_html(summarise(result), result)
    file = tmp_path / "page.html"
    file.write_text(page)
    figures = page.count('class="plot-data"')
    assert figures > 0
    # Plotly puts one of these around each figure that it drew.
    assert became(chromium, f"file://{file}").count('class="plot-container') == figures


@pytest.mark.parametrize("uses", [1, 2, 30])
def test_the_first_page_prints_on_one_sheet(
    chromium: tuple[str, ...], results: Path, tmp_path: Path, uses: int
) -> None:
    result = open_result(results / "result")
    summary = summarise(result)
    page = to_html(replace(summary, uses=summary.uses * uses), result)
    # Only it: what follows begins on a sheet of its own.
    end = page.index("</section>") + len("</section>")
    file, printed = tmp_path / "page.html", tmp_path / "page.pdf"
    file.write_text(page[:end].replace("break-after: page", "") + "</main></body></html>")
    words = [*chromium, f"--print-to-pdf={printed}", "--no-pdf-header-footer", f"file://{file}"]
    subprocess.run(words, capture_output=True, check=True, timeout=200)
    assert len(re.findall(rb"/Type\s*/Page[^s]", printed.read_bytes())) == 1


@pytest.mark.parametrize(
    "address",
    [
        *("/", "/run", "/results/result/points", "/results/result/trials?valid=no"),
        *("/results/result/trial?id=b1-openvpn64-5", "/compare?a=result&b=result&all=yes"),
    ],
)
def test_anybody_can_use_the_pages_of_the_server(
    chromium: tuple[str, ...], results: Path, tmp_path: Path, address: str
) -> None:
    app = make_app(Library(results), token=TOKEN, port=8642, runner=Runner(results, ("false",)))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    client = TestClient(app, base_url="http://127.0.0.1:8642", headers=headers)
    page = client.get(address).text
    assert serious(chromium, page, tmp_path / "page.html") == []


@pytest.fixture
def served(results: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        app = make_app(Library(results), token=TOKEN, port=port)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield f"http://127.0.0.1:{port}"
        server.should_exit = True
        thread.join()


def test_a_browser_gets_in_by_the_address_and_draws_under_the_policy(
    chromium: tuple[str, ...], served: str
) -> None:
    for page in ("/results/result", "/results/result/points?tunnel=openvpn"):
        mark = "&" if "?" in page else "?"
        drawn = became(chromium, f"{served}{page}{mark}token={TOKEN}")
        assert "Made for a browser" in drawn
        assert 'class="plot-container' in drawn
    refused = became(chromium, f"{served}/?token=wrong", "--incognito")
    assert "Open the address that tunnelmark serve printed" in refused
