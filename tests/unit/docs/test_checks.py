"""docs/validity.md names every check that the program makes, and a test makes each of them fail."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tunnelmark.model.validity import INTERRUPTED

ROOT: Final = Path(__file__).parents[3]
_ECHO: Final = "tests/unit/workloads/test_echo_metrics.py"
_EVIDENCE: Final = "tests/unit/lab/session/test_evidence.py"
_TRIAL: Final = "tests/unit/lab/session/test_trial.py"
_WORKLOADS: Final = "tests/unit/workloads/test_verdicts_of_workloads.py"
_PROGRAMS: Final = "tests/contract/test_program_workloads.py"
_JOINS = "tests/unit/workloads/test_client_joins.py"
FAILS_IN: Final = {
    "processes": (_PROGRAMS, "test_a_program_that_is_killed_is_a_failed_check"),
    "all_sent": (_ECHO, "test_a_sender_that_disagrees_with_its_records_is_seen"),
    "sender_lateness": (
        _ECHO,
        "test_lateness_is_judged_at_its_limit_and_a_killed_reflector_is_no_evidence",
    ),
    "reply_lateness": (
        _ECHO,
        "test_replies_that_the_reflector_held_are_no_loss_and_no_burst_of_the_path",
    ),
    "conservation_*": (_ECHO, "test_a_reflector_that_disagrees_with_its_records_is_seen"),
    "receiver_overrun": (_ECHO, "test_a_sender_that_disagrees_with_its_records_is_seen"),
    "realtime": (_ECHO, "test_an_end_that_lost_its_priority_or_its_timestamps_is_seen"),
    "timestamps": (_ECHO, "test_an_end_that_lost_its_priority_or_its_timestamps_is_seen"),
    "negative_delays": (_ECHO, "test_a_round_trip_below_zero_is_seen"),
    "foreign_packets": (_ECHO, "test_a_sender_that_disagrees_with_its_records_is_seen"),
    "strangers": (_PROGRAMS, "test_a_message_of_another_program_is_a_failed_check"),
    "flows": (_WORKLOADS, "test_another_number_of_flows_than_was_asked_for_is_seen"),
    "*_sent_*": (_WORKLOADS, "test_calls_are_judged_by_the_streams_of_both_directions"),
    "search_complete": (_WORKLOADS, "test_a_search_that_spent_its_trials_is_no_figure"),
    "answers": (_WORKLOADS, "test_queries_that_nobody_answered_or_with_an_error_are_seen"),
    "content": (_PROGRAMS, "test_a_file_that_is_damaged_is_a_failed_check"),
    "negotiated": (_WORKLOADS, "test_files_over_another_cipher_than_was_asked_for_are_seen"),
    "set_ups": (_TRIAL, "test_what_breaks_while_the_tunnel_is_restored_is_a_fault"),
    "joins": (_JOINS, "test_a_client_that_does_not_start_makes_the_trial_invalid"),
    "joins_on_time": (_JOINS, "test_starts_that_come_too_late_make_the_trial_invalid"),
    "proved_again": (_TRIAL, "test_a_tunnel_that_is_another_behind_its_set_ups_is_seen"),
    "background_*": (
        "tests/contract/test_background.py",
        "test_a_load_that_dies_fails_the_trial",
    ),
    "steal": (_EVIDENCE, "test_stolen_time_and_a_busy_sender_are_seen"),
    "starvation": (
        _EVIDENCE,
        "test_waiting_for_what_others_hold_spoils_a_trial_and_waiting_for_oneself_does_not",
    ),
    "device_cores_*": (_EVIDENCE, "test_a_device_lacks_nothing_as_long_as_its_cores_have_room"),
    "measuring_*": (_EVIDENCE, "test_stolen_time_and_a_busy_sender_are_seen"),
    "link_alive": (_EVIDENCE, "test_a_dead_link_or_tunnel_is_reported_in_its_own_words"),
    "link_conservation_*": (
        _EVIDENCE,
        "test_a_link_that_did_not_do_what_it_was_reported_is_seen",
    ),
    "link_missed_*": (_EVIDENCE, "test_a_link_that_did_not_do_what_it_was_reported_is_seen"),
    "link_lateness_*": (_EVIDENCE, "test_a_link_that_did_not_do_what_it_was_reported_is_seen"),
    "link_foreign": (
        "tests/lab/test_foreign.py",
        "test_one_datagram_in_the_clear_among_those_of_a_tunnel",
    ),
    "wire_as_modelled": (
        "tests/unit/lab/session/test_layers.py",
        "test_one_payload_of_another_length_fails",
    ),
    "as_agreed": (
        "tests/lab/test_lost_associations.py",
        "test_a_lost_association_fails_the_check",
    ),
    "proof_at_the_end": (
        "tests/unit/store/test_result.py",
        "test_trials_whose_tunnel_failed_the_last_proof_count_for_nothing",
    ),
    "tunnel_up": (
        "tests/lab/test_deaths.py",
        "test_a_part_that_is_killed_makes_the_trial_invalid_and_the_run_goes_on",
    ),
    "losses_*": (
        "tests/unit/lab/session/test_losses.py",
        "test_places_that_do_not_add_up_are_seen",
    ),
    "workload": (_TRIAL, "test_whatever_a_workload_raises_makes_the_trial_invalid"),
    "probes": (_TRIAL, "test_what_looks_behind_the_traffic_may_break_too"),
    "losses": (_TRIAL, "test_what_looks_behind_the_traffic_may_break_too"),
    "cpu_samples": (_TRIAL, "test_a_sampler_that_ends_is_no_silent_zero"),
    "clocks": (_TRIAL, "test_clocks_that_cannot_be_compared_are_a_fault"),
    "tunnel": (_TRIAL, "test_a_driver_or_a_probe_that_raises_makes_the_trial_invalid"),
    "trial": (_TRIAL, "test_a_driver_or_a_probe_that_raises_makes_the_trial_invalid"),
    "congestion_control": (
        "tests/unit/lab/session/test_congestion.py",
        "test_what_iperf3_says_of_itself_is_held_to_it",
    ),
    INTERRUPTED: (
        _TRIAL,
        "test_an_interrupted_trial_that_breaks_does_not_count_against_its_point",
    ),
}
NEVER_FAIL: Final = {"data_moved", "delay_split_*", "late_tail_*", "link_direct", "one_clock"}
_NAMED_ELSEWHERE: Final = {
    *(INTERRUPTED, "tunnel_up", "measuring_*", "background_*"),
    *("sender_lateness", "reply_lateness", "link_lateness_*", "late_tail_*"),
}
"""By a constant or an argument: no literal stands where these are made."""


def made() -> Iterator[str]:
    """Yield the names that stand in the program, ``*`` for what is filled in."""
    for path in sorted((ROOT / "src/tunnelmark").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = node.func.id if isinstance(node.func, ast.Name) else ""
            if isinstance(node.func, ast.Attribute):
                called = node.func.attr
            if called not in {"Check", "caught"}:
                continue
            name = node.args[0]
            if isinstance(name, ast.Constant):
                yield str(name.value)
            elif isinstance(name, ast.JoinedStr):
                yield "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "*"
                    for part in name.values
                )


def documented(words: str = "") -> set[str]:
    """Return the names in the first column of the page's table, of rows that have ``words``."""
    return {
        plain(name)
        for line in (ROOT / "docs/validity.md").read_text("utf-8").splitlines()
        if line.startswith("| `") and words in line
        for name in re.findall(r"`([^`]+)`", line.split("|")[1])
    }


def plain(name: str) -> str:
    """Return a name with its way or end as ``*``."""
    return re.sub(r"_(forward|reverse|client|server)$", "_*", name)


def test_every_check_is_documented_and_none_that_is_not_there() -> None:
    there = {plain(name) for name in made()} | _NAMED_ELSEWHERE
    assert documented() == there


def test_every_check_that_can_fail_has_a_test_in_which_it_does() -> None:
    assert documented() == set(FAILS_IN) | NEVER_FAIL
    for check, (place, test) in FAILS_IN.items():
        assert re.search(rf"^def {test}\(", (ROOT / place).read_text("utf-8"), re.MULTILINE), check


def test_what_never_fails_is_said_to() -> None:
    assert documented("never fails a trial") == NEVER_FAIL
