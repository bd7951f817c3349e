"""What a report tells: decided once, said the same everywhere."""

import io
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from made_points import point
from made_results import trial_result, write
from tunnelmark.analysis.compare import Change
from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.report.compared import row
from tunnelmark.report.document import to_json
from tunnelmark.report.findings import findings
from tunnelmark.report.html import to_html
from tunnelmark.report.sections import sections
from tunnelmark.report.show import difference
from tunnelmark.report.statements import statements_of
from tunnelmark.report.summary import Summary, summarise
from tunnelmark.report.tables import to_markdown
from tunnelmark.report.terminal import print_report
from tunnelmark.store import open_result

NOISE = (0.0001, -0.0002, 0.00015, -0.00005, 0.0002, -0.0001)


def made(folder: Path, rtt: dict[str, float], *, repeats: int = 6, bring_ups: int = 1) -> Summary:
    """Return the report of tunnels with so many times the delay of no tunnel, each in a block."""
    results = []
    for number, (tunnel, times) in enumerate(rtt.items()):
        for size in (64, 1000):
            for repeat in range(1, repeats + 1):
                for name, factor in ((tunnel, times), ("none", 1.0)):
                    noise = NOISE[(repeat + size + number * 2 + (name == "none")) % len(NOISE)]
                    figures: dict[str, float | None] = {
                        "rtt_p50_ns": 1e6 * factor * (1 + noise),
                        "loss_forward_ratio": 0.0,
                    }
                    if times > 50:
                        figures = {"goodput_bit_s": 0.0, "loss_forward_ratio": 1.0}
                    one = trial_result(name, size, repeat, figures, block=f"b{number}")
                    up = (repeat - 1) * bring_ups // repeats + 1
                    results.append(replace(one, trial=replace(one.trial, bring_up=up)))
    return summarise(open_result(write(folder, results, precision_metric="rtt_p50_ns")))


def test_each_tunnel_has_the_number_of_points_that_its_own_mean_is_of() -> None:
    """Of one tunnel two of three sizes had a valid trial."""

    def points(name: str, by: float, sizes: Sequence[int]) -> list[PointEstimates]:
        changed = None if name == "none" else by
        figures = {"rtt_p50_ns": (41e6 * (1 + by), 1e4)}
        return [
            point(name, {"payload_bytes": size}, figures, kind="udp_echo", changed=changed)
            for size in sizes
        ]

    sizes = (64, 512, 1400)
    own = [*points("none", 0.0, sizes), *points("a", 0.5, sizes[:2]), *points("b", 0.2, sizes)]
    parts = sections(own, (), {})
    said = findings(parts, (), statements_of(parts, confidence=0.95, moments=1))
    (differs,) = [words for words in said if "differs from no tunnel" in words]
    a, b = differs.split("; b by ")
    assert a.endswith("(mean of 2 of 3 points)")
    assert b.endswith("(mean of 3 points).")
    (leads,) = [words for words in said if "b has" in words]
    assert leads.endswith("against a (mean of 2 of 3 points).")


def test_the_interval_of_a_change_without_a_unit_keeps_its_digits() -> None:
    change = Change(
        tunnel="wg", link="wan", device="host", workload="voip", metric="voip_mos_min",
        first=4.0, second=3.75, repeats=(8, 8), quantity="difference",
        value=-0.2514, low=-0.4184, high=-0.0844, outcome="differs",
        p=0.01, confidence=0.95, method="Welch",
    )  # fmt: skip
    assert row(change)[-1] == "-0.2514 [-0.4184, -0.08440]"


def test_first_page_findings_and_document_say_the_same(tmp_path: Path) -> None:
    summary = made(tmp_path, {"fast": 1.05, "slow": 1.5, "plain": 1.0})
    decided = {
        (one["tunnel"], one["against"], one["metric"]): one
        for one in json.loads(to_json(summary))["decisions"]
    }
    assert decided["slow", "none", "rtt_p50_ns"]["outcome"] == "differs"
    assert decided["plain", "none", "rtt_p50_ns"]["outcome"] == "alike"
    (decision,) = summary.decisions
    choices = {choice.tunnel: choice.delay for choice in decision.choices}
    assert choices["plain"] == "no relevant difference"
    # One sentence for both, what costs most first; each figure is that of the table.
    (said,) = [f for f in summary.findings if "RTT, median differs from no tunnel" in f]
    assert said.index(f"slow by {choices['slow']}") < said.index(f"fast by {choices['fast']}")
    assert any("RTT, median of plain shows no relevant difference" in f for f in summary.findings)
    (use,) = summary.uses
    assert (use.recommended, use.clear) == (("plain",), True)
    # What decides stands first.
    assert "plain has the best of all RTT, median: " in summary.findings[0]


