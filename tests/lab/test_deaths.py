"""kill -9 of everything a run consists of: nothing false is reported, nothing stays behind."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from small_study import LOOSE_VALIDITY
from tunnelmark.store import open_result

pytestmark = [pytest.mark.lab, pytest.mark.slow]

_TEXT = f"""
format = 1
name = "deaths"
title = "Deaths"
seed = 7

[precision]
metric = "rtt_p50_ns"
relative_half_width = "100 %"
min_repeats = 2
max_repeats = 2
max_invalid = 20

{LOOSE_VALIDITY}
[[tunnel]]
kind = "openvpn"
cipher = "AES-256-GCM"

[[link]]
kind = "serial"
rate = "8 Mbit/s"
delay = "5 ms"

[[workload]]
kind = "udp_echo"
gap = "10 ms"
packets = 160
payload_bytes = 200
"""


def _under_way(event: dict[str, Any]) -> bool:
    return bool(event["event"] == "trial_progress" and event["done_ratio"] > 0.1)


def _kill(study: Any, role: str, program: str) -> None:
    pids = study.inhabitants(role, program)
    assert pids, f"no {program} in {role}"
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("role", "program", "evidence"),
    [
        ("server", "openvpn", "openvpn"),
        ("server", "reflect", "reflect"),
        ("client", "send", "send"),
        ("link", "tunnelmark-engine", "link emulator"),
    ],
)
def test_a_part_that_is_killed_makes_the_trial_invalid_and_the_run_goes_on(
    study: Callable[[str], Any], role: str, program: str, evidence: str
) -> None:
    one = study(_TEXT)
    one.start()
    one.until(_under_way)
    _kill(one, role, program)
    assert one.finish() == 0, one.errors
    done = one.of("trial_done")
    invalid = [event for event in done if not event["valid"]]
    assert invalid
    assert any(evidence in reason for event in invalid for reason in event["reasons"]), invalid
    # Both points have both repeats all the same.
    assert sum(event["valid"] for event in done) == 4
    assert one.of("run_ended")[0]["outcome"] == "complete"
    assert one.leftovers() == []


_TRANSACTIONS = (
    _TEXT[: _TEXT.index("[[workload]]")].replace("rtt_p50", "rr_latency_p50")
    + """
[[workload]]
kind = "request_response"
duration = "2 s"
"""
)


@pytest.mark.parametrize(
    ("text", "program"),
    [(_TEXT, "reflect"), (_TRANSACTIONS, "answer")],
    ids=["reflector", "responder"],
)
def test_an_instrument_that_is_stopped_makes_the_trial_invalid(
    study: Callable[[str], Any], text: str, program: str
) -> None:
    one = study(text)
    one.start()
    one.until(_under_way)
    (pid,) = one.inhabitants("server", program)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.5)
    os.kill(pid, signal.SIGCONT)
    assert one.finish() == 0, one.errors
    invalid = [event for event in one.of("trial_done") if not event["valid"]]
    stopped = "measuring server was stopped"
    assert any(stopped in reason for event in invalid for reason in event["reasons"]), invalid
    assert one.of("run_ended")[0]["outcome"] == "complete"
    assert one.leftovers() == []


@pytest.mark.parametrize("phase", ["proof", "warm"])
@pytest.mark.parametrize("program", ["openvpn", "tunnelmark-engine"])
def test_a_death_before_the_first_trial_is_tried_again_and_recorded(
    study: Callable[[str], Any], phase: str, program: str
) -> None:
    one = study(_TEXT.replace("packets = 160", "packets = 30"))
    one.start()
    one.until(lambda event: event["event"] == "block_phase" and event["phase"] == phase)
    _kill(one, "server" if program == "openvpn" else "link", program)
    assert one.finish() == 0, one.errors
    assert one.of("run_ended")[0]["outcome"] == "complete"
    again = [e["bring_up"] for e in one.of("block_phase") if e["phase"] == "again"]
    assert again[:1] == [1]
    (block,) = open_result(one.directory).blocks.values()
    assert block.error is None
    # A busy machine may ask for more attempts than what was done to the first.
    first, *_, last = block.attempts
    assert (first.bring_up, last.bring_up, last.reason) == (1, 2, None)
    assert first.reason
    assert first.transient
    trials = open_result(one.directory).trials().filter(pl.col("path") == "total")
    assert set(trials.filter("valid").select("repeat", "bring_up").rows()) == {(1, 1), (2, 2)}
    assert one.leftovers() == []


def test_a_run_that_is_killed_leaves_what_clean_removes_and_resume_finishes(
    study: Callable[[str], Any],
) -> None:
    one = study(_TEXT)
    one.start()
    one.until(lambda event: event["event"] == "trial_done")
    one.until(_under_way)
    one.kill()
    assert one.leftovers(), "the namespaces of a killed run are still there"
    one.command("clean")
    assert one.leftovers() == []
    before = [event["trial_id"] for event in one.of("trial_done") if event["valid"]]
    directory = one.directory
    # What is there already says where it ran: figures of an emulated CPU are marked all the same.
    (block,) = open_result(directory).blocks.values()
    assert block.placed_on
    assert block.proofs
    one.events.clear()
    one.run("--resume", str(directory))
    again = [event["trial_id"] for event in one.of("trial_done")]
    assert not set(before) & set(again)
    frames = [pl.read_parquet(path) for path in directory.glob("trials/*.parquet")]
    trials = pl.concat(frames).filter((pl.col("path") == "total") & pl.col("valid"))
    assert sorted(trials["trial_id"]) == sorted({*before, *again})
    assert trials.height == 4
    assert one.leftovers() == []


def test_the_next_run_removes_what_a_killed_one_left(study: Callable[[str], Any]) -> None:
    one = study(_TEXT.replace("packets = 160", "packets = 30"))
    one.start()
    one.until(lambda event: event["event"] == "block_phase" and event["phase"] == "tunnel")
    one.kill()
    assert one.leftovers()
    one.run()
    assert one.leftovers() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_request_to_end_is_obeyed_in_order(study: Callable[[str], Any], number: int) -> None:
    one = study(_TEXT)
    process = one.start()
    one.until(_under_way)
    process.send_signal(number)
    assert one.finish() == 130
    assert one.of("run_ended")[0]["outcome"] == "interrupted"
    assert one.leftovers() == []
