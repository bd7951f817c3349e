"""Verdicts on a study's own hypotheses, from its result directory to the screen."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from made_results import trial_result, write
from tunnelmark.model.errors import LabError
from tunnelmark.report.families import Deciding
from tunnelmark.report.summary import summarise
from tunnelmark.report.terminal import print_report
from tunnelmark.report.verdicts import as_event, deciding_of, moments_of, needed, verdicts_of
from tunnelmark.store import Result, open_result
from tunnelmark.study import load_study

STUDY = """\
format = 1
name = "made"
title = "Made"
[precision]
min_repeats = 4
max_repeats = 4
[[tunnel]]
kind = "openvpn"
label = "openvpn"
cipher = "AES-256-GCM"
[[link]]
kind = "serial"
rate = "8 Mbit/s"
label = "8 Mbit/s"
[[workload]]
kind = "udp_echo"
gap = "5 ms"
packets = 9
payload_bytes = [64, 1000]
[[hypothesis]]
name = "slower"
claim = "OpenVPN [red]delays[/red]"
kind = "superiority"
metric = "rtt_p50_ns"
groups = [{ tunnel = "none" }, { tunnel = "openvpn" }]
where = { payload_bytes = 1000 }
[[hypothesis]]
name = "large"
kind = "threshold"
metric = "goodput_bit_s"
at_least = "8 Mbit/s"
where = { payload_bytes = 1000, tunnel = "openvpn" }
"""


def made(tmp_path: Path, text: str) -> Path:
    results = []
    for repeat, noise in enumerate((0.02, -0.01, 0.005, -0.02), start=1):
        for tunnel, rtt in (("openvpn", 2e6), ("none", 1e6)):
            figures = {
                "rtt_p50_ns": rtt * (1 + noise * rtt / 1e6),
                "goodput_bit_s": 8e6 * (1 + noise / 9),
            }
            results.append(trial_result(tunnel, 1000, repeat, dict(figures)))
        results.append(trial_result("openvpn", 64, repeat, {"rtt_p50_ns": 1e6 * (1 + noise)}))
    return write(tmp_path, results, study_text=text, confidence=0.95)


def test_the_verdicts_follow_from_the_study_in_the_directory(tmp_path: Path) -> None:
    result = open_result(made(tmp_path, STUDY))
    slower, large = verdicts_of(result)[0]
    assert (slower.hypothesis.name, slower.outcome) == ("slower", "confirmed")
    assert slower.deciding is not None
    assert slower.deciding.side == "below"
    assert large.outcome == "undecided"
    assert needed(slower) == ""
    assert "settle it" in needed(large)
    event = json.loads(json.dumps(as_event(slower)))
    assert (event["event"], event["outcome"]) == ("verdict", "confirmed")
    assert event["deciding"]["metric"] == "rtt_p50_ns"


def test_the_terminal_shows_them_as_text(tmp_path: Path) -> None:
    out = io.StringIO()
    summary = summarise(open_result(made(tmp_path, STUDY)))
    print_report(summary, Console(file=out, width=80, no_color=True))
    text = " ".join(out.getvalue().split())
    assert "confirmed OpenVPN [red]delays[/red]: " in text
    assert "undecided large: " in text


def test_a_study_that_cannot_be_read_any_more_is_reported_without_verdicts(tmp_path: Path) -> None:
    gone = STUDY.replace('kind = "openvpn"', 'kind = "a-kind-of-old"')
    summary = summarise(open_result(made(tmp_path, gone)))
    assert summary.verdicts == ()
    assert any("hypotheses of the study are not judged: made.toml:" in f for f in summary.findings)
    assert summary.points


TRACE = STUDY.replace(
    "min_repeats = 4\nmax_repeats = 4", "min_repeats = 4\nmax_repeats = 8"
).replace('kind = "serial"\nrate = "8 Mbit/s"', 'kind = "trace"\nforward = "PATH"')


@pytest.fixture
def traced(tmp_path: Path) -> tuple[Result, Path]:
    """Return a result over a recorded line, and the recording."""
    trace, study = tmp_path / "up.trace", tmp_path / "made.toml"
    trace.write_text("1\n2\n3\n")
    study.write_text(TRACE.replace("PATH", str(trace)), "utf-8")
    return open_result(made(tmp_path, load_study(str(study)).text)), trace


def judged(result: Result) -> tuple[object, ...]:
    return moments_of(result), deciding_of(result), verdicts_of(result)


def test_a_trace_that_is_edited_afterwards_changes_no_report(traced: tuple[Result, Path]) -> None:
    result, trace = traced
    before = judged(result)
    assert (moments_of(result), len(verdicts_of(result)[0])) == (3, 2)
    trace.write_text("1\n2\n4\n")
    assert judged(result) == before


def test_without_its_trace_a_result_has_the_same_figures(traced: tuple[Result, Path]) -> None:
    result, trace = traced
    before = summarise(result)
    trace.unlink()
    after = summarise(result)
    assert (after.statements, after.sections) == (before.statements, before.sections)
    assert any("are not judged" in finding for finding in after.findings)


def test_a_trace_that_cannot_be_read_costs_the_verdicts_alone(
    traced: tuple[Result, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> bytes:
        raise LabError(f"{path}: cannot be read: Permission denied")

    monkeypatch.setattr("tunnelmark.links.trace._read", refuse)
    result, trace = traced
    summary = summarise(result)
    assert summary.verdicts == ()
    assert f"are not judged: {trace}: cannot be read: Permission denied." in " ".join(
        summary.findings
    )


@pytest.mark.parametrize(
    "text", ["", "x = [", "format = 1\nprecision = 2", "format = 2", "format = 1\nscale = 3"]
)
def test_a_study_of_a_stranger_is_no_error(tmp_path: Path, text: str) -> None:
    result = open_result(made(tmp_path, text))
    assert moments_of(result) == 1
    assert deciding_of(result) == {"udp_echo": Deciding("goodput_bit_s", own=False)}
