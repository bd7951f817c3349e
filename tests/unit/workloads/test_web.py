"""Web pages: their objects, what curl reports about loading them, and what a study may ask for."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from tunnelmark.workloads import curl
from tunnelmark.workloads.corpus import File
from tunnelmark.workloads.pages import Page, figures, read_pages, site
from tunnelmark.workloads.web import Web, WebParams

FILES = (File("document", b"d" * 10), File("small-000", b"s" * 20), File("large-00", b"l" * 70))


def account(name: str, **changes: Any) -> str:
    values = {
        "exitcode": 0,
        "errormsg": None,
        "http_code": 200,
        "num_connects": 1,
        "size_download": {file.name: len(file.data) for file in FILES}.get(name, 0),
        "size_upload": 0,
        "time_connect": 0.1,
        "time_appconnect": 0.0,
        "time_starttransfer": 0.2,
        "time_total": 0.5,
        "url": f"http://127.0.0.1:7700/{name}",
    }
    return json.dumps(values | changes)


def page(number: int, *names: str) -> list[str]:
    return [
        f"document {number}",
        account("document"),
        f"objects {number}",
        *(account(name) for name in names or ("large-00", "small-000")),
        f"done {number}",
    ]


def trace(number: int, *, seconds: int = 2) -> str:
    return (
        f"document {number}\n10:00:00.000000 *   Trying 127.0.0.1:7700...\n"
        "10:00:01.000000 * Connection #0 to host 127.0.0.1 left intact\n"
        f"objects {number}\n10:00:01.100000 *   Trying 127.0.0.1:7700...\n"
        f"10:00:0{1 + seconds}.100000 * Connection #3 to host 127.0.0.1 left intact\n"
    )


def test_a_page_takes_as_long_as_its_two_parts() -> None:
    lines, text = page(1) + page(2), trace(1) + trace(2, seconds=4)
    pages = read_pages(lines, text, FILES)
    assert [p.seconds for p in pages] == pytest.approx([3.0, 5.0])
    assert [p.payload_bytes for p in pages] == [100, 100]
    assert pages[0].first_byte_s == 0.2
    assert pages[0].objects_s == (0.5, 0.5)


def test_a_page_that_was_broken_off_does_not_count() -> None:
    pages = read_pages(page(1) + page(2)[:-2], trace(1) + trace(2), FILES)
    assert len(pages) == 1
    assert read_pages([], "", FILES) == ()


@pytest.mark.parametrize(
    ("lines", "text", "message"),
    [
        (page(1, "small-000"), trace(1), "large-00 has 0 bytes of 70"),
        ([*page(1)[:-1], account("small-000", size_download=7), "done 1"], trace(1), "7 bytes of"),
        ([*page(1)[:-1], account("small-000", http_code=500), "done 1"], trace(1), "0 bytes of 20"),
        ([*page(1)[:-1], "{", "done 1"], trace(1), "damaged at document"),
        (page(1), "", "curl reported no times of page 1"),
    ],
)
def test_what_is_short_or_damaged_is_refused(lines: list[str], text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_pages(lines, text, FILES)


def test_figures_of_several_paths() -> None:
    quick, slow = Page(1.0, 0.1, (0.2, 0.4), 100), Page(3.0, 0.3, (0.6, 0.8), 100)
    found = figures([[quick, quick], [slow]])
    assert found["web_page_p50_ns"] == 1e9
    assert found["web_page_max_ns"] == 3e9
    assert found["web_page_p95_ns"] is None, "the slowest of three pages is no 95th percentile"
    assert found["web_ttfb_p50_ns"] == 0.1e9
    assert found["web_object_p50_ns"] == pytest.approx(0.4e9)
    assert found["web_object_p95_ns"] is None
    assert found["web_goodput_bit_s"] == pytest.approx(800 + 100 * 8 / 3)
    assert set(figures([])) == set(Web.metrics)
    assert set(figures([[]]).values()) == {None}


def test_the_time_of_a_trial_has_the_pauses_in_which_the_tunnel_works_too() -> None:
    web = Web(Web.params_type.model_validate({"pages": 3, "pause": "10 s"}))
    context: Any = SimpleNamespace(paths=[SimpleNamespace(mtu_bytes=1500)])
    pages = (Page(0.2, 0.1, (), 100),) * 3
    outcome = web._outcome(context, [("0", pages)], ())
    assert outcome.measuring_s == pytest.approx(3 * 0.2 + 2 * 10)
    assert outcome.measurements[0].metrics["web_page_p50_ns"] == 0.2e9


def test_one_page_in_twenty_takes_longer_than_the_95th_percentile() -> None:
    def found(count: int) -> dict[str, float | None]:
        one, *other = [Page(float(k), 0.1, (float(k),), 100) for k in range(1, count + 1)]
        return figures([other, [one]])

    # 95 % of 60 and of 100 are whole numbers: 57 of 60 take no longer, three do.
    for count, place in ((60, 57), (61, 58), (100, 95), (119, 114)):
        assert found(count)["web_page_p95_ns"] == place * 1e9
        assert found(count)["web_object_p95_ns"] == place * 1e9
    assert found(59)["web_page_p95_ns"] is None
    assert found(59)["web_object_p95_ns"] is None


def test_a_percentile_that_can_never_be_is_withheld() -> None:
    usual = Web(WebParams())
    assert usual.withheld("web_page_p95_ns") == (
        "pages is 10, a 95th percentile needs at least 60: load more"
    )
    assert usual.withheld("web_page_p50_ns") is None
    assert usual.withheld("web_object_p95_ns") is None, "ten pages have 440 objects"
    assert Web(WebParams(pages=60)).withheld("web_page_p95_ns") is None
    few = Web(WebParams(pages=2, small=10, large=0))
    assert few.withheld("web_object_p95_ns") == (
        "pages have 20 objects, a 95th percentile needs at least 60: load more"
    )
    # All paths load all pages.
    assert few.withheld("web_object_p95_ns", 2) == (
        "pages have 20 objects on each of 2 paths, a 95th percentile needs at least 60: load more"
    )
    assert few.withheld("web_object_p95_ns", 3) is None


def test_a_site_has_what_was_asked_for() -> None:
    files = site(1000, (3, 200), (2, 5000), 1)
    assert [(file.name, len(file.data)) for file in files] == [
        ("document", 1000),
        *((f"small-{n:03}", 200) for n in range(3)),
        *((f"large-{n:03}", 5000) for n in range(2)),
    ]
    assert site(1000, (3, 200), (0, 5000), 1) == files[:4]
    assert len({file.sha256 for file in files}) == len(files)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"http": "2", "protocol": "http"}, "goes with protocol = 'https' only"),
        ({"small": 0, "large": 0}, "at least one object"),
        ({"pages": 10_000}, "at most 50000"),
        ({"large": 10, "large_bytes": "100 MB"}, "at most 536870912"),
    ],
)
def test_what_a_study_may_not_ask_for(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        WebParams.model_validate(values)


def test_curl_writes_no_progress_into_its_trace() -> None:
    """``--silent`` does not keep it from that where transfers are parallel."""
    assert "--no-progress-meter" in curl.arguments(source="198.18.0.1")
