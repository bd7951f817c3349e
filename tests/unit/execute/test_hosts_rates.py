"""What workloads send over a real line at most, and for how long."""

import math
from typing import Any

import pytest

from tunnelmark.engine.link import Direction, LinkSpec, Queue
from tunnelmark.execute.hosts_rates import Rates, longest_s, rates
from tunnelmark.workloads.base import Workload
from tunnelmark.workloads.registry import workload_kinds

STREAMS: dict[str, dict[str, Any]] = {
    "udp_echo": {"gap": "10 ms", "payload_bytes": 300, "packets": 100},
    "udp_load": {"packet_rate": 100, "payload_bytes": 300},
}


def workload(kind: str, **values: object) -> Workload:
    driver = workload_kinds()[kind]
    return driver(driver.params_type.model_validate(values))


def link(rate_bit_s: int, duplicate: float = 0.0) -> LinkSpec:
    way = Direction(rate_bit_s, 0, Queue("bytes", 65536), duplicate=duplicate)
    return LinkSpec(way, way, seed=0)


@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_that_is_spread_over_paths_is_no_larger_by_them(kind: str) -> None:
    spread = workload(kind, **STREAMS[kind])
    assert rates([spread], None, 1500, 4) == rates([spread], None, 1500, 1)
    share = {"udp_echo": "load", "udp_load": "share"}[kind]
    each = workload(kind, **STREAMS[kind], **{share: "each"})
    assert rates([each], None, 1500, 4).most == 4 * 100 * 8 * 500


@pytest.mark.parametrize(
    ("kind", "values", "times"),
    [
        # Its packet rate is that of all paths together.
        ("bursts", {"packet_rate": 100, "largest_bytes": 300}, 1),
        # Its echo goes over each of them.
        ("latency_under_load", {"gap": "10 ms", "payload_bytes": 300}, 4),
    ],
)
def test_what_has_no_choice_counts_as_it_is_sent(
    kind: str, values: dict[str, Any], times: int
) -> None:
    assert rates([workload(kind, **values)], None, 1500, 4).most == times * 100 * 8 * 500


def test_copies_are_made_behind_the_rate_of_the_emulator() -> None:
    sent = workload("tcp_bulk", duration="10 s")
    assert rates([sent], link(10**7, 0.5), 1500, 1).forward == 15e6
    assert rates([sent], link(10**7), 1500, 1) == Rates(1e7, 1e7)
    echo = workload("udp_echo", **STREAMS["udp_echo"])
    # Each copy is answered.
    assert rates([echo], link(10**7, 0.5), 1500, 1) == Rates(6e5, 6e5)


def test_what_nothing_bounds_is_infinite() -> None:
    fetched = workload("tcp_bulk", duration="10 s", direction="reverse")
    assert rates([fetched], link(10**7), 1500, 1).reverse == math.inf
    assert rates([], None, 1500, 1).most == 0


def search(**values: object) -> Workload:
    given: dict[str, object] = {
        "payload_bytes": 972,
        "reference": "8.3 Mbit/s",
        "most_trials": 10,
        "drain": "1 s",
        "settle": "0 s",
    }
    return workload("rate_search", **(given | values))


def test_a_search_repeats_its_trials_and_those_of_slow_rates_are_longer() -> None:
    # 8.3 Mbit/s are 1037.5 packets of 1000 bytes a second; the lowest rate is 83.
    strict = search(loss=0.001, lowest=0.08)
    each_s = longest_s(strict, None, 1500, 1) / (3 * 10)
    assert each_s == pytest.approx(6000 / 83 + 2, rel=1e-3)
    # Of any loss, a trial has a packet for each path.
    assert longest_s(search(lowest=0.001), None, 1500, 4) == pytest.approx(
        30 * (4 / 1.0375 + 2), rel=1e-3
    )
    # Without a goal its length is that asked for, but for the last packet.
    usual_s = longest_s(search(), None, 1500, 1) / (3 * 10)
    assert 2 + 2 <= usual_s <= 2 + 2 + 1 / 10


def test_a_search_for_calls_repeats_its_trials() -> None:
    calls = workload("voip_capacity", most_calls=15, duration="10 s", drain="1 s")
    assert longest_s(calls, None, 1500, 1) == 3 * 2 * 4 * (10 + 1 + 1)
