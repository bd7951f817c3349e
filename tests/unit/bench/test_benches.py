"""What the benches make of what they measure; they themselves need root and a quiet computer."""

import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import analysis
import classics
import dpkt
import gaps
import page
import peers
import pytest
import run
import truths  # tests/truth
import undisturbed
import verdicts
from page import Line
from search import best_rate

import truth


def test_a_gap_is_not_rounded_to_the_seconds_since_1970() -> None:
    start = Decimal("1795000000.000000000")
    times = [start + number * Decimal("0.000100000") for number in range(200)]
    assert max(gaps.errors_us(times, 100)) < 1e-6


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ("212 packets captured\n0 packets dropped by kernel\n", False),
        ("212 packets captured\n5 packets dropped by kernel\n", True),
        ("tcpdump: no such device\n", True),
    ],
)
def test_a_capture_that_is_not_whole_gives_no_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, *, wrong: bool
) -> None:
    monkeypatch.setattr(gaps, "_SETTLE_S", 0.0)
    monkeypatch.setattr(dpkt.pcap, "Reader", lambda _: [(Decimal(n), b"") for n in range(200)])
    capture = SimpleNamespace(terminate=lambda: None, communicate=lambda **_: (words, None))

    def start(_namespace: str, _argv: Sequence[str]) -> object:
        (tmp_path / "gaps.pcap").touch()
        return capture

    made = cast("Any", SimpleNamespace(directory=tmp_path, server="s", start=start))
    if wrong:
        with pytest.raises(RuntimeError, match="not whole"):
            gaps.gap_errors_us(made, 1_000_000, lambda: None)
    else:
        assert set(gaps.gap_errors_us(made, 1_000_000, lambda: None)) == {0.0}


def test_the_best_rate_is_found_and_a_range_that_ends_below_it_is_none() -> None:
    def limited(rate: float) -> tuple[float, float]:
        return (0.0, rate) if rate < 300e3 else (0.5, 0.5 * rate)

    assert best_rate(limited, 100e3, 1e6) == pytest.approx(300e3, rel=0.02)
    with pytest.raises(RuntimeError, match="range is too small"):
        best_rate(limited, 20e3, 200e3)


def test_irtt_is_read_without_a_record_of_each_packet(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "packets sent/received: 2000/1999 (0.05% loss)\nserver packets received: 2000/2000\n"
    given: list[Sequence[str]] = []

    def client(
        _pair: object, _gap_us: float, _s: float, words: Sequence[str], _: object
    ) -> tuple[str, float]:
        given.append(words)
        return text, 1.0

    monkeypatch.setattr(peers, "_irtt", client)
    found = peers.irtt_cost(cast("Any", None), gap_us=1000, duration_s=2)
    assert (found.sent, found.received) == (2000, 1999)
    assert given == [("--timer=comp",)]


class Hanging:
    """A pair in which clients hang so often, and then print."""

    client = server = "netns"

    def __init__(self, times: int) -> None:
        self.left, self.ended = times, 0

    def start(self, _namespace: str, _argv: Sequence[str]) -> Any:
        return self

    def terminate(self) -> None:
        self.ended += 1

    def communicate(self, *, timeout: float) -> None:
        assert timeout

    def run(self, _namespace: str, argv: Sequence[str], *, timeout_s: float) -> str:
        self.left -= 1
        if self.left >= 0:
            raise subprocess.TimeoutExpired(argv, timeout_s)
        return "packets sent/received: 2000/1999"


def test_a_client_of_irtt_that_hangs_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bench of half an hour ended after a minute."""
    monkeypatch.setattr(peers, "_START_S", 0.0)
    for times in (0, 2):
        pair = Hanging(times)
        assert peers.irtt_cost(cast("Any", pair), gap_us=1000, duration_s=2).received == 1999
        assert pair.ended == times + 1
    with pytest.raises(subprocess.TimeoutExpired):
        peers.irtt_cost(cast("Any", Hanging(3)), gap_us=1000, duration_s=2)


def test_a_group_that_fails_is_a_missed_line_and_the_others_go_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for failure in (RuntimeError("too | small"), SystemExit("bench: the engine ended")):
        (line,) = run._reported("echo", Mock(side_effect=failure))
        assert (line.name, line.met) == ("echo", False)
        assert str(failure).replace("|", "/") in line.ours
        assert "MISSED" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run._reported("echo", Mock(side_effect=SystemExit(143)))
    ended = Mock()
    good = [Line("a", "1", "", "2", met=True)]
    groups = {"one": Mock(side_effect=RuntimeError), "two": Mock(return_value=good)}
    assert [line.met for line in run._each(ended, groups)] == [False, True]
    assert ended.end.call_count == 2, "what a group leaves is not in the way of the next"


def test_the_plan_of_the_bench_is_made_wherever_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended the whole bench: the module that it imports stands in no path."""
    monkeypatch.chdir(tmp_path)
    seconds, mebibytes = analysis.measured(analysis.plan_of(100, 2))
    assert seconds > 0
    assert mebibytes > 1


def test_each_line_says_how_often_it_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "RESULTS", tmp_path / "results.md")
    lines = [page.below("cost", [1.0, 2.0, 3.0], [4.0], "irtt"), Line("memory", "", "", "", None)]
    page.write(lines, version="1", load=0.1)
    text = (tmp_path / "results.md").read_text()
    assert "| yes | median of 3, alternating |" in text
    assert "| memory |  |  |  | - | one run |" in text


