"""The five lines for whoever decides: of any study, from what was decided of its differences."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from made_points import point
from made_results import manifest
from tunnelmark.analysis.estimates import PointEstimates
from tunnelmark.model.block import Stratum
from tunnelmark.report.brief import brief
from tunnelmark.report.families import Deciding
from tunnelmark.report.sections import sections
from tunnelmark.report.statements import statements_of
from tunnelmark.report.summary import Summary
from tunnelmark.report.uses import uses_of

RATE, RTT, CALLS = "tcp_goodput_bit_s", "rtt_p50_ns", "voip_calls"
OWD = "owd_forward_p99_ns"
KINDS = {RATE: "tcp_bulk", RTT: "udp_echo", OWD: "udp_load", CALLS: "voip_capacity"}
BARE = {RATE: 8e6, RTT: 41e6, OWD: 20e6, CALLS: 24.0}
DECIDING = {"voip_capacity": Deciding(CALLS, own=True)}


def made(metric: str, changed: Mapping[str, float], *, half: float = 1e4) -> list[PointEstimates]:
    """Return the points of a workload: of each tunnel, by what it changes, and of none."""

    def one(name: str, by: float) -> PointEstimates:
        bare = BARE[metric]
        value = bare + by if metric == CALLS else bare * (1 + by)
        figures = {metric: (value, half)}
        return point(name, {}, figures, kind=KINDS[metric], changed=None if name == "none" else by)

    return [one(name, by) for name, by in {"none": 0.0, **changed}.items()]


def lines(points: Sequence[PointEstimates], *, skipped: Sequence[str] = ()) -> dict[str, str]:
    parts = sections(points, (), DECIDING)
    reported = statements_of(parts, confidence=0.95, moments=1)
    uses = uses_of(parts, (), reported, skipped)
    summary = Summary(
        manifest(), tuple(points), (), (), (), 1, reported, (), parts, (), uses, (), (), None
    )
    found = brief(summary)
    assert len(found) <= 5
    assert all(text and text != "-" for _, text in found)
    assert len(dict(found)) == len(found)
    return dict(found)


def test_one_that_is_the_best_of_all() -> None:
    found = lines(
        [
            *made(RTT, {"a": 0.01, "b": 0.05}),
            *made(RATE, {"a": -0.1, "b": -0.3}),
        ]
    )
    assert list(found) == ["Choose", "Better by", "Costs", "Breaks first", "Not known"]
    assert found["Choose"] == "a, the best for UDP echo and TCP bulk transfer"
    assert found["Better by"] == "RTT, median 3.8 % lower, TCP goodput 29 % higher than b"
    assert found["Costs"] == ("against no tunnel: RTT, median 1 % higher, TCP goodput 10 % lower")
    assert found["Breaks first"] == "no failure at the offered loads"
    assert found["Not known"] == (
        "the variation between bring-ups; other lines and devices than wan"
    )


def test_the_nearest_rival_is_the_one_of_the_figure() -> None:
    found = lines(
        [
            *made(RTT, {"a": 0.01, "b": 0.05, "c": 0.5}),
            *made(RATE, {"a": -0.1, "b": -0.5, "c": -0.2}),
        ]
    )
    assert found["Better by"] == "RTT, median 3.8 % lower than b; TCP goodput 12 % higher than c"


def test_best_for_one_use_and_open_for_another() -> None:
    found = lines(
        [*made(RTT, {"a": 0.01, "b": 0.05}), *made(RATE, {"a": -0.1, "b": -0.11}, half=1e6)]
    )
    assert found["Choose"] == ("a, the best for UDP echo and not clearly worse for anything else")
    assert found["Better by"] == "RTT, median 3.8 % lower than b"
    assert "which of a and b is better: about " in found["Not known"]
    assert "(TCP bulk transfer)" in found["Not known"]


def test_how_much_better_than_nothing_is_no_number() -> None:
    def nothing(points: list[PointEstimates]) -> list[PointEstimates]:
        """All of b's trials but one carried nothing: their mean is about 0, on no logarithm."""
        ratios = {"a": -0.1, "b": -1.0}

        def one(p: PointEstimates) -> PointEstimates:
            own = {
                name: replace(
                    d,
                    value=ratios[p.tunnel],
                    logarithmic=False,
                    spread=d.spread and replace(d.spread, value=ratios[p.tunnel]),
                )
                for name, d in p.differences.items()
            }
            return replace(p, differences=own, ratios=own)

        return [p if p.is_baseline else one(p) for p in points]

    found = lines(
        [*made(RTT, {"a": 0.01, "b": 0.05}), *nothing(made(RATE, {"a": -0.1, "b": -0.9}))]
    )
    assert found["Better by"].endswith("TCP goodput infinitely higher than b")


