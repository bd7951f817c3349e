"""Reports: offline, escaped, honest."""

import base64
import csv
import gzip
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from synthetic import Truth, large, simulate
from synthetic import write as write_made

from made_results import trial_result, write
from tunnelmark.analysis.estimate import Estimate
from tunnelmark.model.trial import Measurement
from tunnelmark.report import plotly
from tunnelmark.report.charts import Chart, Dot, Line
from tunnelmark.report.figures import to_json
from tunnelmark.report.html import to_html
from tunnelmark.report.latex import escape as latex_escape
from tunnelmark.report.latex import to_latex
from tunnelmark.report.show import change, figure
from tunnelmark.report.summary import summarise
from tunnelmark.report.tables import escape, to_csv, to_markdown
from tunnelmark.report.terminal import kept_columns, print_report
from tunnelmark.store import Result, open_result

_EVIL = '<script>alert(1)</script>"`|'


@pytest.fixture
def result(tmp_path: Path) -> Result:
    results = []
    for repeat in (1, 2, 3, 4):
        for tunnel, rtt in (("openvpn", 2.0e6), ("none", 1.0e6)):
            figures: dict[str, float | None] = {
                "rtt_p50_ns": rtt + repeat,
                "goodput_bit_s": 8e6,
                "loss_forward_ratio": 0.0,
            }
            results.append(trial_result(tunnel, 1000, repeat, figures))
    results.append(trial_result("openvpn", 1000, 5, {}, valid=False))
    return open_result(write(tmp_path, results, title=_EVIL, environment={"cpu": _EVIL}))


def test_the_page_asks_nothing_of_any_other_place(result: Result) -> None:
    page = to_html(summarise(result), result)
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", page)
    assert "@import" not in page
    assert "default-src 'none'; script-src 'unsafe-inline'; style-src" in page


def test_the_page_has_plotly_packed_and_is_small(result: Result) -> None:
    page = to_html(summarise(result), result)
    found = re.search(r'id="plotly-packed">([A-Za-z0-9+/=]+)<', page)
    assert found is not None
    assert gzip.decompress(base64.b64decode(found[1])) == plotly.script()
    assert b"plotly.js (basic - minified) v" + plotly.VERSION.encode() in plotly.script()[:200]
    assert len(page) < 700_000


@pytest.mark.slow
def test_the_page_of_ten_thousand_points_has_five_megabytes_at_most(tmp_path: Path) -> None:
    directory = tmp_path / "many"
    write_made(simulate(large(18_200, 5), Truth(bring_ups=0.01, loss=0.01, burst=5), 1), directory)
    result = open_result(directory)
    summary = summarise(result)
    assert len(summary.points) > 9_000
    assert len(to_html(summary, result).encode()) < 5_000_000


def test_figures_have_no_digit_that_nobody_sees(result: Result) -> None:
    page = to_html(summarise(result), result)
    figures = re.findall(r'class="plot-data"[^>]*>([^<]*)<', page)
    assert figures
    number = re.compile(r"(?<=[\[,])-?[0-9.]+(?=[,\]])")
    numbers = [one for figure in figures for one in number.findall(figure)]
    assert numbers
    assert [one for one in numbers if len(one.strip("-").replace(".", "").lstrip("0")) > 7] == []


def test_names_with_a_mark_stand_in_two_lines_on_the_axis() -> None:
    dots = tuple(Dot(name, 1.0) for name in ("none (simulated)", "<b> (simulated)"))
    chart = Chart("k", "t", "a", "tunnel", "y", (Line("all", 0, dots),), categories=_names(dots))
    axis = json.loads(to_json(chart))["layout"]["xaxis"]
    assert axis["ticktext"] == ["none<br>(simulated)", "&lt;b&gt;<br>(simulated)"]
    assert axis["tickvals"] == ["none (simulated)", "&lt;b&gt; (simulated)"]


