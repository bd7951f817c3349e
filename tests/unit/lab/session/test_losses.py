"""Losses of a trial by direction, from what the engine's summaries tell."""

from typing import Any

import pytest

from tunnelmark.lab.session.losses import Losses, lost_packets, sent_packets
from tunnelmark.probes.places import Assigned, assign


def stream(sent: int, received: int, answered: int = 0, returned: int = 0) -> dict[str, Any]:
    return {
        "send": {"flows": ({"sent": sent, "returned": returned}, {"sent": 0, "returned": 0})},
        "reflect": {"flows": ({"received": received, "answered": answered},)},
    }


def test_an_echo_loses_on_the_way_there_and_on_the_way_back() -> None:
    details = stream(100, 95, 95, 92)
    assert sent_packets(details) == {"forward": 100, "reverse": 95}
    assert lost_packets(details) == {"forward": 5, "reverse": 3}


def test_answers_to_duplicates_are_no_losses() -> None:
    assert lost_packets(stream(100, 95, 97, 95)) == {"forward": 5, "reverse": 0}


def test_loads_each_way_lose_each_their_own() -> None:
    details = {"forward": stream(100, 90), "reverse": stream(50, 49), "payload_bytes": 7}
    assert sent_packets(details) == {"forward": 100, "reverse": 50}
    assert lost_packets(details) == {"forward": 10, "reverse": 1}
    assert lost_packets({"reverse": stream(50, 49)}) == {"reverse": 1}


def test_of_other_workloads_nothing_is_said() -> None:
    assert lost_packets({}) == {}
    assert lost_packets({"send": {"flows": ()}, "reflect": None}) == {}
    assert lost_packets({"forward": {"seconds": 5}}) == {}


def test_shares_add_up_and_checks_name_the_places() -> None:
    losses = Losses({"forward": assign(10, {"link_queue": 6, "link_line": 3})})
    metrics = losses.metrics({"forward": 1000})
    assert metrics["lost_forward_link_queue_ratio"] == 0.006
    assert metrics["lost_forward_unknown_ratio"] == 0.001
    assert sum(value or 0 for value in metrics.values()) == pytest.approx(0.01)
    (check,) = losses.checks()
    assert check.ok
    assert check.message == "forward: lost 10 = link queue 6 + link line 3 + unknown 1"
    assert losses.metrics({"forward": 0}) == {}


def test_places_that_do_not_add_up_are_seen() -> None:
    (check,) = Losses({"forward": Assigned(10, {"link_queue": 6, "unknown": 1}, {})}).checks()
    assert not check.ok
