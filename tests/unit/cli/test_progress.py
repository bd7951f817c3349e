"""What a run says in plain lines."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest

from made_results import trial_result, write
from tunnelmark.cli import main
from tunnelmark.cli.progress import describe, display
from tunnelmark.run.events import Event, Listener, RunEnded, TrialDone

DONE = TrialDone(
    trial_id="t",
    tunnel="openvpn",
    workload="file_transfer http photo",
    point={"protocol": "http", "corpus": "photo"},
    repeat=2,
    attempt=1,
    valid=True,
    reasons=(),
    figures={"transfer_goodput_bit_s": 7.4e6, "rtt_p50_ns": None, "loss_forward_ratio": 0.0},
    metric="transfer_goodput_bit_s",
    trials_done=3,
    trials_expected=8,
    time_left_s=65.0,
)


def test_a_trial_is_reported_with_its_workload_and_the_figure_that_decides() -> None:
    assert describe(DONE) == (
        "  3/8 openvpn, file_transfer http photo #2: File transfer, goodput 7.400 Mbit/s, loss 0 % "
        "(1 min 05 s left)"
    )


def test_an_invalid_trial_is_reported_with_the_reason_and_what_is_missing_is_not_zero() -> None:
    late = replace(DONE, valid=False, reasons=("the sender was late",), figures={})
    assert describe(late) == (
        "  3/8 openvpn, file_transfer http photo #2: no figures INVALID: the sender was late "
        "(1 min 05 s left)"
    )
    # A program may have come with metrics that this version does not know.
    other = replace(DONE, metric="of_tomorrow", figures={"of_tomorrow": 5.0})
    assert "of_tomorrow 5.00" in str(describe(other))


@pytest.mark.parametrize(
    ("json_", "lines", "quiet"),
    [(False, False, False), (False, False, True), (False, True, False), (True, False, False)],
)
def test_into_a_pipe_goes_only_what_is_asked_for(
    capsys: pytest.CaptureFixture[str], *, json_: bool, lines: bool, quiet: bool
) -> None:
    with display(as_json=json_, lines=lines, quiet=quiet) as listener:
        listener(DONE)
    said = capsys.readouterr()
    assert said.err == ""
    if json_:
        assert json.loads(said.out)["workload"] == "file_transfer http photo"
    else:
        assert said.out == (f"{describe(DONE)}\n" if lines else "")


@contextmanager
def unread() -> Iterator[None]:
    """Let nobody read the standard output, as behind ``| head``; at the end it must go nowhere."""
    reader, writer = os.pipe()
    os.close(reader)
    # When it is closed, what it still has is written once more, as at the end of the process.
    with os.fdopen(writer, "w", encoding="utf-8") as stream, redirect_stdout(stream):
        yield
        assert Path(f"/proc/self/fd/{writer}").readlink() == Path(os.devnull)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_display_that_nobody_reads_falls_silent(*, as_json: bool) -> None:
    with unread(), display(as_json=as_json, lines=not as_json, quiet=False) as listener:
        for _ in range(3):
            listener(DONE)


def test_a_display_whose_disk_is_full_says_so_once_and_falls_silent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with (
        Path("/dev/full").open("w", encoding="utf-8") as full,
        redirect_stdout(full),
        display(as_json=False, lines=True, quiet=False) as listener,
    ):
        listener(DONE)
        listener(DONE)
    assert capsys.readouterr().err == (
        "tunnelmark: progress cannot be shown any more: No space left on device; the run goes on\n"
    )


def test_a_run_that_nobody_reads_ends_with_its_own_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = write(tmp_path, [trial_result("openvpn", 100, 1, {"rtt_p50_ns": 1e6})])
    heard: list[Event] = []

    def execute(*_: object, listener: Listener, **__: object) -> RunEnded:
        ended = RunEnded(str(directory), "failed", "openvpn: was killed", 1, 0, 9.0, 8.0)
        for event in (DONE, DONE, ended):
            listener(event)
            heard.append(event)
        return ended

    monkeypatch.setattr("tunnelmark.execute.execute", execute)
    monkeypatch.setattr("tunnelmark.engine.binary.find_engine", lambda: "engine")
    with unread():
        assert main.call(["run", "quickstart", "--backend", "sim", "--lines"]) == 4
    assert len(heard) == 3
    assert (directory / "report" / "report.html").is_file()


@pytest.mark.parametrize(("command", "status"), [("version", 0), ("clean", 1)])
def test_a_broken_pipe_is_a_success_for_what_only_prints(
    command: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunnelmark.lab.clean.find_leftovers", list)
    with unread():
        assert main.call([command]) == status


def test_two_ways_to_tell_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.call(["run", "quickstart", "--json", "--lines"]) == 2
    assert "are mutually exclusive" in capsys.readouterr().err
