"""Loads beside each other use one congestion control in virtual time too, as on a lab's hosts."""

import pytest

from tunnelmark.model.errors import LabError
from tunnelmark.model.trial import Background, DriverSpec
from tunnelmark.sim.congestion import agreed


def load(kind: str, **params: object) -> Background:
    return Background(kind, kind, params, "inside")


def workload(*background: Background, kind: str = "tcp_bulk", **params: object) -> DriverSpec:
    return DriverSpec(kind, "w", params, background=background)


def names(spec: DriverSpec) -> list[object]:
    beside = [one.params.get("congestion") for one in spec.background]
    return [spec.params.get("congestion"), *beside]


def test_what_the_workload_names_is_what_the_loads_use() -> None:
    udp = load("udp_load", packet_rate=9, payload_bytes=99)
    spec = workload(load("tcp_bulk"), udp, load("web"), congestion="reno")
    assert names(agreed(spec)) == ["reno", "reno", None, "reno"]


def test_what_a_load_names_is_what_the_workload_and_other_loads_use() -> None:
    spec = workload(load("tcp_bulk", congestion="reno"), load("tcp_bulk"), kind="tcp_bulk")
    assert names(agreed(spec)) == ["reno", "reno", "reno"]
    echo = workload(
        load("tcp_bulk", congestion="reno"),
        kind="udp_echo",
        packets=9,
        payload_bytes=99,
        gap="10 ms",
    )
    assert names(agreed(echo)) == [None, "reno"]


def test_exchanges_over_udp_are_left_alone() -> None:
    spec = workload(
        load("request_response", transport="udp"), load("request_response"), congestion="reno"
    )
    assert names(agreed(spec)) == ["reno", None, "reno"]


@pytest.mark.parametrize("spec", [workload(congestion="reno"), workload(load("tcp_bulk"))])
def test_without_loads_or_names_nothing_changes(spec: DriverSpec) -> None:
    assert agreed(spec) is spec


def test_two_names_are_refused() -> None:
    spec = workload(load("tcp_bulk", congestion="cubic"), congestion="reno")
    with pytest.raises(LabError, match=r"different congestion controls \(cubic, reno\)"):
        agreed(spec)
