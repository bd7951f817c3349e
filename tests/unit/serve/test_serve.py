"""The pages of ``tunnelmark serve``, and what is not let through to them."""

import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from synthetic import Design, Truth, large, simulate
from synthetic import write as write_made

from made_results import manifest, trial_result, write
from tunnelmark.report import plotly
from tunnelmark.report.summary import Summary
from tunnelmark.serve import library
from tunnelmark.serve.app import make_app
from tunnelmark.serve.library import Library
from tunnelmark.serve.runs import BusyError, Runner
from tunnelmark.store import Result, Writer
from tunnelmark.study.points import pair_id

TOKEN = "a-token"  # noqa: S105 - of a test
OURS = "http://127.0.0.1:8642"
EVIL = "<script>alert(1)</script>"
# Stands for ``tunnelmark run --json``: tells two trials, then waits until it is interrupted.
RUN = """
import json, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
def tell(**event): print(json.dumps(event), flush=True)
tell(event="run_started", directory="results/made", trials_min=4, expected_s=60, skipped=[])
tell(event="block_phase", tunnel="wg", link="wan", phase="trials", message="")
for n, valid in enumerate([True, False], 1):
    tell(event="trial_done", tunnel="wg", workload="echo", repeat=n, valid=valid, reasons=["late"],
         figures={"rtt_p50_ns": 4e7}, metric="rtt_p50_ns", trials_done=n, trials_expected=4,
         time_left_s=30)
print("no event", flush=True)
print("said to a person", file=sys.stderr, flush=True)
if "quickstart" in sys.argv: time.sleep(60)
tell(event="run_ended", outcome="complete", message="")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, slower in (("first", 0), ("second", 1e6)):
        made = [
            trial_result(tunnel, size, repeat, {"rtt_p50_ns": rtt + repeat, "goodput_bit_s": 8e6})
            for tunnel, rtt in (("openvpn", 2e6 + slower), ("none", 1e6))
            for size in (64, 1000)
            for repeat in (1, 2, 3, 4)
        ]
        made.append(trial_result("openvpn", 64, 5, {"rtt_p50_ns": 9e6}, valid=False))
        write(tmp_path / "make", made, title=f"{name} {EVIL}", precision_metric="rtt_p50_ns")
        (tmp_path / "results").mkdir(exist_ok=True)
        (tmp_path / "make" / "result").rename(tmp_path / "results" / name)
    return tmp_path / "results"


def client_of(folder: Path, runner: Runner | None = None, **given: str) -> TestClient:
    app = make_app(Library(folder), token=TOKEN, port=8642, runner=runner)
    headers = given or {"Authorization": f"Bearer {TOKEN}"}
    return TestClient(app, base_url=OURS, headers=headers, follow_redirects=False)


@pytest.fixture
def client(folder: Path) -> TestClient:
    return client_of(folder)


@pytest.fixture
def running(folder: Path) -> Iterator[tuple[TestClient, Runner]]:
    runner = Runner(folder, (sys.executable, "-c", RUN))
    yield client_of(folder, runner), runner
    runner.close()


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize(
    "address",
    [
        *("/", "/results/first", "/results/first/points", "/results/first/trials"),
        *("/results/first/progress", "/results/first/progress/part", "/static/live.js"),
        *("/compare?a=first&b=second", "/results/first/trial?id=b1-openvpn64-5&attempt=1"),
    ],
)
def test_every_page_is_there_and_escapes_what_the_study_says(
    client: TestClient, address: str
) -> None:
    answer = client.get(address)
    assert answer.status_code == 200, answer.text
    assert EVIL not in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert "'unsafe-inline'" not in answer.headers["content-security-policy"].split("style-src")[0]
    assert answer.headers["cache-control"] == "no-store"


def test_only_who_has_the_token_sees_anything(folder: Path) -> None:
    client = client_of(folder, Accept="*/*")
    for wrong in ("/", "/?token=", "/?token=other", "/static/live.js", "/results/first?token=a"):
        assert client.get(wrong).status_code == 403
    assert client.get("/", headers={"Authorization": "Bearer b"}).status_code == 403
    assert client.get("/", headers={"Cookie": "tunnelmark-8642=b"}).status_code == 403
    entered = client.get(f"/results/first/trials?valid=no&token={TOKEN}")
    assert entered.status_code == 303
    assert entered.headers["location"] == "/results/first/trials?valid=no"
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert client.get("/").status_code == 200
    elsewhere = client.get(f"{OURS}//evil.example/?token={TOKEN}")
    assert elsewhere.headers["location"] == "/evil.example/"


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "127.0.0.1:80", "evil.example:8642", ""]
)
def test_another_name_for_this_address_is_refused(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"Host": host}).status_code == 421


def test_what_a_header_says_twice_is_not_trusted(client: TestClient) -> None:
    twice = [("Host", "127.0.0.1:8642"), ("Host", "127.0.0.1:8642")]
    assert client.get("/", headers=twice).status_code == 421


@pytest.mark.parametrize(
    "name",
    ["%2e%2e", "..%2fsecret", "%2e%2e%2fsecret", "link", ".hidden", "a%00b", "x" * 300, "nothing"],
)
def test_no_path_leads_out_of_the_folder(folder: Path, name: str) -> None:
    secret = folder.parent / "secret"
    shutil.copytree(folder / "first", secret)
    shutil.copytree(folder / "first", folder / ".hidden")
    (folder / "link").symlink_to(secret)
    client = client_of(folder)
    for page in ("", "/points", "/trials", "/progress"):
        assert client.get(f"/results/{name}{page}").status_code == 404
    assert client.get(f"/compare?a=first&b={name}").status_code == 404
    assert client.get("/static/..%2fguard.py").status_code == 404
    assert client.get("/").text.count('<th scope="row">') == 2


def test_points_are_filtered_and_drawn(client: TestClient) -> None:
    page = client.get("/results/first/points?tunnel=openvpn&text=1000").text
    assert "1 of 4 points" in page
    # What the figures are of stands above them.
    assert page.index("<h3>UDP echo</h3>") < page.index('class="plot-data"')
    assert f'src="/static/{plotly.FILE_NAME}"' in page
    assert "0 of 4 points" in client.get("/results/first/points?tunnel=%3Cb%3E").text
    assert len(client.get(f"/static/{plotly.FILE_NAME}").content) > 1_000_000


@pytest.mark.slow
def test_the_first_picture_of_ten_thousand_points_needs_no_whole_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the whole report decides takes seconds at this size: the points come without it."""
    write_made(simulate(large(10_000, 2), Truth(), 1), tmp_path / "results" / "many")

    def never(_result: Result) -> Summary:
        raise AssertionError("the whole report was made")

    monkeypatch.setattr(library, "summarise", never)
    client = client_of(tmp_path / "results")
    for query, most in (("", 200), ("?tunnel=a", 200), ("?tunnel=a&text=no-such", 0)):
        page = client.get(f"/results/many/points{query}").text
        # So few are drawn and listed that a browser has no more to do than with a small result.
        assert page.count('<th scope="row"') <= most * 2
        assert (page.count('class="plot-data"') > 0) == (most > 0)
        assert page.count('class="plot-data"') <= 50
        assert len(page) < 1_000_000
    assert "showing the first 200" in client.get("/results/many/points").text


