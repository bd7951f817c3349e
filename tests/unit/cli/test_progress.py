"""What a run says in plain lines."""

import io
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

import click
import pytest

from made_results import trial_result, write
from tunnelmark.cli import main
from tunnelmark.cli.progress import describe, display
from tunnelmark.run.events import Listener, RunEnded, TrialDone

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
def unread(*, buffered: bool = True) -> Iterator[None]:
    """Let nobody read the standard output, as behind ``| head``; at the end it must go nowhere.

    Without ``buffered`` as with ``PYTHONUNBUFFERED``: what was not written is not kept.
    """
    reader, writer = os.pipe()
    os.close(reader)
    # When it is closed, what it still has is written once more, as at the end of the process.
    raw = os.fdopen(writer, "wb", buffering=-1 if buffered else 0)
    stream = io.TextIOWrapper(raw, encoding="utf-8", write_through=not buffered)
    with stream, redirect_stdout(stream):
        yield
        if buffered:
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


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunEnded:
    """Return how each ``run`` ends, which does nothing but tell."""
    directory = write(tmp_path, [trial_result("openvpn", 100, 1, {"rtt_p50_ns": 1e6})])
    found = RunEnded(str(directory), "failed", "openvpn: was killed", 1, 0, 9.0, 8.0)

    def execute(*_: object, listener: Listener, **__: object) -> RunEnded:
        for event in (DONE, DONE, found):
            listener(event)
        return found

    monkeypatch.setattr("tunnelmark.execute.execute", execute)
    monkeypatch.setattr("tunnelmark.engine.binary.find_engine", lambda: "engine")
    return found


_RUN = ("run", "quickstart", "--backend", "sim", "--lines")


def test_a_run_that_nobody_reads_ends_with_its_own_status(ended: RunEnded) -> None:
    with unread():
        assert main.call([*_RUN]) == 4
    assert (Path(ended.directory) / "report" / "report.html").is_file()


@pytest.mark.parametrize(
    ("words", "status"), [(_RUN, 4), (("run", "quickstrat"), 2), (("run", "--scale", "x"), 2)]
)
def test_a_full_disk_under_the_log_leaves_the_status(
    ended: RunEnded, words: tuple[str, ...], status: int
) -> None:
    full = Path("/dev/full")
    with (
        full.open("w", encoding="utf-8") as out,
        full.open("w", encoding="utf-8") as err,
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        assert main.call([*words]) == status
    assert (Path(ended.directory) / "report" / "report.html").exists() == (status == 4)


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize(("words", "status"), [("version", 0), ("--help", 0), ("clean", 1)])
def test_a_broken_pipe_is_a_success_for_what_only_prints(
    words: str, status: int, monkeypatch: pytest.MonkeyPatch, *, buffered: bool
) -> None:
    monkeypatch.setattr("tunnelmark.lab.clean.find_leftovers", list)
    with unread(buffered=buffered):
        assert main.call(words.split()) == status


@pytest.mark.parametrize("command", ["version", "clean"])
def test_a_pipe_to_another_place_that_breaks_is_an_error(
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    def break_off(**_: object) -> None:
        one, other = socket.socketpair()
        one.close()
        with other:
            other.sendall(b"x")

    found = main.tunnelmark.get_command(click.Context(main.tunnelmark), command)
    monkeypatch.setattr(found, "callback", break_off)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main.call([command]) == 1
    (details,) = tmp_path.glob("tunnelmark-error-*.txt")
    said = capsys.readouterr().err
    assert "tunnelmark: error: unexpected BrokenPipeError: " in said
    assert str(details) in said
    assert "break_off" in details.read_text()


@pytest.mark.parametrize(
    "again",
    ["", " --backend sim", " --backend sim --no-costs", " --backend sim --costs .", " --hosts /x"],
)
def test_an_interrupted_run_names_the_command_that_resumes_it(
    ended: RunEnded,
    again: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    again = again.replace("/x", str(tmp_path / "hosts.toml"))
    (tmp_path / "hosts.toml").touch()
    stopped = replace(ended, outcome="interrupted")
    monkeypatch.setattr("tunnelmark.execute.execute", lambda *_, **__: stopped)
    monkeypatch.setattr("tunnelmark.hosts.inventory.load_inventory", lambda _: "two hosts")
    monkeypatch.setattr("tunnelmark.lab.rootless.stand", lambda _: None)
    assert main.call(["run", "quickstart", "--quiet", *again.split()]) == 130
    words = f"interrupted; resume with: tunnelmark run --resume {ended.directory}{again}\n"
    assert capsys.readouterr().out.endswith(words)


def test_two_ways_to_tell_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.call(["run", "quickstart", "--json", "--lines"]) == 2
    assert "are mutually exclusive" in capsys.readouterr().err