def test_each_the_best_for_something() -> None:
    found = lines([*made(RTT, {"a": 0.01, "b": 0.05}), *made(RATE, {"a": -0.3, "b": -0.1})])
    assert found["Choose"] == "by use: a for UDP echo; b for TCP bulk transfer"
    assert (
        found["Better by"] == "a: RTT, median 3.8 % lower than b; b: TCP goodput 29 % higher than a"
    )
    assert found["Costs"].startswith("a: against no tunnel: RTT, median 1 % higher")


def test_what_was_not_measured_is_not_said_to_be_worse() -> None:
    close = {"a": 0.01, "b": 0.011}
    found = lines([*made(RTT, {**close, "c": 0.012}, half=1e6), *made(RATE, close, half=1e6)])
    assert found["Better by"] == (
        "no clear difference between a and b; c not measured for every use"
    )
    found = lines([*made(RTT, {**close, "c": 9.0}, half=1e6), *made(RATE, close, half=1e6)])
    assert found["Better by"] == (
        "no clear difference between a and b; c clearly worse or broken somewhere"
    )


def test_a_tunnel_that_ran_later_is_not_said_to_be_missing() -> None:
    points = made(RTT, {"a": 0.01, "b": 0.05})
    assert "c: not run here" in lines(points, skipped=("b", "c"))["Not known"]
    assert "not run here" not in lines(points, skipped=("b",))["Not known"]


@pytest.mark.parametrize(
    ("half", "second", "said"),
    [
        (1e6, 0.011, "no tunnel is clearly best: a or b"),
        (1.0, 0.01, "no relevant difference: a or b"),
    ],
)
def test_none_is_the_best(half: float, second: float, said: str) -> None:
    found = lines(
        [
            *made(RTT, {"a": 0.01, "b": second}, half=half),
            *made(RATE, {"a": -0.1, "b": -0.1 - (second - 0.01)}, half=half),
        ]
    )
    assert found["Choose"] == said
    assert found["Better by"] == "no clear difference between a and b"


def test_too_few_repeats_decide_nothing() -> None:
    def few(one: PointEstimates) -> PointEstimates:
        differences = {
            name: replace(d, n=3, spread=None if d.spread is None else replace(d.spread, repeats=3))
            for name, d in one.differences.items()
        }
        return replace(one, differences=differences)

    points = [*made(RTT, {"a": 0.01, "b": 0.5}), *made(RATE, {"a": -0.1, "b": -0.3})]
    found = lines(list(map(few, points)))
    assert found["Choose"] == "not decided, with fewer than 4 repeats: a or b"
    assert "whether anything differs: fewer than 4 repeats" in found["Not known"]


def test_what_is_broken_for_one_use_is_not_chosen_for_all() -> None:
    def dead(points: list[PointEstimates], *names: str) -> list[PointEstimates]:
        broken: dict[str, Any] = {"estimates": {}, "differences": {}, "valid": 5, "dead": 5}
        return [replace(p, **broken) if p.tunnel in names else p for p in points]

    rtt, rate = made(RTT, {"a": 0.01, "b": 0.05}), made(RATE, {"a": -0.1, "b": -0.3})
    found = lines([*rtt, *dead(rate, "a")])
    assert found["Choose"] == "by use: a for UDP echo; b for TCP bulk transfer"
    assert "a: broken: " in found["Breaks first"]
    found = lines([*rtt, *dead(rate, "a", "b")])
    assert found["Choose"] == (
        "a, the best for UDP echo; no tunnel carried every point of TCP bulk transfer"
    )
    found = lines([*dead(rtt, "a", "b"), *dead(rate, "a", "b")])
    assert found["Choose"] == (
        "none: no tunnel carried every point of UDP echo and TCP bulk transfer"
    )
    assert "Better by" not in found
    unknown = [replace(p, estimates={}, differences={}, valid=0) for p in rate]
    assert lines([*rtt, *unknown])["Choose"] == (
        "a, the best for UDP echo; no valid trial of TCP bulk transfer"
    )


def test_what_is_chosen_without_a_clear_win_is_not_called_the_best() -> None:
    def unseen(points: list[PointEstimates]) -> list[PointEstimates]:
        none: dict[str, Any] = {"estimates": {}, "differences": {}, "valid": 0, "invalid": 3}
        return [replace(p, **none) if p.tunnel == "b" else p for p in points]

    rtt, rate = made(RTT, {"a": 0.01, "b": 0.05}), made(RATE, {"a": -0.1, "b": -0.3})
    said = "a, the only tunnel with valid trials for UDP echo"
    assert lines([*unseen(rtt), *unseen(rate)])["Choose"] == f"{said} and TCP bulk transfer"
    assert lines([*unseen(rtt), *rate])["Choose"] == (
        "a, the best for TCP bulk transfer and the only tunnel with valid trials for UDP echo"
    )
    open_rtt = made(RTT, {"a": 0.01, "b": 0.0101, "c": 0.9}, half=1e4)
    open_rate = made(RATE, {"a": -0.1, "b": -0.9, "c": -0.1001})
    assert lines([*open_rtt, *open_rate])["Choose"] == (
        "a, not clearly worse for UDP echo and TCP bulk transfer"
    )