@pytest.mark.parametrize(("met", "status"), [(True, 0), (None, 0), (False, 1)])
def test_a_missed_target_is_a_status(
    monkeypatch: pytest.MonkeyPatch, *, met: bool | None, status: int
) -> None:
    monkeypatch.setattr(sys, "argv", ["run.py", "--only", "analysis"])
    monkeypatch.setattr(run, "find_engine", lambda: "engine")
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(run, "analysis", lambda _: [Line("a", "1", "", "2", met)])
    assert run.main() == status


@pytest.mark.parametrize(("hits", "status"), [(1, 0), (40, 1)])
def test_verdicts_that_miss_are_a_status(
    monkeypatch: pytest.MonkeyPatch, hits: int, status: int
) -> None:
    line = verdicts.silent("no difference", "plain", hits, 100)
    monkeypatch.setattr(verdicts, "lines_of", lambda *_: [line])
    monkeypatch.setattr(sys, "argv", ["v.py", "--only", "plain", "--processes", "1"])
    assert verdicts.main() == status


def test_some_of_the_publications_do_not_take_the_page_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = SimpleNamespace(silent=[])
    monkeypatch.setattr(classics, "PAGE", tmp_path / "classics.md")
    monkeypatch.setattr(classics, "_read", lambda *_: ran)
    monkeypatch.setattr(classics, "page", lambda _: "page")
    words = ["classics.py", "--read", "--results", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", [*words, "kolahi-2010"])
    assert classics.main() == 0
    assert not classics.PAGE.exists()
    monkeypatch.setattr(sys, "argv", words)
    assert classics.main() == 0
    assert classics.PAGE.read_text() == "page"


def an_answer(what: str, *, right: bool) -> truths.Answer:
    value = 1.0 if right else 9.0
    made = dict.fromkeys(("value", "low", "high"), value)
    return truths.Answer(**{**made, "what": what, "unit": "us", "truth": 1.0})  # type: ignore[arg-type]


def test_intervals_that_have_the_truth_too_seldom_are_named() -> None:
    for wrong, named in ((10, []), (20, ["a"])):
        found = [truth.Found(n, 4, an_answer("a", right=n >= wrong)) for n in range(200)]
        assert truth.too_narrow(found) == named


def test_a_seed_whose_last_study_is_missing_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, str]] = []
    kernel = "CPU of a packet in the kernel, x"

    def measured(seed: int, text: str) -> str:
        asked.append((seed, text))
        return text

    @contextmanager
    def measuring(*, seed: int, **_: object) -> Any:
        yield lambda text: measured(seed, text)

    def evaluate(what: str) -> list[truths.Answer]:
        return [an_answer(what, right=True)]

    monkeypatch.setattr(truth, "measuring", measuring)
    monkeypatch.setattr(truths, "STUDIES", (("user", evaluate), (kernel, evaluate)))
    where = tmp_path / "truth.md"
    assert truth.main(2, where, kernel_tunnels=False) == 0
    assert asked == [(1, "user"), (1, kernel), (2, "user"), (2, kernel)]
    kept = where.with_suffix(".csv")
    kept.write_text("".join(kept.read_text().splitlines(keepends=True)[:-1]))
    del asked[:]
    assert truth.main(0, where, kernel_tunnels=False) == 0
    assert asked == []
    assert truth.main(1, where, kernel_tunnels=False) == 0
    assert asked == [(2, kernel), (3, "user"), (3, kernel)]


@pytest.mark.parametrize(
    ("stolen", "repeats", "kept", "most"),
    [
        ([0.0, 0.3], 1, ["a"], 0.0),
        ([0.3, 0.009, 0.0], 1, ["b"], 0.009),
        ([0.3, 0.0, 0.2, 0.001], 2, ["b", "d"], 0.001),
        ([0.3, 0.2, 0.1, 0.4], 1, ["c"], 0.1),
    ],
    ids=["quiet", "again", "two", "never quiet"],
)
def test_a_disturbed_run_is_made_again_and_the_least_disturbed_are_kept(
    monkeypatch: pytest.MonkeyPatch,
    stolen: list[float],
    repeats: int,
    kept: list[str],
    most: float,
) -> None:
    of_runs = iter(stolen)
    probe = SimpleNamespace(
        start=lambda _: None, stop=lambda _: SimpleNamespace(steal_ratio=next(of_runs))
    )
    monkeypatch.setattr(undisturbed, "CpuProbe", lambda *_: probe)
    runs = undisturbed.undisturbed(iter("abcdefgh").__next__, repeats)
    assert (sorted(runs.values), runs.stolen) == (kept, most)
    assert f"the hypervisor took {most:.1%} at most" in undisturbed.how(runs)