def _names(dots: tuple[Dot, ...]) -> tuple[str, ...]:
    return tuple(str(dot.x) for dot in dots)


def test_a_page_may_have_plotly_from_beside_it(result: Result) -> None:
    page = to_html(summarise(result), result, plotly_src=plotly.FILE_NAME)
    assert f'<script src="{plotly.FILE_NAME}"></script>' in page
    assert 'id="plotly-packed"' not in page
    assert len(page) < 100_000


def test_what_comes_from_the_study_is_escaped(result: Result) -> None:
    summary = summarise(result)
    page = to_html(summary, result)
    assert "<script>alert(1)" not in page
    assert "made <b>so</b>" not in page
    assert "made &lt;b&gt;so" in page
    assert "<script>alert" not in to_markdown(summary)


def test_the_terminal_has_80_columns(result: Result) -> None:
    out = io.StringIO()
    print_report(summarise(result), Console(file=out, width=80, no_color=True))
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert "openvpn" in text
    assert "1 invalid" in text


def test_columns_without_room_are_left_out_and_no_figure_is_cut(result: Result) -> None:
    out = io.StringIO()
    print_report(summarise(result), Console(file=out, width=26, no_color=True))
    text = out.getvalue()
    assert "goodput" in text
    assert "…" not in text
    assert "more columns in the HTML report" in " ".join(text.split())
    wide = io.StringIO()
    print_report(summarise(result), Console(file=wide, width=80, no_color=True))
    assert "more columns" not in wide.getvalue()


@given(st.lists(st.integers(1, 30), min_size=2, max_size=8), st.integers(0, 120), st.integers(0, 7))
def test_the_columns_that_are_kept_fit(widths: list[int], room: int, cpu: int) -> None:
    kept = kept_columns(widths, room, cpu=[cpu] if cpu < len(widths) else [])
    assert kept == sorted(set(kept))
    # The first figure and the count are there whatever they need.
    assert {0, len(widths) - 1} <= set(kept)
    if len(kept) > 2:
        assert sum(widths[at] + 1 for at in kept) <= room


def test_csv_has_estimates_and_differences_in_stored_units(result: Result) -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(summarise(result)))))
    rtt = next(
        r
        for r in rows
        if r["tunnel"] == "openvpn" and r["metric"] == "rtt_p50_ns" and r["kind"] == "estimate"
    )
    assert float(rtt["estimate"]) == pytest.approx(2e6, rel=1e-5)
    assert (rtt["unit"], rtt["n"], rtt["invalid_trials"]) == ("ns", "4", "1")
    assert json.loads(rtt["params"])["payload_bytes"] == 1000
    ratio = next(r for r in rows if r["kind"] == "ratio - 1" and r["metric"] == "rtt_p50_ns")
    assert float(ratio["estimate"]) == pytest.approx(1.0, rel=1e-4)


def test_findings_say_only_what_intervals_support(result: Result) -> None:
    findings = " ".join(summarise(result).findings)
    assert "RTT, median of openvpn differs from no tunnel by +100.00 % [" in findings
    # All alike in four repeats: neither a difference nor the proof of none.
    assert "Goodput of openvpn differs" not in findings
    assert "1420 bytes" in findings
    assert "brought up once" in findings


@pytest.mark.parametrize(
    ("estimate", "shown"),
    [
        (None, "-"),
        (Estimate("goodput_bit_s", 3, 7.85e6, 7.8e6, 7.9e6, 0.95, "t"), "7.850 ±0.050"),
        # 1 and 3 Mbit/s were "1.7 ±931": no half can be taken away from 1.7.
        (
            Estimate("goodput_bit_s", 2, 1.73e6, 1.6e3, 1861e6, 0.95, "t on logarithms"),
            "2 [0, 1861]",
        ),
        (Estimate("goodput_bit_s", 1, 7.85e6, None, None, 0.95, "none"), "7.850 (n=1)"),
        (Estimate("loss_forward_ratio", 3, 0.0, 0.0, 0.0, 0.95, "t"), "0"),
        (Estimate("rtt_p50_ns", 3, 41.3e6, 41.2e6, 41.4e6, 0.95, "t"), "41.30 ±0.10"),
    ],
)
def test_digits_follow_the_interval(estimate: Estimate | None, shown: str) -> None:
    assert figure(estimate) == shown