def test_what_no_other_was_compared_with_is_not_called_the_best() -> None:
    """The other works, and has no figure of the metric that decides."""

    def without(points: list[PointEstimates]) -> list[PointEstimates]:
        none: dict[str, Any] = {"estimates": {}, "differences": {}}
        return [replace(p, **none) if p.tunnel == "b" else p for p in points]

    rtt, rate = made(RTT, {"a": 0.01, "b": 0.05}), made(RATE, {"a": -0.1, "b": -0.3})
    said = "a, the only tunnel with a comparable figure"
    assert lines(without(rtt))["Choose"] == said
    assert lines([*without(rtt), *without(rate)])["Choose"] == (
        f"{said} for UDP echo and TCP bulk transfer"
    )
    found = lines([*without(rtt), *rate])
    assert found["Choose"] == (
        "a, the best for TCP bulk transfer and the only tunnel with a comparable figure for "
        "UDP echo"
    )
    assert "RTT, median of b: no trial has it (UDP echo)" in found["Not known"]
    # One of three that is better than the only other with a figure is the best of these.
    three = made(RTT, {"a": 0.01, "b": 0.05, "c": 0.5})
    assert lines(without(three))["Choose"] == "a"


def test_what_the_clocks_do_not_decide_is_not_put_down_to_too_few_repeats() -> None:
    def unbounded(one: PointEstimates) -> PointEstimates:
        differences = {
            name: replace(d, spread=d.spread and replace(d.spread, bias=math.inf))
            for name, d in one.differences.items()
        }
        return replace(one, differences=differences)

    found = lines(list(map(unbounded, made(OWD, {"a": 0.01, "b": 0.5}))))
    assert found["Choose"] == "no tunnel is clearly best: a or b"
    assert found["Not known"].startswith(
        "whether anything differs: the two clocks are not exact enough"
    )


def test_a_single_tunnel_is_better_than_nothing_it_was_compared_with() -> None:
    found = lines([*made(RTT, {"a": 0.01}), *made(RATE, {"a": -0.1})], skipped=["pptp"])
    assert found["Choose"] == "a, the only tunnel with valid trials"
    assert "Better by" not in found
    assert found["Costs"] == "against no tunnel: RTT, median 1 % higher, TCP goodput 10 % lower"
    assert "pptp: not run here" in found["Not known"]


def test_a_count_that_is_the_same_every_time_is_given_as_it_was_seen() -> None:
    """A search by steps of eight has no scatter in four repeats, and so no interval."""
    found = lines([*made(RTT, {"a": 0.01}), *made(CALLS, {"a": -8.0}, half=0.0)])
    assert (
        "Calls carried 16 instead of 24, the same in every repeat (too few to decide)"
        in (found["Costs"])
    )


def test_simulated_tunnels_have_their_names_and_the_reservation_once() -> None:
    def simulated(points: list[PointEstimates]) -> list[PointEstimates]:
        return [
            replace(p, tunnel=f"{p.tunnel} (simulated)", stratum=Stratum.SIMULATION) for p in points
        ]

    rtt, rate = made(RTT, {"a": 0.01, "b": 0.05}), made(RATE, {"a": -0.1, "b": -0.3})
    found = lines([*simulated(rtt), *simulated(rate)])
    assert found["Choose"].startswith("a, the best for")
    assert "(simulated)" not in "".join(found.values())
    assert "this was simulated" in found["Not known"]


def test_one_simulated_use_has_no_mark_behind_its_names_and_says_what_it_is() -> None:
    points = made(RTT, {"a": 0.01, "b": 0.05})
    found = lines(
        [replace(p, tunnel=f"{p.tunnel} (simulated)", stratum=Stratum.SIMULATION) for p in points]
    )
    assert found["Choose"] == "a"
    assert "(simulated)" not in "".join(found.values())
    assert "this was simulated" in found["Not known"]


def test_one_use_has_its_own_words() -> None:
    found = lines(made(RTT, {"a": 0.01, "b": 0.05}))
    assert found["Choose"] == "a"
    assert found["Better by"].startswith("RTT, median -3.81 % [")
    assert lines(made(RTT, {})) == {}


def test_tunnels_with_another_number_of_clients_are_no_rivals() -> None:
    few = [replace(p, load="1 client") for p in made(RATE, {"a-1": -0.01, "b-1": -0.3})]
    many = [replace(p, load="50 clients") for p in made(RATE, {"a-50": -0.7, "b-50": -0.1})]
    found = lines([*few, *many])
    assert found["Choose"] == (
        "by use: a-1 for TCP bulk transfer (1 client); b-50 for TCP bulk transfer (50 clients)"
    )
    assert "b-1" in found["Better by"]
    # All set against each other, the one with the fewest clients was the best.
    mixed = [replace(p, load="") for p in (*few, *many)]
    assert "by use" not in lines(mixed)["Choose"]