def test_every_format_has_the_sentences(tmp_path: Path) -> None:
    summary = made(tmp_path, {"slow": 1.5})
    out = io.StringIO()
    print_report(summary, Console(file=out, width=80, no_color=True))
    text = " ".join(out.getvalue().split())
    page = to_html(summary, open_result(tmp_path / "result"))
    markdown = to_markdown(summary).replace("\\", "")
    for finding in summary.findings:
        assert finding in text
        assert finding in page
        assert finding in markdown
    # In a terminal the answers are what is seen last.
    assert text.index("In short") > text.index("Key findings") > text.index("valid trials")
    for said in (page, markdown, text):
        assert "In short" in said
        assert summary.uses[0].recommendation in said


def test_what_carries_nothing_is_broken_everywhere(tmp_path: Path) -> None:
    summary = made(tmp_path, {"dead": 99.0, "fine": 1.2})
    assert any("8 Mbit/s, UDP echo: dead broken at 2 of 2 points" in f for f in summary.findings)
    (decision,) = summary.decisions
    assert {c.tunnel: c.breaks for c in decision.choices}["dead"].startswith("broken: 64")
    out = io.StringIO()
    print_report(summary, Console(file=out, width=80, no_color=True))
    assert "broken" in out.getvalue().split("Key findings")[0]
    assert "broken" in to_markdown(summary)


def of(folder: Path, figures: dict[str, list[dict[str, float | None]]], metric: str) -> Summary:
    """Return the report of tunnels with such figures in each repeat, each in a block of its own."""
    results = []
    for block, (tunnel, repeats) in enumerate(figures.items()):
        for repeat, own in enumerate(repeats, 1):
            base = {name: 100.0 * (1 + NOISE[repeat % len(NOISE)]) for name in (*own, metric)}
            for name, one in ((tunnel, own), ("none", {**base, "rr_lost_ratio": 0.0})):
                results.append(trial_result(name, 64, repeat, dict(one), block=f"b{block}"))
    return summarise(open_result(write(folder, results, precision_metric=metric)))


def test_what_answers_nothing_is_broken_whatever_its_workload(tmp_path: Path) -> None:
    lost: dict[str, float | None] = {"rr_transactions_per_s": 0.0, "rr_lost_ratio": 1.0}
    fine: list[dict[str, float | None]] = [
        {"rr_latency_p50_ns": 105.0 + n / 100, "rr_lost_ratio": 0.0} for n in range(6)
    ]
    summary = of(tmp_path, {"dead": [lost] * 6, "fine": fine}, "rr_latency_p50_ns")
    (use,) = summary.uses
    assert use.recommended == ("fine",)
    assert any("dead broken at 1 of 1 points" in found for found in summary.findings)


def test_a_tunnel_without_the_figure_that_decides_is_not_recommended(tmp_path: Path) -> None:
    some: list[dict[str, float | None]] = [{"rr_lost_ratio": 0.6 + n / 100} for n in range(6)]
    fine: list[dict[str, float | None]] = [
        {"rr_latency_p50_ns": 105.0 + n / 100, "rr_lost_ratio": 0.0} for n in range(6)
    ]
    (use,) = of(tmp_path, {"some": some, "fine": fine}, "rr_latency_p50_ns").uses
    assert use.recommended == ("fine",)
    assert any("of some: no trial has it" in one for one in use.unknowns)