def test_a_difference_has_its_sign_and_interval() -> None:
    found = Estimate("rtt_p50_ns", 3, 0.0123, 0.0111, 0.0135, 0.95, "t on logarithms")
    assert change(found) == "+1.23 % [+1.11, +1.35]"


def test_each_of_several_tunnels_has_its_row(tmp_path: Path) -> None:
    both = [
        replace(
            made,
            measurements=tuple(
                Measurement(path, {"goodput_bit_s": rate})
                for path, rate in (("total", 3e6), ("0", 1e6), ("1", 2e6))
            ),
        )
        for made in (trial_result("openvpn", 1000, repeat, {}) for repeat in (1, 2, 3, 4))
    ]
    result = open_result(write(tmp_path, both))
    page = to_html(summarise(result), result)
    table = page[page.index("Each of several simultaneous tunnels: UDP echo") :]
    rows = re.findall(
        r'<th scope="row">openvpn</th><td>(\d)</td>.*?<td>([\d.]+)</td>', table, re.DOTALL
    )
    assert [(path, float(rate)) for path, rate in rows] == [("0", 1.0), ("1", 2.0)]


def test_latex_shows_what_is_there(result: Result) -> None:
    text = to_latex(summarise(result))
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 1
    assert r"2.0000 [2.0000, 2.0000] &" in text
    assert latex_escape("50 % of $a_b \\ 一") == r"50 \% of \$a\_b \textbackslash{} ?"


def test_markdown_shows_what_is_there() -> None:
    assert escape("a|b *c* `d`\ne") == "a\\|b \\*c\\* \\`d\\` e"


def test_the_metric_that_decides_stands_first_however_narrow_the_terminal(tmp_path: Path) -> None:
    made = [
        trial_result(tunnel, 64, repeat, {"goodput_bit_s": 8e6, "rtt_p50_ns": 1e6 + repeat})
        for tunnel in ("openvpn", "none")
        for repeat in (1, 2, 3, 4)
    ]
    summary = summarise(open_result(write(tmp_path, made, precision_metric="rtt_p50_ns")))
    for width in (30, 44, 80):
        out = io.StringIO()
        print_report(summary, Console(file=out, width=width, no_color=True))
        text = out.getvalue()
        assert "RTT median" in text
        assert "goodput" not in text or text.index("RTT median") < text.index("goodput")


@pytest.mark.parametrize("width", [40, 60, 80])
def test_long_names_of_tunnels_cost_no_figure(tmp_path: Path, width: int) -> None:
    name = "ipsec-transport-3des-with-a-long-label-of-its-author"
    figures: dict[str, float | None] = {
        "goodput_bit_s": 8e6,
        "loss_forward_ratio": 0.0,
        "cpu_tunnel_ratio": 0.02,
        "loss_reverse_ratio": 0.0,
        "overhead_bytes": 80.0,
    }
    made = [
        trial_result(tunnel, 64, repeat, {**figures, "rtt_p50_ns": 41e6 + 1e4 * repeat})
        for tunnel in (name, "none")
        for repeat in (1, 2, 3, 4)
    ]
    summary = summarise(open_result(write(tmp_path, made, precision_metric="rtt_p50_ns")))
    out = io.StringIO()
    print_report(summary, Console(file=out, width=width, no_color=True))
    text = out.getvalue()
    tables = text.split("Key findings")[0]
    assert "RTT median" in tables
    assert len(re.findall(r" 41\.\d+\[41\.\d+,41\.\d+\]", tables)) == 2
    assert "…" not in tables
    assert max(map(len, text.splitlines())) <= width
