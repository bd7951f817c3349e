"""Bulk TCP: what iperf3 reports, what is made of it, and what a study may ask for."""

import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from tunnelmark.model.tunnel import TrafficPath
from tunnelmark.workloads.iperf3 import Report, parse_report
from tunnelmark.workloads.tcp_bulk import TcpBulk, TcpBulkParams, plan_flows
from tunnelmark.workloads.tcp_figures import Reported, figures, series


def stream(start: float, octets: int, **more: Any) -> dict[str, Any]:
    return {"socket": 5, "start": start, "end": start + 1, "seconds": 1.0, "bytes": octets, **more}


def document(**changes: Any) -> dict[str, Any]:
    return {
        "start": {"version": "iperf 3.12", "tcp_mss_default": 1448, "unknown": [1, 2]},
        "intervals": [
            {"streams": [stream(0, 1000, rtt=2000, snd_cwnd=14480, retransmits=1)], "sum": {}},
            {"streams": [stream(1, 3000, rtt=4000, snd_cwnd=28960, retransmits=2)], "sum": {}},
            {"streams": [stream(2, 10, rtt=9000, snd_cwnd=1, retransmits=0) | {"seconds": 0.01}]},
        ],
        "end": {
            "sum_sent": {"bytes": 5000, "seconds": 2.0, "retransmits": 3},
            "sum_received": {"bytes": 4000, "seconds": 2.5},
            "sender_tcp_congestion": "cubic",
        },
        **changes,
    }


def report(**changes: Any) -> Report:
    return parse_report(json.dumps(document(**changes)).encode())


def test_a_report_is_read() -> None:
    found = report()
    assert (found.error, found.version, found.mss_bytes) == (None, "iperf 3.12", 1448)
    assert (found.sent_bytes, found.sent_s, found.retransmits) == (5000, 2.0, 3)
    assert (found.received_bytes, found.received_s, found.congestion) == (4000, 2.5, "cubic")
    assert [s.payload_bytes for s in found.seconds] == [1000, 3000, 10]
    assert [s.whole for s in found.seconds] == [True, True, False]
    assert found.seconds[0].rtt_ns == 2e6


def test_streams_of_a_second_are_taken_together() -> None:
    both = [stream(0, 10, rtt=1000, snd_cwnd=5, retransmits=1), stream(0, 30, rtt=3000, snd_cwnd=7)]
    (second,) = report(intervals=[{"streams": both}]).seconds
    assert second.payload_bytes == 40
    assert second.rtt_ns == 2e6
    assert second.cwnd_bytes == 12
    assert second.retransmits == 1


def test_what_the_receiver_does_not_know_is_missing() -> None:
    (second,) = report(intervals=[{"streams": [stream(0, 10)]}]).seconds
    assert (second.rtt_ns, second.cwnd_bytes, second.retransmits) == (None, None, None)


def test_an_error_comes_without_sums() -> None:
    found = report(intervals=[], end={}, error="error - unable to connect to server")
    assert found.error == "error - unable to connect to server"
    assert (found.received_bytes, found.sent_s, found.seconds) == (None, None, ())


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"", "document"),
        (b"[]", "document"),
        (b'{"end": {"sum_sent": {"bytes": -1, "seconds": 1}}}', "end.sum_sent.bytes"),
        (b'{"end": {"sum_sent": {"bytes": 1, "seconds": "1"}}}', "end.sum_sent.seconds"),
        (b'{"intervals": [{"streams": [{}]}]}', "intervals.0.streams.0.start"),
        (b'{"error": 7}', "error"),
    ],
)
def test_a_damaged_report_is_refused_with_the_place(data: bytes, place: str) -> None:
    with pytest.raises(ValueError, match=f"the report of iperf3 is damaged at {place}: "):
        parse_report(data)


def reported(direction: str, **changes: Any) -> Reported:
    one = report(**changes)
    return Reported("0", direction, one, one)  # type: ignore[arg-type]


def test_figures_of_one_flow() -> None:
    found = figures([reported("forward")])
    assert set(found) == set(TcpBulk.metrics)
    assert found["tcp_goodput_bit_s"] == found["tcp_goodput_forward_bit_s"] == 4000 * 8 / 2.5
    assert found["tcp_goodput_reverse_bit_s"] is None
    assert found["tcp_goodput_slowest_bit_s"] == 8000
    assert found["tcp_retransmits_per_s"] == 1.5
    assert found["tcp_rtt_p50_ns"] == 3e6
    assert found["tcp_rtt_max_ns"] == 4e6
    assert found["tcp_cwnd_p50_bytes"] == (14480 + 28960) / 2