def test_a_tunnel_that_dies_in_one_trial_of_six_is_set_against_the_others(tmp_path: Path) -> None:
    def rates(*values: float) -> list[dict[str, float | None]]:
        return [{"tcp_goodput_bit_s": value} for value in values]

    figures = {
        "dies": rates(0.0, 60.0, 60.1, 59.9, 60.0, 60.2),
        "fine": rates(99.0, 99.1, 98.9, 99.0, 99.2, 99.1),
    }
    summary = of(tmp_path, figures, "tcp_goodput_bit_s")
    (use,) = summary.uses
    assert "fewer than 4 repeats" not in use.unknown
    (one,) = [s for s in summary.statements if s.rival is not None]
    assert (one.winner, one.loser) == ("fine", "dies")
    assert one.seen_by("dies")[0] == pytest.approx(50 / 99.05 - 1, abs=0.002)
    assert one.seen_by("fine")[0] == pytest.approx(99.05 / 50.03 - 1, abs=0.01)


def test_what_is_set_against_a_tunnel_that_carries_nothing_has_no_number(tmp_path: Path) -> None:
    """All but dead: one trial of six came through a little, so it is not broken."""
    figures: dict[str, list[dict[str, float | None]]] = {
        "fine": [{"tcp_goodput_bit_s": 99.0 + n / 10} for n in range(6)],
        "dying": [{"tcp_goodput_bit_s": value} for value in (0.0, 1.0, 0.0, 0.0, 0.0, 0.0)],
    }
    (use,) = of(tmp_path, figures, "tcp_goodput_bit_s").uses
    assert use.recommended == ("fine",)
    assert "no upper bound] against dying" in use.better_by


@pytest.mark.parametrize(
    ("value", "low", "high", "said"),
    [
        (1.5, 0.18, math.inf, "+150 % [+18, no upper bound]"),
        (0.015, 0.0118, math.inf, "+1.50 % [+1.18, no upper bound]"),
        (math.inf, None, None, "infinite (the other is 0)"),
        (math.inf, 3.0, math.inf, "infinite (the other is 0)"),
    ],
)
def test_what_has_no_end_is_said_in_words(
    value: float, low: float | None, high: float | None, said: str
) -> None:
    assert difference("tcp_goodput_bit_s", value, low, high) == said


@pytest.mark.parametrize(("repeats", "reported"), [(3, False), (4, True)])
def test_fewer_than_four_repeats_tell_nothing(
    tmp_path: Path, repeats: int, *, reported: bool
) -> None:
    summary = made(tmp_path, {"slow": 1.5}, repeats=repeats)
    assert any("differs from no tunnel" in f for f in summary.findings) == reported
    assert any("fewer than 4 repeats" in f for f in summary.findings) != reported
    several = made(tmp_path / "two", {"slow": 1.5, "fast": 1.2}, repeats=repeats).uses[0]
    assert several.recommendation == ("fast" if reported else "not decided: fast or slow")
    assert ("fewer than 4 repeats" in several.unknown) != reported


def test_the_report_says_of_which_level_its_intervals_are(tmp_path: Path) -> None:
    one = made(tmp_path / "one", {"slow": 1.5})
    assert any("was brought up once" in f for f in one.findings)
    several = made(tmp_path / "several", {"slow": 1.5}, bring_ups=3)
    share = re.compile(r"\d+ % of the variance of a difference lies between")
    assert any(share.search(finding) for finding in several.findings)


def test_what_cannot_be_reported_says_what_would_settle_it(tmp_path: Path) -> None:
    summary = made(tmp_path, {"near": 1.00245})
    (said,) = [f for f in summary.findings if "no clear difference" in f]
    assert "near against no tunnel" in said
    assert "would settle it" in said or "likely to settle it" in said


def test_a_tunnel_whose_trials_were_all_invalid_is_not_without_failure(tmp_path: Path) -> None:
    results = [
        trial_result(name, 64, repeat, {"rtt_p50_ns": 1e6 * repeat}, valid=valid, block=block)
        for block, tunnel in (("b0", "died"), ("b1", "fine"))
        for repeat in range(1, 5)
        for name, valid in ((tunnel, tunnel != "died"), ("none", True))
    ]
    summary = summarise(open_result(write(tmp_path, results, precision_metric="rtt_p50_ns")))
    text = to_markdown(summary)
    rows = [line for line in text.splitlines() if line.startswith("| died ")]
    assert any("no valid trial" in row for row in rows), rows
    assert not any("no failure" in row for row in rows)
