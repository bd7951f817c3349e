"""Losses of a trial by direction, from what the engine's summaries tell."""

from typing import Any

import numpy as np
import pytest

from tunnelmark.engine.records import Flow
from tunnelmark.lab.session.losses import Losses, lost_packets, sent_packets
from tunnelmark.probes.places import Assigned, assign
from tunnelmark.workloads.streams import Streamed


def stream(sent: int, received: int, answered: int = 0, returned: int = 0) -> dict[str, Any]:
    seen = {"sent": sent, "received": received, "answered": answered, "returned": returned}
    return {"within_wait": seen, "send": {"flows": ()}}


def test_an_echo_loses_on_the_way_there_and_on_the_way_back() -> None:
    details = stream(100, 95, 95, 92)
    assert sent_packets(details) == {"forward": 100, "reverse": 95}
    assert lost_packets(details) == {"forward": 5, "reverse": 3}


def test_what_comes_late_but_in_time_is_not_lost_and_what_comes_afterwards_is() -> None:
    """As the figures have it, whatever the programs counted."""
    ms = 10**6
    sent = np.arange(4, dtype=np.int64) * 10 * ms
    # In time; late; answered in time and back afterwards; there afterwards.
    arrived = sent + np.array([1, 1, 1, 3000]) * ms
    flow = Flow(
        sent_ns=sent,
        size=np.full(4, 100, dtype=np.int64),
        arrived_ns=arrived,
        answered_ns=arrived,
        returned_ns=sent + np.array([2, 200, 4000, 5000]) * ms,
        residence_ns=np.zeros(4, dtype=np.int64),
        late=np.array([False, True, True, True]),
    ).within(2000 * ms)
    details = Streamed((), joined=(flow,), counted={"send": {}}).details
    assert sent_packets(details) == {"forward": 4, "reverse": 3}
    assert lost_packets(details) == {"forward": 1, "reverse": 1}


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