def test_the_ratios_of_rfc_6349() -> None:
    found = figures([replace(reported("forward"), idle_rtt_ns=1e6)])
    # 5000 bytes and three segments of 1448 again; 3 ms on average against 1 ms.
    assert found["tcp_efficiency_ratio"] == 5000 / (5000 + 3 * 1448)
    assert found["tcp_buffer_delay_ratio"] == pytest.approx(2.0)
    assert figures([reported("forward")])["tcp_buffer_delay_ratio"] is None


def test_a_start_up_that_is_left_out_is_in_no_figure() -> None:
    found = figures([reported("forward").after(1.0)])
    assert found["tcp_goodput_bit_s"] == pytest.approx(3010 * 8 / 1.01)
    assert found["tcp_rtt_p50_ns"] == found["tcp_rtt_max_ns"] == 4e6
    assert found["tcp_retransmits_per_s"] == pytest.approx(2 / 1.01)
    assert found["tcp_goodput_slowest_bit_s"] == 24000
    nothing = figures([reported("forward").after(9.0)])
    assert nothing["tcp_goodput_bit_s"] is None
    assert reported("forward").after(0.0) == reported("forward")


def test_every_series_of_a_flow_is_as_long_as_its_times() -> None:
    empty = stream(3, 0) | {"seconds": 0.0}
    one = reported("forward", intervals=[{"streams": [stream(0, 10)]}, {"streams": [empty]}])
    (seconds,) = series([one])
    assert seconds["goodput_bit_s"] == [80, None]
    assert len({len(values) for values in seconds.values() if isinstance(values, list)}) == 1


def test_flows_at_once_add_up() -> None:
    found = figures([reported("forward"), reported("reverse")])
    assert found["tcp_goodput_bit_s"] == 2 * 4000 * 8 / 2.5
    assert found["tcp_goodput_reverse_bit_s"] == 4000 * 8 / 2.5
    assert found["tcp_goodput_slowest_bit_s"] == 16000
    assert found["tcp_retransmits_per_s"] == 3.0
    assert found["tcp_rtt_p50_ns"] == 3e6
    assert found["tcp_cwnd_p50_bytes"] == 14480 + 28960


def test_a_flow_without_samples_has_no_rtt() -> None:
    found = figures([reported("forward", intervals=[])])
    assert found["tcp_rtt_p50_ns"] is None
    assert found["tcp_goodput_slowest_bit_s"] is None
    assert found["tcp_goodput_bit_s"] == 4000 * 8 / 2.5


def path(number: int, server: str) -> TrafficPath:
    return TrafficPath(str(number), "10.0.0.1", server, "a", "b", 1500)


def test_ports_are_counted_by_address_and_streams_are_spread_or_each() -> None:
    params = TcpBulkParams.model_validate({"direction": "both", "parallel": 5, "load": "spread"})
    tunnels = [path(number, f"198.19.0.{number}") for number in range(3)]
    flows = plan_flows(params, tunnels, 7700)
    assert [flow.port for flow in flows] == [7700, 7701] * 3
    assert [flow.streams for flow in flows if flow.direction == "forward"] == [2, 2, 1]
    bare = plan_flows(params, [path(number, "198.18.0.2") for number in range(3)], 7700)
    assert [flow.port for flow in bare] == list(range(7700, 7706))
    each = plan_flows(TcpBulkParams.model_validate({"parallel": 5}), tunnels, 7700)
    assert [flow.streams for flow in each] == [5, 5, 5]


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"duration": "1500 ms"}, "whole seconds"),
        ({"content": "file"}, "file goes with content"),
        ({"file": "x"}, "file goes with content"),
        ({"parallel": 129}, "less than or equal to 128"),
        ({"congestion": "cubic; reboot"}, "pattern"),
        ({"window": 65536}, "has no unit"),
    ],
)
def test_what_cannot_be_is_refused(params: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        TcpBulkParams.model_validate(params)


def test_spreading_needs_a_connection_for_each_tunnel() -> None:
    params = TcpBulkParams.model_validate({"parallel": 2, "load": "spread"})
    assert TcpBulk(params).conflict(2) is None
    assert "parallel is 2, must be at least the 3 tunnels" in (TcpBulk(params).conflict(3) or "")
