"""The search for the highest rate, on links whose capacity is known."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunnelmark.model.metrics import METRICS
from tunnelmark.workloads.rate_search import (
    RateSearch,
    RateSearchParams,
    _ended,
    least_packets,
)
from tunnelmark.workloads.search import Found, Goal, Measure, Seen, binary_search, mlr_search

Search = Callable[[Goal, Measure], Found]
SEARCHES = pytest.mark.parametrize("search", [binary_search, mlr_search])


def goal(**changes: float) -> Goal:
    values = {
        "loss_ratio": 0.0,
        "lowest": 10.0,
        "highest": 1100.0,
        "width_ratio": 0.01,
        "trial_s": 2.0,
        "confirm": 1,
        "most_trials": 200,
        **changes,
    }
    return Goal(**values)  # type: ignore[arg-type]


def link(capacity: float, queue: int = 0) -> Measure:
    """A link of so many packets per second with a queue of so many packets."""

    def measure(packet_rate: float, seconds: float) -> Seen:
        sent = math.ceil(packet_rate * seconds)
        missing = max(0, math.floor((packet_rate - capacity) * seconds) - queue)
        return Seen(packet_rate, seconds, sent, missing, min(packet_rate, capacity))

    return measure


@SEARCHES
@settings(deadline=None)
@given(capacity=st.floats(10.5, 1080))
def test_bounds_close_on_the_capacity_from_both_sides(search: Search, capacity: float) -> None:
    found = search(goal(), link(capacity))
    assert found.complete
    assert found.lower is not None
    assert found.upper is not None
    # A link loses its first packet when it is over its capacity by one packet in a trial.
    assert found.lower <= capacity + 0.5 + 1e-6
    assert found.upper > capacity
    assert found.upper - found.lower <= 0.01 * found.upper * 1.001
    assert len(found.trials) < 40


@SEARCHES
def test_a_link_that_carries_all_has_no_upper_bound(search: Search) -> None:
    found = search(goal(), link(5000))
    assert found.lower == pytest.approx(1100)
    assert found.upper is None


@SEARCHES
def test_a_link_that_carries_nothing_has_no_lower_bound(search: Search) -> None:
    found = search(goal(), link(2))
    assert found.lower is None
    assert found.forwarded == 0
    assert found.upper == pytest.approx(10)


@SEARCHES
def test_a_queue_does_not_make_the_lower_bound_more_than_what_arrived(search: Search) -> None:
    found = search(goal(), link(500, queue=60))
    # Over two seconds the queue takes in 30 packets a second.
    assert found.lower == pytest.approx(530, rel=0.015)
    assert found.upper == pytest.approx(530, rel=0.015)
    assert found.forwarded == pytest.approx(500)


@SEARCHES
def test_a_goal_with_loss_is_found_above_the_capacity(search: Search) -> None:
    found = search(goal(loss_ratio=0.005), link(500))
    assert found.lower is not None
    assert found.upper is not None
    # 0.5 % of what is offered is lost at 500 / 0.995 packets per second.
    assert found.lower <= 500 / 0.995 + 0.5
    assert found.upper >= 500 / 0.995


@SEARCHES
def test_a_search_that_spends_all_its_trials_says_so(search: Search) -> None:
    found = search(goal(most_trials=4, width_ratio=0.001), link(500))
    assert not found.complete
    assert len(found.trials) == 4


@SEARCHES
def test_one_bad_trial_of_three_decides_nothing(search: Search) -> None:
    calls: dict[float, int] = {}
    steady = link(5000)

    def hiccup(packet_rate: float, seconds: float) -> Seen:
        calls[packet_rate] = calls.get(packet_rate, 0) + 1
        seen = steady(packet_rate, seconds)
        bad = calls[packet_rate] == 2
        return Seen(seen.packet_rate, seen.duration_s, seen.sent, 5 if bad else 0)

    assert search(goal(confirm=3), hiccup).lower == pytest.approx(1100)


@SEARCHES
def test_a_trial_that_was_overruled_says_nothing_of_what_arrives(search: Search) -> None:
    calls: dict[float, int] = {}

    def hiccup(packet_rate: float, seconds: float) -> Seen:
        calls[packet_rate] = calls.get(packet_rate, 0) + 1
        share = 0.5 if calls[packet_rate] == 2 else 1.0
        sent = math.ceil(packet_rate * seconds)
        return Seen(
            packet_rate, seconds, sent, round(sent * (1 - share)), received_s=packet_rate * share
        )

    assert search(goal(confirm=3), hiccup).forwarded == pytest.approx(1100)


def test_rates_below_the_default_of_mlrsearch_are_searched() -> None:
    # Its own minimum is 9001 per second; a 2 Mbit/s line carries 164 packets of 1500 bytes.
    found = mlr_search(goal(lowest=1.64, highest=180), link(164))
    assert found.lower == pytest.approx(164, rel=0.015)


@pytest.mark.parametrize("queue", [0, 50])
@settings(deadline=None)
@given(capacity=st.floats(1_000, 16_000))
def test_long_trials_are_spent_only_on_what_decides(queue: int, capacity: float) -> None:
    """RFC 2544 section 24: others may be shorter. All as long would be seven times as much."""
    wanted = goal(lowest=150, highest=16_500, trial_s=120.0, width_ratio=0.02)
    found = mlr_search(wanted, link(capacity, queue))
    assert found.complete
    lengths = [seen.duration_s for seen in found.trials]
    assert lengths[0] == 2
    assert sum(lengths) <= 5 * 120
    if found.lower is not None:
        assert max(s.duration_s for s in found.trials if s.packet_rate == found.lower) == 120


def sender(most: float, capacity: float) -> Measure:
    """A sender that cannot send more than so many packets per second, over such a link."""
    beyond = link(capacity)

    def measure(packet_rate: float, seconds: float) -> Seen:
        seen = beyond(min(packet_rate, most), seconds)
        return replace(seen, packet_rate=packet_rate, sender_limited=packet_rate > most)

    return measure


@SEARCHES
def test_what_the_sender_cannot_send_is_a_bound_like_another(search: Search) -> None:
    found = search(goal(), sender(500.0, capacity=5000.0))
    assert found.complete
    assert found.forwarded == pytest.approx(500, rel=0.02)
    assert found.sender_limit == pytest.approx(500, rel=0.02)
    assert found.exceeded is None, "the path was never shown to lose"


@SEARCHES
def test_where_even_the_lowest_rate_is_too_much_for_the_sender_nothing_was_forwarded_or_lost(
    search: Search,
) -> None:
    found = search(goal(lowest=10), sender(1.0, capacity=5000.0))
    assert found.lower is None
    assert found.sender_limit == pytest.approx(10)
    assert found.exceeded is None
    assert found.forwarded is None, "0 would say that the path carries nothing"


def test_a_search_that_only_the_sender_ended_has_no_bound_and_says_what_to_do() -> None:
    wanted = goal(lowest=10)
    found = binary_search(wanted, sender(1.0, capacity=5000.0))
    params = RateSearchParams(payload_bytes=100)
    figures = RateSearch(params)._figures(found)
    bounds = {name for name, value in figures.items() if value is None}
    assert bounds == {
        f"throughput_{bound}_{unit}"
        for bound in ("lower", "upper")
        for unit in ("packet_s", "bit_s")
    }
    assert figures["throughput_sender_limit_packet_s"] == pytest.approx(10)
    check = _ended(found, wanted, "1 % of the packets left 3.000 ms late or more")
    assert (check.name, check.ok) == ("search_complete", False)
    assert check.message == (
        "our own sender or receiver did not keep up with 10.0 packets/s, the lowest rate of the "
        "search, in 3 attempts (1 % of the packets left 3.000 ms late or more), so the path was "
        "not measured: end other programs on this computer, or set a smaller lowest"
    )
    assert _ended(binary_search(wanted, sender(500.0, capacity=5000.0)), wanted).ok
    assert _ended(binary_search(wanted, link(2)), wanted).ok, "the path carries less, a figure"


@SEARCHES
@pytest.mark.parametrize(("share", "broken"), [(1.0, True), (0.02, False)])
def test_a_path_that_carries_nothing_is_another_than_one_that_misses_the_goal(
    search: Search, share: float, broken: bool
) -> None:
    def measure(packet_rate: float, seconds: float) -> Seen:
        sent = math.ceil(packet_rate * seconds)
        missing = math.ceil(share * sent)
        return Seen(packet_rate, seconds, sent, missing, packet_rate * (1 - share))

    found = search(goal(lowest=100), measure)
    figures = RateSearch(RateSearchParams(payload_bytes=100))._figures(found)
    assert figures["throughput_lower_bit_s"] == 0
    least = figures["search_loss_min_ratio"]
    assert (least == METRICS["search_loss_min_ratio"].nothing) == broken


def test_the_lower_bound_is_what_arrived_however_long_trials_of_slower_rates_were() -> None:
    # A loss goal needs so many packets that a trial of a slow rate is long.
    slow = Seen(50.0, 24.0, 1200, 0, received_s=50.0)
    first = Seen(500.0, 0.5, 250, 0, received_s=499.0)
    last = Seen(500.0, 2.4, 1200, 0, received_s=470.0)
    assert Found(lower=500.0, upper=505.0, trials=(slow, last)).forwarded == 470
    # Of several at the bound the short ones, which a queue hides, do not count.
    hidden = replace(first, received_s=400.0)
    assert Found(lower=500.0, upper=505.0, trials=(slow, hidden, last)).forwarded == 470


@SEARCHES
def test_a_path_that_is_slower_than_the_sender_has_its_own_bound(search: Search) -> None:
    found = search(goal(), sender(500.0, capacity=300.0))
    assert found.sender_limit is None
    assert found.exceeded == pytest.approx(300, rel=0.02)


def test_only_the_longest_trials_of_a_rate_say_whose_bound_it_is() -> None:
    short = Seen(100.0, 0.5, 50, 0, 100.0, sender_limited=True)
    lossy, limited = Seen(100.0, 2.0, 200, 100, 50.0), replace(short, duration_s=2.0)
    found = Found(None, 100.0, (short, lossy))
    assert (found.exceeded, found.forwarded, found.sender_limit) == (100, 0, None)
    assert not found.only_the_sender
    # Where the full length could be sent once, and once not, nothing was lost.
    for trials in ((short, limited), (replace(lossy, lost=0), limited)):
        found = Found(None, 100.0, trials)
        assert (found.exceeded, found.forwarded, found.sender_limit) == (None, None, 100)


def test_a_trial_has_enough_packets_to_judge_its_goal() -> None:
    packets = least_packets(0.005)
    allowed = math.floor(packets * 0.005)

    def passes(loss: float) -> float:
        return sum(
            math.comb(packets, k) * loss**k * (1 - loss) ** (packets - k)
            for k in range(allowed + 1)
        )

    assert passes(0.01) < 0.05
    assert passes(0.0025) > 0.95
    assert least_packets(0.0) == 1


def test_the_profile_of_rfc_2544_gives_its_times_and_lets_others_be_set() -> None:
    params = RateSearchParams.model_validate({"payload_bytes": 100, "profile": "rfc2544"})
    assert (params.trial, params.drain, params.settle) == (60 * 10**9, 2 * 10**9, 5 * 10**9)
    own = RateSearchParams.model_validate(
        {"payload_bytes": 100, "profile": "rfc2544", "trial": "120 s"}
    )
    assert (own.trial, own.settle) == (120 * 10**9, 5 * 10**9)