def test_what_reads_a_study_is_there_before_the_first_page() -> None:
    code = """
import pathlib, sys
from starlette.testclient import TestClient
from tunnelmark.serve.app import make_app
from tunnelmark.serve.library import Library
with TestClient(make_app(Library(pathlib.Path(".")), token="t", port=8642)):
    wanted = {"tunnels.openvpn", "workloads.udp_echo", "links.serial"}
    sys.exit(not wanted <= {name.removeprefix("tunnelmark.") for name in sys.modules})
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=120)
    assert done.returncode == 0


def test_points_are_those_of_the_report_and_of_what_changed_since(folder: Path) -> None:
    shelf = library.Library(folder)
    first = shelf.points("first")[1]
    assert first == shelf.summary("first")[1].points
    assert shelf.points("first")[1] is shelf.summary("first")[1].points
    results = [trial_result("openvpn", 64, n, {"rtt_p50_ns": 5e6}) for n in (1, 2)]
    shutil.rmtree(folder / "first")
    write(folder.parent / "make", results, title="again", precision_metric="rtt_p50_ns")
    (folder.parent / "make" / "result").rename(folder / "first")
    (point,) = shelf.points("first")[1]
    assert point.valid == 2


def test_an_invalid_trial_says_why(client: TestClient) -> None:
    page = client.get("/results/first/trials?valid=no").text
    assert "1 trial<" in page
    assert "no: made &lt;b&gt;so" in page
    trial = client.get("/results/first/trial?id=b1-openvpn64-5&attempt=1").text
    assert "Invalid" in trial
    assert "made &lt;b&gt;so" in trial
    assert re.search(r"<td>9\.0+ ms</td>", trial)
    assert client.get("/results/first/trial?id=nothing").status_code == 404
    for odd in ("page=-1", "page=999999999", "page=%C2%B2", "valid=%00"):
        assert client.get(f"/results/first/trials?{odd}").status_code == 200


def test_the_two_results_that_are_picked_are_of_one_study(folder: Path) -> None:
    results = [trial_result("openvpn", 64, 1, {"rtt_p50_ns": 5e6})]
    write(folder.parent / "make", results, study="other", started_at="2027-01-01T00:00:00+00:00")
    (folder.parent / "make" / "result").rename(folder / "newest")
    picked = re.findall(r'name="([ab])" value="(\w+)"[^>]*checked', client_of(folder).get("/").text)
    assert picked == [("b", "newest")]
    shutil.rmtree(folder / "newest")
    picked = re.findall(r'name="([ab])" value="(\w+)"[^>]*checked', client_of(folder).get("/").text)
    assert sorted(side for side, _ in picked) == ["a", "b"]


def test_two_results_are_compared(client: TestClient) -> None:
    page = client.get("/compare?a=first&b=second&all=yes").text
    assert "+50.0" in page
    assert client.get("/compare").status_code == 422
    assert "--force" not in page


def test_what_the_command_refuses_or_leaves_out_is_named_on_the_page(folder: Path) -> None:
    """A run of another study, of one tunnel of which every repeat lacks its baseline."""
    made = [
        trial_result(tunnel, 64, repeat, {"rtt_p50_ns": 2e6 + repeat}, valid=tunnel != "none")
        for tunnel in ("openvpn", "none")
        for repeat in (1, 2, 3, 4)
    ]
    made += [
        trial_result(tunnel, 1000, repeat, {"rtt_p50_ns": 2e6 + repeat})
        for tunnel in ("openvpn", "none")
        for repeat in (1, 2, 3, 4)
    ]
    write(folder.parent / "make", made, study="other", precision_metric="rtt_p50_ns")
    (folder.parent / "make" / "result").rename(folder / "third")
    page = client_of(folder).get("/compare?a=first&b=third&all=yes&baseline=yes").text
    assert "Not comparable: the study is made in A and other in B." in page
    assert "refuses these two without <code>--force</code>" in page
    left_out = "openvpn, 8 Mbit/s, udp_echo 64: RTT, median (no repeat in B has a baseline beside"
    assert f"Left out: {left_out}" in page


def test_a_damaged_result_is_listed_with_the_reason(folder: Path) -> None:
    (folder / "second" / "manifest.json").write_text("{")
    client = client_of(folder)
    page = client.get("/").text
    assert "is damaged" in page
    assert client.get("/results/second").status_code == 422
    assert client.get("/results/first").status_code == 200


def test_a_result_that_is_being_written_is_shown_as_far_as_it_is(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path / "now", manifest(precision_metric="rtt_p50_ns"))
    client = client_of(tmp_path)
    try:
        first = client.get("/results/now/progress/part").text
        assert "0 valid trials" in first
        assert "no trial has been written yet" in first
        assert client.get("/results/now").status_code == 200
        for repeat in (1, 2):
            one = trial_result("openvpn", 64, repeat, {"rtt_p50_ns": 2e6})
            writer.append(one, pair_id=pair_id(one.trial.point))
            part = client.get("/results/now/progress/part").text
            assert f"{repeat} valid trial" in part
            assert "data-ended" not in part
            # The summary that is kept is not the one of before.
            assert f"{repeat} valid trial" in client.get("/results/now").text
        writer.update(outcome="complete")
        assert "data-ended" in client.get("/results/now/progress/part").text
    finally:
        writer.close()


def test_nothing_is_missing_from_a_run_that_has_ended(tmp_path: Path) -> None:
    """What could not run here is left out of a run: it counts for neither bar nor minimum."""
    made = simulate(Design(), Truth(), 1)
    client = client_of(tmp_path)
    changes: dict[str, dict[str, object]] = {
        "ended": {"outcome": "complete"},
        "now": {"outcome": None},
        "skipped": {"outcome": None, "skipped": {"a": "not here"}},
    }
    for name, change in changes.items():
        made.manifest = made.manifest.model_copy(update=change)
        write_made(made, tmp_path / name)
    said = {name: client.get(f"/results/{name}/progress/part").text for name in changes}
    least = {name: re.findall(r"of at least (\d+)", text) for name, text in said.items()}
    assert least == {"ended": [], "now": ["48"], "skipped": ["24"]}
    assert ["<progress" in text for text in said.values()] == [False, True, True]


def test_a_folder_that_is_a_result_shows_no_other(folder: Path) -> None:
    client = client_of(folder / "first")
    assert client.get("/results/first").status_code == 200
    assert client.get("/results/second").status_code == 404
    assert "second" not in client.get("/").text


def test_it_only_reads_unless_runs_are_allowed(client: TestClient) -> None:
    assert client.get("/run").status_code == 404
    for address in ("/run", "/run/stop", "/", "/results/first"):
        assert client.post(address, headers={"Origin": OURS}).status_code in {404, 405}
    assert client.delete("/results/first", headers={"Origin": OURS}).status_code in {405, 413}


def test_a_run_is_started_watched_and_stopped(running: tuple[TestClient, Runner]) -> None:
    client, runner = running
    ours = {"Origin": OURS}
    page = client.get("/run").text
    assert 'value="office short"' in page
    assert re.findall(r'value="quickstart (\w+)"', page) == ["full"], "it has no other scale"
    wanted = {"study": "quickstart full"}
    for other in ({}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
        assert client.post("/run", data=wanted, headers=other).status_code == 403
    for wrong in ("../x full", "quickstart -x", "quickstart smoke", "quickstart", ""):
        assert client.post("/run", data={"study": wrong}, headers=ours).status_code == 422
    assert client.post("/run", content=b"a" * 5000, headers=ours).status_code == 413
    assert runner.progress() is None

    assert client.post("/run", data=wanted, headers=ours).status_code == 303
    until(lambda: "said to a person" in client.get("/run/part").text)
    part = client.get("/run/part").text
    assert "2 of 4 trials" in part
    assert "1 invalid" in part
    assert "s left" in part
    assert "RTT, median 40.0" in part
    assert "no event" in part
    assert "wg, echo, repeat 2: invalid: late" in part
    second = client.post("/run", data=wanted, headers=ours)
    assert second.status_code == 409
    assert "another run is in progress" in second.text

    assert client.post("/run/stop", headers={**ours, "Content-Length": "0"}).status_code == 303
    until(lambda: "data-ended" in client.get("/run/part").text)
    assert "interrupted" in client.get("/run/part").text
    # After its end another one may start, and ends by itself.
    assert client.post("/run", data={"study": "office short"}, headers=ours).status_code == 303
    until(lambda: "complete" in client.get("/run/part").text)


def test_of_two_starts_at_once_one_is_refused(folder: Path) -> None:
    runner = Runner(folder, (sys.executable, "-c", RUN))
    refused = []
    ready = threading.Barrier(4)

    def start() -> None:
        ready.wait()
        try:
            runner.start("quickstart", "full")
        except BusyError as error:
            refused.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    runner.close()
    assert len(refused) == 3
    ended = runner.progress()
    assert ended is not None
    assert ended.ended
