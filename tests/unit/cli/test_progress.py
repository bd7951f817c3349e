"""What a run says in plain lines."""

import json
from dataclasses import replace

import pytest

from tunnelmark.cli import main
from tunnelmark.cli.progress import describe, display
from tunnelmark.run.events import TrialDone

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


def test_two_ways_to_tell_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.call(["run", "quickstart", "--json", "--lines"]) == 2
    assert "are mutually exclusive" in capsys.readouterr().err
